"""COCO and LVIS json as tables: labels alone, without outlines and boxes.

A COCO file says present and absent, an LVIS file also unknown. The image id is ``file_name``. A ``split``
in each entry of ``images`` is read and written.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from satl.errors import Argument, Sentence, TableError
from satl.labels.encodings import Encoding, refuse_encoding
from satl.labels.io.instances import read_instances
from satl.labels.io.registry import Format, TableFile, register_format
from satl.labels.io.wide import build
from satl.labels.table import ABSENT, PRESENT, UNKNOWN, LabelTable


def read_json(path: Path, encoding: str | None, *, format: str) -> TableFile:
    """Read a COCO or LVIS file; it says by itself what is present and absent, so no encoding applies."""
    refuse_encoding(encoding, "lists annotations", path)
    found = read_instances(path)
    split = None if found.splits is None else np.array(found.splits, dtype=np.str_)
    cells = found.cells()
    table = build(path, found.images, found.names, cells, split)
    counts = {"positive": int((cells == PRESENT).sum()), "negative": int((cells == ABSENT).sum())}
    return TableFile(table, path, format, None, False, counts)


def write_json(table: LabelTable, path: Path, encoding: Encoding | None, *, format: str) -> None:
    """Write a COCO or LVIS file; images and categories are numbered from 1 in the order of the table."""
    refuse_encoding(None if encoding is None else encoding.name, "lists annotations")
    unknown = int((table.cells == UNKNOWN).sum())
    if format == "coco" and unknown:
        raise TableError(
            f"COCO json cannot say unknown, and {unknown:,} cells are unknown",
            remedy=Sentence(
                "pass {format}, or write .csv, .parquet, .jsonl or .npz", format=Argument("format", "lvis")
            ),
        )
    numbers = np.arange(1, table.num_classes + 1)
    images = []
    for row, name in enumerate(table.images):
        entry: dict[str, Any] = {"id": row + 1, "file_name": name}
        if table.split is not None:
            entry["split"] = str(table.split[row])
        if format == "lvis":
            entry["neg_category_ids"] = numbers[table.cells[row] == ABSENT].tolist()
            entry["not_exhaustive_category_ids"] = []
        images.append(entry)
    annotations = [
        {"id": number, "image_id": row + 1, "category_id": column + 1, "iscrowd": 0}
        for number, (row, column) in enumerate(np.argwhere(table.cells == PRESENT).tolist(), start=1)
    ]
    content = {
        "images": images,
        "annotations": annotations,
        "categories": [{"id": i + 1, "name": name} for i, name in enumerate(table.classes)],
    }
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def _is_complete(path: Path) -> bool:
    return read_instances(path).complete


def _is_partial(path: Path) -> bool:
    return not _is_complete(path)


for _name, _recognises in (("coco", _is_complete), ("lvis", _is_partial)):
    register_format(
        Format(
            _name,
            (".json",),
            partial(read_json, format=_name),
            partial(write_json, format=_name),
            encoded=False,
            recognises=_recognises,
        )
    )

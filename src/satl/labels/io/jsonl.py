"""JSON lines: one object per image that lists what is known to be present and absent.

::

    {"classes": ["cat", "dog"]}
    {"image": "a.jpg", "positive": ["cat"], "negative": ["dog"], "split": "train"}

The first line is optional: it fixes the classes and their order. Without it the classes are all names
that occur, sorted.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from satl.errors import TableError, first_line, nearest
from satl.labels.cells import NameIndex
from satl.labels.encodings import Encoding, refuse_encoding
from satl.labels.io.compressed import new_text, table_bytes
from satl.labels.io.registry import Format, TableFile, register_format
from satl.labels.io.wide import build, complete_splits, unique_images
from satl.labels.table import ABSENT, PRESENT, LabelTable
from satl.parsing import parse_json

_LISTS = "lists positive and negative by name"


def read_jsonl(path: Path, encoding: str | None) -> TableFile:
    """Read a file of JSON lines; it says present and absent by itself, so no encoding applies."""
    refuse_encoding(encoding, _LISTS, path)
    try:
        text = table_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TableError(f"{path} is not UTF-8 text (byte {error.start + 1}): save it as UTF-8.") from None
    classes: list[str] | None = None
    images: list[str] = []
    splits: list[str | None] = []
    labels: list[tuple[list[str], list[str]]] = []
    good: set[str] = set()
    # Only a line feed ends a line: JSON text may contain the other Unicode line ends.
    for line, raw in enumerate(text.split("\n"), start=1):
        if not raw.strip():
            continue
        row = _parse(raw, line, path)
        if "image" not in row and "classes" in row:
            if images or classes is not None:
                raise TableError(
                    f"{path}: line {line} lists the classes again or too late: make it the first."
                )
            classes = _name_list(row, "classes", line, path, good)
            continue
        images.append(_image(row, line, path))
        splits.append(_split(row, line, path))
        labels.append(_labels(row, line, path, good))
    if not images:
        raise TableError(f"{path} is empty: write one JSON object per image.")
    unique_images(tuple(images), path)
    if classes is None:
        classes = sorted({name for pair in labels for names in pair for name in names})
        if not classes:
            raise TableError(f'{path} names no class: start it with a line {{"classes": [...]}}.')
    index = NameIndex(classes)
    cells = np.zeros((len(images), len(classes)), dtype=np.int8)
    for state, lists in zip((PRESENT, ABSENT), zip(*labels, strict=True), strict=True):
        rows = np.repeat(np.arange(len(images)), [len(names) for names in lists])
        flat = [name for names in lists for name in names]
        columns = index.find(flat)
        if (columns < 0).any():
            at = int(np.argmin(columns))
            raise TableError(
                f"{path}: row {rows[at] + 1} (image {images[rows[at]]!r}) names class {flat[at]!r}, "
                f"which its 'classes' line lacks{nearest(flat[at], classes)}: correct or add it."
            )
        cells[rows, columns] = state
    table = build(path, tuple(images), tuple(classes), cells, complete_splits(splits, images, path))
    counts = {"positive": int((cells == PRESENT).sum()), "negative": int((cells == ABSENT).sum())}
    return TableFile(table, path, "jsonl", None, False, counts)


def write_jsonl(table: LabelTable, path: Path, encoding: Encoding | None) -> None:
    """Write a file of JSON lines, the classes first."""
    refuse_encoding(None if encoding is None else encoding.name, _LISTS)
    names = np.array(table.classes, dtype=object)
    splits = None if table.split is None else table.split.tolist()
    with new_text(path) as stream:
        stream.write(json.dumps({"classes": list(table.classes)}, ensure_ascii=False) + "\n")
        for row, image in enumerate(table.images):
            cells = table.cells[row]
            entry: dict[str, Any] = {
                "image": image,
                "positive": names[cells == PRESENT].tolist(),
                "negative": names[cells == ABSENT].tolist(),
            }
            if splits is not None:
                entry["split"] = splits[row]
            stream.write(json.dumps(entry, ensure_ascii=False) + "\n")


def _parse(raw: str, line: int, path: Path) -> dict[str, Any]:
    try:
        row = parse_json(raw)
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else first_line(error)
        raise TableError(f"{path}: line {line} is not JSON ({reason}): write one object per line.") from None
    if not isinstance(row, dict):
        raise TableError(
            f'{path}: line {line} is not a JSON object: write {{"image": ..., "positive": [...]}}.'
        )
    return row


def _image(row: dict[str, Any], line: int, path: Path) -> str:
    image = row.get("image")
    if isinstance(image, int) and not isinstance(image, bool):
        image = str(image)
    if not isinstance(image, str) or not image.strip():
        keys = ", ".join(map(repr, row)) or "none"
        raise TableError(f"{path}: line {line} has no 'image' (keys: {keys}): add it.")
    return image.strip()


def _split(row: dict[str, Any], line: int, path: Path) -> str | None:
    split = row.get("split")
    if split is None:
        return None
    if not isinstance(split, str) or not split.strip():
        raise TableError(f"{path}: line {line}: 'split' must be a name such as \"train\", not {split!r}.")
    return split.strip()


def _labels(row: dict[str, Any], line: int, path: Path, good: set[str]) -> tuple[list[str], list[str]]:
    if "positive" not in row and "negative" not in row:
        raise TableError(
            f"{path}: line {line} has neither 'positive' nor 'negative' (keys: {', '.join(map(repr, row))}): "
            f"write empty lists for an image nobody has looked at."
        )
    positive = _name_list(row, "positive", line, path, good)
    negative = _name_list(row, "negative", line, path, good)
    if positive and negative and not set(positive).isdisjoint(negative):
        both = set(positive) & set(negative)
        raise TableError(
            f"{path}: line {line} (image {row['image']!r}) says that {sorted(both)[0]!r} is both positive "
            f"and negative: remove one."
        )
    return positive, negative


def _name_list(row: dict[str, Any], key: str, line: int, path: Path, good: set[str]) -> list[str]:
    """Return a list of class names; ``good`` remembers names already checked, which repeat on every line."""
    names = row.get(key)
    if names is None and key != "classes":
        return []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TableError(
            f"{path}: line {line}: '{key}' must be a list of class names, not {json.dumps(names)}."
        )
    if good.issuperset(names):
        return names
    if not all(name.strip() for name in names):
        raise TableError(f"{path}: line {line}: '{key}' has an empty class name: remove it.")
    stripped = [name.strip() for name in names]
    good.update(stripped)
    return stripped


register_format(
    Format("jsonl", (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"), read_jsonl, write_jsonl, encoded=False)
)

"""Packed images, completed folders, decisions of a review, and files of other tools."""

from __future__ import annotations

import hashlib
import json
from functools import cache, partial
from pathlib import Path
from zlib import crc32

import numpy as np
from pydantic import ValidationError

from fuzz.oracles import Inconsistent
from fuzz.targets.registry import Target, register, register_file
from satl.completion.outputs.completed_folder import CompletedFolder
from satl.export.importing import read_export
from satl.images.pack import pack_images
from satl.images.source import ArrayImages
from satl.images.store import open_store, packed_images
from satl.parsing import parse_json
from satl.review.database import Conflict, DecisionRequest, ReviewStore
from satl.review.server import DecideBody


def _read_store(work: Path) -> None:
    opened = packed_images(work)
    if len(opened.ids) != len(opened):
        raise Inconsistent("another number of ids than images")
    for at in range(min(2, len(opened))):
        opened.image(at)


def _check_index(work: Path, data: bytes) -> bool:
    """Read an index that the header vouches for, as a stranger can make one."""
    header = json.loads((work / "store.json").read_text())
    header["index_sha256"] = hashlib.sha256(data).hexdigest()
    (work / "store.json").write_text(json.dumps(header))
    (work / "index.npz").write_bytes(data)
    _read_store(work)
    return True


@cache
def _source() -> ArrayImages:
    return ArrayImages.from_channels_first(np.zeros((3, 3, 8, 8), dtype=np.uint8))


def _check_journal(work: Path, data: bytes) -> bool:
    """Go on with a store that is not finished."""
    for name in ("store.json", "index.npz"):
        (work / name).unlink(missing_ok=True)
    (work / "pixels.bin").write_bytes(bytes(2 * 192))
    (work / "journal.jsonl").write_bytes(data)
    pack_images(_source(), ("a", "b", "c"), work, kind="raw", workers=1)
    if open_store(work).ids != ("a", "b", "c"):
        raise Inconsistent("other images than were packed")
    return True


def _read_completed(work: Path) -> None:
    folder = CompletedFolder.open(work)
    folder.read_report()
    folder.require_all_listed()
    table = folder.read_labels()
    folder.read_tested(table)
    folder.read_bands(table)
    if crc32(folder.changes.read_bytes() + folder.report.read_bytes()) % 16 == 0:
        folder.review.unlink(missing_ok=True)
        with ReviewStore(work) as store:
            store.refresh()
            store.overview()


@cache
def _review(work: Path) -> ReviewStore:
    store = ReviewStore(work)
    store.refresh()
    return store


def _decide(work: Path, data: bytes) -> bool:
    """Parse a request and store its decisions, as the server does below HTTP."""
    try:
        content = parse_json(data)
    except ValueError:
        return False
    body = DecideBody.model_validate(content)
    wanted = [DecisionRequest(cell.image, cell.label, cell.value, cell.based_on) for cell in body.cells]
    if len({(cell.image, cell.label) for cell in wanted}) < len(wanted):
        return False
    store = _review(work)
    outcome = store.decide(body.tab, body.request, wanted)
    json.dumps(outcome.last, allow_nan=False).encode()
    return True


register_file("store/store.json", "json", _read_store)
register(Target("store/index.npz", "npz", _check_index))
register_file("jpegstore/pixels.bin", "bytes", _read_store, share=0.5)
register(Target("journal/journal.jsonl", "jsonl", _check_journal, share=0.15))
for _name, _kind in (
    ("report.json", "json"),
    ("changes.csv", "text"),
    ("labels.npz", "npz"),
    ("completed.csv", "text"),
    ("evidence.npz", "npz"),
    ("checksums.json", "json"),
):
    register_file(f"completed/{_name}", _kind, _read_completed, share=0.25)
register(
    Target(
        "review/decide.json",
        "json",
        _decide,
        refusals=(ValidationError, Conflict, KeyError),
        share=0.25,
    )
)
for _tool, _names in {
    "cvat": ("tasks.xml",),
    "label-studio": ("tasks.json", "tasks.xml"),
    "huggingface": ("metadata.jsonl", "metadata.classes.json"),
    "fiftyone": ("labels.json", "labels.predictions.json"),
    "coco": ("labels.json", "predictions.labels.json"),
    "wide": ("labels.csv", "labels.suggestions.csv"),
    "long": ("labels.parquet", "labels.suggestions.parquet"),
}.items():
    for _name in _names:
        register_file(
            f"{_tool}/{_name}",
            _name.rpartition(".")[2] if not _name.endswith("csv") else "text",
            partial(lambda work, main, tool: read_export(work / main, tool), main=_names[0], tool=_tool),
            share=0.5,
        )

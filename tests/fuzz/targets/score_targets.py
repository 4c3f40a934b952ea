"""Scores of models, folders of predictions, thresholds, cells to label by hand, and held-out cells."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from zlib import crc32

import numpy as np

from fuzz.oracles import Inconsistent
from fuzz.targets.registry import register_file
from satl.completion.outputs.hand_labels import read_answers, read_audit
from satl.inference.threshold_files import read_thresholds
from satl.labels import LabelTable
from satl.labels.bands import Band
from satl.labels.holdout import HeldOut
from satl.scores import read_scores
from satl.scores.prediction_folder import broken_images, part_file, part_files

IMAGES, CLASSES = ("a.jpg", "b.jpg", "c.jpg"), ("cat", "dog")
TABLE = LabelTable(IMAGES, CLASSES, np.array([[1, 0], [-1, 1], [0, 0]]))


def bands(table: LabelTable) -> np.ndarray:
    """Return the bands of a completion that proposes every unknown cell."""
    return np.where(table.cells == 0, np.int8(Band.REVIEW), np.int8(Band.KNOWN))


def _read_scores(work: Path, name: str) -> None:
    file = work / name
    found = read_scores(file)
    if found.values.shape != (len(found.images), len(found.classes)):
        raise Inconsistent(f"scores {found.values.shape} of {len(found.images)} images")
    if crc32(file.read_bytes()) % 4 or any(name.endswith("\0") for name in (*found.images, *found.classes)):
        return  # NumPy takes zeros from the end of a text
    again = work / "again.npz"
    np.savez(again, scores=found.values, images=np.array(found.images), classes=np.array(found.classes))
    second = read_scores(again)
    if (second.images, second.classes) != (found.images, found.classes):
        raise Inconsistent("other names of scores")
    np.testing.assert_array_equal(second.values, found.values)


def _read_in_table_order(work: Path, name: str) -> None:
    found = read_scores(work / name, TABLE)
    if found.values.shape != TABLE.cells.shape:
        raise Inconsistent(f"scores {found.values.shape} for a table {TABLE.cells.shape}")


def _read_predictions(work: Path) -> None:
    files = part_files(work)
    read_scores(work)
    for file in files:
        broken_images(file)


for _name, _kind, _seeds in (
    ("wide.csv", "text", ()),
    ("wide.tsv", "text", ()),
    ("long.csv", "text", ()),
    ("wide.parquet", "parquet", ()),
    ("long.parquet", "parquet", ()),
    ("wide.arrow", "arrow", ()),
    ("long.arrow", "arrow", ()),
    ("all.npz", "npz", ("few.npz",)),
):
    register_file(f"scores/{_name}", _kind, partial(_read_scores, name=_name), seeds=_seeds)
for _name, _kind in (("table.csv", "text"), ("table.parquet", "parquet"), ("table.npz", "npz")):
    register_file(f"scores/{_name}", _kind, partial(_read_in_table_order, name=_name), share=0.5)
register_file("predictions/_predictions.json", "json", _read_predictions)
register_file(
    "predictions/part-000000.parquet",
    "parquet",
    lambda work: (broken_images(part_file(work, 0)), _read_predictions(work)),
)
for _name in ("mine.csv", "rule.csv", "certified.csv"):
    register_file(
        f"thresholds/{_name}",
        "text",
        lambda work, name=_name: read_thresholds(work / name, CLASSES),
        share=0.5,
    )
register_file("hand/plan.csv", "text", lambda work: read_answers(work / "plan.csv", TABLE), share=0.5)
register_file(
    "hand/audit.csv",
    "text",
    lambda work: read_audit(work / "audit.csv", TABLE, bands(TABLE)),
    share=0.5,
)
register_file(
    "heldout/held_out.npz",
    "npz",
    lambda work: HeldOut.load(work / "held_out.npz", IMAGES, CLASSES),
    share=0.5,
)

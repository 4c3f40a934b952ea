"""CheXpert: one CSV per part with the path of the image, what is known of the patient, and the findings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from satl.errors import TableError, nearest
from satl.labels.datasets.layout import joined, require_one, splits_option
from satl.labels.datasets.registry import Dataset, Option, register_dataset
from satl.labels.encodings import VALUES, decode, value_code
from satl.labels.io.wide import Coded
from satl.labels.io.wide_csv import csv_header, read_csv_codes
from satl.labels.table import ABSENT, PRESENT, UNKNOWN, Cells, LabelTable

METADATA = ("Sex", "Age", "Frontal/Lateral", "AP/PA")
"""Columns of the published files that are not findings."""
_FILES = {"train": ("train.csv",), "val": ("valid.csv",), "test": ("test.csv", "test_labels.csv")}
_STATES = {"unknown": UNKNOWN, "present": PRESENT, "absent": ABSENT}


def read_chexpert(root: Path, *, splits: Sequence[str], uncertain: str | None) -> LabelTable:
    """Read the parts: 1 present, 0 absent, blank unknown, -1 as ``uncertain`` says."""
    classes: tuple[str, ...] | None = None
    parts = []
    for split in splits:
        path = require_one(
            root,
            _FILES[split],
            "give the folder with train.csv and train/, or leave the part out with the option splits",
        )
        ignored = [name.strip() for name in csv_header(path) if name.strip() in METADATA]
        coded = read_csv_codes(path, ignored, ignorable=False)
        if classes is None:
            classes = coded.classes
        images = [_image_id(name) for name in coded.images]
        parts.append((split, images, _cells(coded, classes, path, uncertain)))
    assert classes is not None
    return joined(root, classes, parts)


def _cells(coded: Coded, classes: tuple[str, ...], path: Path, uncertain: str | None) -> Cells:
    for name in classes:
        if name not in coded.classes:
            raise TableError(
                f"{path} has no column {name!r}{nearest(name, coded.classes)}: use files of one release."
            )
    codes = coded.codes[:, [coded.classes.index(name) for name in classes]]
    count = int((codes == value_code("-1")).sum())
    if count and uncertain is None:
        raise TableError(
            f"{path} calls {count:,} findings uncertain (-1): say what that means with the option uncertain: "
            f"unknown, present or absent."
        )
    reads = {"1": PRESENT, "0": ABSENT, "": UNKNOWN}
    cells = decode(codes, reads if uncertain is None else {**reads, "-1": _STATES[uncertain]})
    wrong = cells == 2
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        raise TableError(
            f"{path}: row {row + 1} (image {coded.images[row]!r}), column {classes[column]!r}: "
            f"{VALUES[codes[row, column]]!r} is not 1, 0, -1 or blank: correct it."
        )
    return cells


def _image_id(path: str) -> str:
    """Return a published path relative to the folder of the release, whose name it begins with.

    >>> _image_id("CheXpert-v1.0-small/train/patient00001/study1/view1_frontal.jpg")
    'train/patient00001/study1/view1_frontal.jpg'
    """
    first, _, rest = path.partition("/")
    return rest if rest and first.lower().startswith("chexpert") else path


register_dataset(
    Dataset(
        "chexpert",
        "CheXpert: 14 findings in chest radiographs; a blank is unknown.",
        ("train.csv", "valid.csv", "train/", "valid/"),
        read_chexpert,
        (
            splits_option(
                ("train", "val", "test"), ("train", "val"), "Parts to read; `val` is the published valid.csv."
            ),
            Option(
                "uncertain",
                "choice",
                None,
                "What -1 (uncertain) means; must be said where the files have one.",
                tuple(_STATES),
            ),
        ),
    )
)

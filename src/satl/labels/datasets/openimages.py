"""OpenImages: image-level labels checked by people, as a long table with confidence 1 or 0."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from satl.errors import TableError
from satl.labels.cells import NameIndex
from satl.labels.datasets.layout import joined, require_file, splits_option
from satl.labels.datasets.registry import Dataset, Option, register_dataset
from satl.labels.encodings import VALUES, value_code
from satl.labels.io.long import OPENIMAGES_HEADER, read_rows, to_cells
from satl.labels.io.text_files import BOM, check_text
from satl.labels.io.wide_csv import csv_header
from satl.labels.table import ABSENT, PRESENT, Cells, LabelTable

_FOLDERS = {"train": "train", "val": "validation", "test": "test"}
_WORDS = {"train": ("train",), "val": ("validation", "val"), "test": ("test",)}
_BOXABLE = "-boxable"


def read_openimages(
    root: Path, *, splits: Sequence[str], classes: Path | None, boxable: bool, conflicts: str
) -> LabelTable:
    """Read the label files of the parts, and the classes from the file of their names."""
    if classes is None:
        classes = _only_file(root, [f"*class-descriptions{_BOXABLE if boxable else ''}.csv"], "classes")
    names = _class_names(require_file(classes, "correct the option classes"))
    parts = []
    for split in splits:
        patterns = [
            f"*{word}-annotations-human-imagelabels{_BOXABLE if boxable else ''}.csv"
            for word in _WORDS[split]
        ]
        path = _only_file(root, patterns, "splits")
        images, cells = _read_part(path, names, conflicts)
        parts.append((split, [f"{_FOLDERS[split]}/{image}.jpg" for image in images], cells))
    return joined(root, list(names.values()), parts)


def _read_part(path: Path, names: dict[str, str], conflicts: str) -> tuple[list[str], Cells]:
    header = [name.strip().lower() for name in csv_header(path)]
    if set(header) != set(OPENIMAGES_HEADER):
        raise TableError(
            f"{path} has the columns {', '.join(map(repr, header[:6])) or 'none'}, not ImageID, Source, LabelName and "
            f"Confidence: use the file of image-level labels that people checked."
        )
    rows, _ = read_rows(path)
    wrong = ~np.isin(rows.codes, (value_code("1"), value_code("0")))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise TableError(
            f"{path}: row {row + 1} (image {rows.images[rows.image[row]]!r}), column 'Confidence': "
            f"{VALUES[rows.codes[row]] or 'a blank'} is neither 1 nor 0: correct it or remove the row."
        )
    of_label = NameIndex(list(names)).find(rows.classes)[rows.label]
    wanted = of_label >= 0
    if not wanted.any():
        raise TableError(
            f"{path} has none of the {len(names):,} classes, such as {next(iter(names))!r}: "
            f"use the class file of the same release."
        )
    # An image of which nothing is known about these classes is left out.
    used, image = np.unique(rows.image[wanted], return_inverse=True)
    images = [rows.images[at] for at in used.tolist()]
    chosen = replace(
        rows,
        images=images,
        classes=list(names),
        image=image,
        label=of_label[wanted],
        codes=rows.codes[wanted],
    )
    codes = to_cells(chosen, path, conflicts=conflicts)
    lookup = np.zeros(256, dtype=np.int8)
    lookup[value_code("1")] = PRESENT
    lookup[value_code("0")] = ABSENT
    return images, lookup[codes]


def _class_names(path: Path) -> dict[str, str]:
    """Return label -> name of a file ``/m/011k07,Tortoise``, with or without a header."""
    data = path.read_bytes()
    check_text(data, path, "CSV")
    text = data.removeprefix(BOM).decode("utf-8")
    found: dict[str, str] = {}
    used: dict[str, str] = {}
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise TableError(f"{path} cannot be read as CSV ({error}): check its quotes.") from None
    header = next((row for row in rows if row), [""])
    for number, row in enumerate(rows, start=1):
        if not row or (row is header and not row[0].strip().startswith("/")):
            continue
        if len(row) != 2 or not row[0].strip() or not row[1].strip():
            raise TableError(f"{path}: line {number} is not '<label>,<name>': download the file again.")
        label, name = row[0].strip(), row[1].strip()
        if label in found:
            raise TableError(f"{path}: line {number} names label {label!r} again: remove one.")
        # A few of the twenty thousand names belong to two labels; the label tells them apart.
        found[label] = f"{name} ({label})" if name in used else name
        used[name] = label
    if not found:
        raise TableError(f"{path} is empty: download it again.")
    return found


def _only_file(root: Path, patterns: Sequence[str], option: str) -> Path:
    """Return the one file that matches, in the root or in ``annotations``."""
    places = [place + pattern for pattern in patterns for place in ("", "annotations/")]
    found = sorted({path for place in places for path in root.glob(place)})
    if len(found) == 1:
        return found[0]
    if not found:
        raise TableError(f"{root} has no file {patterns[0]}: download it, or correct the option {option}.")
    raise TableError(
        f"{root} has {len(found)} files {patterns[0]} ({found[0].name}, {found[1].name}): leave one of them there."
    )


register_dataset(
    Dataset(
        "openimages",
        "OpenImages, image-level labels that people checked; what has no row is unknown.",
        (
            "*train-annotations-human-imagelabels-boxable.csv",
            "*class-descriptions-boxable.csv",
            "train/",
            "validation/",
            "test/",
        ),
        read_openimages,
        (
            splits_option(("train", "val", "test"), ("train", "val", "test"), "Parts to read."),
            Option(
                "boxable",
                "flag",
                True,
                "Read the 600 classes with boxes; false reads the files of all classes, some 20,000.",
            ),
            Option(
                "classes",
                "path",
                None,
                "File `label,name` of the classes to read; the published class-descriptions file if not given.",
            ),
            Option(
                "conflicts",
                "choice",
                "error",
                "Two rows that contradict each other: stop, or leave the cell unknown.",
                ("error", "unknown"),
            ),
        ),
    )
)

"""PASCAL VOC 2007 and 2012: lists in ``ImageSets/Main``, labels from ``Annotations`` or from the lists per class."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from satl.errors import TableError, nearest
from satl.labels.cells import NameIndex
from satl.labels.datasets.layout import joined, read_list, relative, require_file, splits_option, within
from satl.labels.datasets.registry import Dataset, Option, register_dataset
from satl.labels.io.text_files import read_lines
from satl.labels.table import ABSENT, PRESENT, UNKNOWN, Cells, LabelTable
from satl.parsing import parse_xml

CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable"),
    *("dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
_AGAIN = "unpack the archive again"


def read_voc(root: Path, *, year: int, splits: Sequence[str], difficult: str, labels: str) -> LabelTable:
    """Read VOC of one year; ``root`` is the folder of the year, or one or two levels above it."""
    base = next(
        (
            place
            for place in (root, root / f"VOC{year}", root / "VOCdevkit" / f"VOC{year}")
            if (place / "ImageSets" / "Main").is_dir()
        ),
        None,
    )
    if base is None:
        raise TableError(
            f"{root} has no ImageSets/Main, neither directly nor in VOC{year} or VOCdevkit/VOC{year}: "
            f"pass the folder of the unpacked archive."
        )
    # A class that is there only as "difficult" is neither a fair positive nor a fair negative.
    unclear = ABSENT if difficult == "negative" else UNKNOWN
    reader = _from_xml if labels == "xml" else _from_lists
    folder = relative(base / "JPEGImages", root)
    parts = []
    for split in splits:
        # Without a validation part of its own, training takes both halves, as papers do.
        published = "trainval" if split == "train" and "val" not in splits else split
        path = base / "ImageSets" / "Main" / f"{published}.txt"
        names = read_list(path, f"{_AGAIN}, or leave the part out with the option splits")
        cells = reader(base, published, names, unclear)
        parts.append((split, [within(folder, f"{name}.jpg") for name in names], cells))
    return joined(root, CLASSES, parts)


def _from_xml(base: Path, published: str, names: Sequence[str], unclear: int) -> Cells:
    """Read ``Annotations/<image>.xml``: the classes of all objects, those marked difficult apart."""
    folder = base / "Annotations"
    if not folder.is_dir():
        raise TableError(f"{folder} is missing: {_AGAIN}, or pass the option labels: txt.")
    columns = NameIndex(CLASSES)
    cells = np.full((len(names), len(CLASSES)), ABSENT, dtype=np.int8)
    for row, name in enumerate(names):
        path = folder / f"{name}.xml"
        for class_name, difficult in _objects(path, f"image {name!r}, row {row + 1} of {published}.txt"):
            at = columns.position(class_name)
            if at < 0:
                raise TableError(
                    f"{path}: there is no VOC class {class_name!r}{nearest(class_name, CLASSES)}: correct the file."
                )
            cells[row, at] = max(cells[row, at], unclear) if difficult else PRESENT
    return cells


def _objects(path: Path, what: str) -> list[tuple[str, bool]]:
    """Return (class, whether it is marked difficult) of every object in an annotation file."""
    require_file(path, f"{_AGAIN} ({what})")
    try:
        document = parse_xml(path)
    except ValueError as error:
        raise TableError(
            f"{path} is broken or was copied only in part ({error}, {what}): {_AGAIN}."
        ) from None
    except OSError as error:
        raise TableError(f"{path} cannot be read ({error}): {_AGAIN}.") from None
    if document.tag != "annotation":
        # A web page is XML as well, and without objects it would read as an image that shows nothing.
        raise TableError(f"{path} holds <{document.tag}>, not <annotation> ({what}): {_AGAIN}.")
    found = []
    for number, entry in enumerate(document.findall("object"), start=1):
        name = (entry.findtext("name") or "").strip().lower()
        if not name:
            raise TableError(f"{path}: object {number} has no name: {_AGAIN}.")
        difficult = (entry.findtext("difficult") or "").strip() or "0"
        if difficult not in ("0", "1"):
            raise TableError(
                f"{path}: object {number} has {difficult!r} as 'difficult', not 0 or 1: correct it."
            )
        found.append((name, difficult == "1"))
    return found


def _from_lists(base: Path, published: str, names: Sequence[str], unclear: int) -> Cells:
    """Read ``ImageSets/Main/<class>_<split>.txt``: 1 present, -1 absent, 0 only difficult."""
    state = {"1": PRESENT, "-1": ABSENT, "0": unclear}
    rows = NameIndex(names)
    cells = np.full((len(names), len(CLASSES)), 2, dtype=np.int8)
    for at, class_name in enumerate(CLASSES):
        path = base / "ImageSets" / "Main" / f"{class_name}_{published}.txt"
        require_file(path, f"{_AGAIN}, or pass the option labels: xml")
        for line, text in read_lines(path):
            words = text.split()
            if len(words) != 2 or words[1] not in state:
                raise TableError(f"{path}: line {line} ({text!r}) is not '<image> 1', '-1' or '0': {_AGAIN}.")
            row = rows.position(words[0])
            if row < 0:
                raise TableError(
                    f"{path}: line {line} names image {words[0]!r}, which {published}.txt lacks: {_AGAIN}."
                )
            if cells[row, at] != 2:
                raise TableError(
                    f"{path}: line {line} names image {words[0]!r} a second time: remove one of the two lines."
                )
            cells[row, at] = state[words[1]]
        missing = np.flatnonzero(cells[:, at] == 2)
        if len(missing):
            raise TableError(
                f"{path} lacks {len(missing):,} of the {len(names):,} images of {published}.txt, such as "
                f"{names[int(missing[0])]!r}: {_AGAIN}."
            )
    return cells


for _year in (2007, 2012):
    _default = ("train", "test") if _year == 2007 else ("train", "val")
    register_dataset(
        Dataset(
            f"voc{_year}",
            f"PASCAL VOC {_year}: 20 classes.",
            ("ImageSets/Main/", "Annotations/", "JPEGImages/"),
            partial(read_voc, year=_year),
            (
                splits_option(
                    ("train", "val", "test"),
                    _default,
                    "Parts to read; `train` is trainval.txt, or train.txt where `val` is read as well.",
                ),
                Option(
                    "difficult",
                    "choice",
                    "negative",
                    "A class that an image shows only in objects marked difficult: absent, or unknown (`ignore`).",
                    ("negative", "ignore"),
                ),
                Option(
                    "labels",
                    "choice",
                    "xml",
                    "Take labels from Annotations/*.xml, or from ImageSets/Main/<class>_<split>.txt.",
                    ("xml", "txt"),
                ),
            ),
        )
    )

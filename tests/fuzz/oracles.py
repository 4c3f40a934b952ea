"""What must hold of an input that was accepted: what was read, written and read again is the same."""

from __future__ import annotations

import warnings
from pathlib import Path
from random import Random

import numpy as np

from satl.errors import SatlError
from satl.files import file_ending
from satl.labels import LabelTable, open_table, write_table
from satl.labels.io import FORMATS, TableFile, truth_path, write_alike

ENDINGS = {
    "csv": ".csv",
    "long": ".csv",
    "positives": ".csv",
    "parquet": ".parquet",
    "jsonl": ".jsonl",
    "npz": ".npz",
    "coco": ".json",
    "lvis": ".json",
    "feather": ".feather",
    "excel": ".xlsx",
}
"""The extension of a file for every format that is written."""


class Inconsistent(AssertionError):
    """An input was accepted and something about it is not the same the second time."""


def same_table(one: LabelTable, other: LabelTable, what: str) -> None:
    """Raise where two tables differ in anything but their hidden truth; a list of positives sorts its classes."""
    if what.startswith("positives") and set(one.classes) == set(other.classes):
        order = [other.classes.index(name) for name in one.classes]
        other = LabelTable(other.images, one.classes, other.cells[:, order], other.split, encoding="signed")
    if one.images != other.images:
        raise Inconsistent(f"{what}: other images, {one.images[:4]!r} and {other.images[:4]!r}")
    if one.classes != other.classes:
        raise Inconsistent(f"{what}: other classes, {one.classes[:4]!r} and {other.classes[:4]!r}")
    if not np.array_equal(one.cells, other.cells):
        raise Inconsistent(f"{what}: other cells")
    if (one.split is None) != (other.split is None) or (
        one.split is not None and one.split.tolist() != other.split.tolist()
    ):
        raise Inconsistent(f"{what}: another split")


def check_table(opened: TableFile, folder: Path, thorough: bool) -> None:
    """Write an accepted table in its own format, and if ``thorough`` in one that holds everything, and read both.

    A format may refuse to write what it cannot say, with satl's own error; what it writes must read back.
    """
    own = FORMATS[opened.format]
    if own.write is not None:
        file = folder / f"again{file_ending(opened.path)}"
        silent = file_ending(file) in (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".xlsx")
        encoding = opened.encoding if silent and own.encoded else None
        try:
            write_quietly(lambda: write_alike(opened, opened.table, file))
        except SatlError:
            pass
        else:
            same_table(opened.table, open_table(file, encoding).table, f"{opened.format}, written again")
            truth_path(file).unlink(missing_ok=True)
    if thorough:
        file = folder / "again.npz"
        write_quietly(lambda: write_table(opened.table, file))
        same_table(opened.table, open_table(file).table, "npz, written again")


def write_quietly(write: object) -> None:
    """Call a function without its warnings, of names that are formulas."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write()  # type: ignore[operator]


NAME_PARTS = (
    *(
        "a",
        "b",
        "cat",
        "dog",
        "traffic light",
        "é",
        "猫",
        "0012",
        "1",
        "-1",
        "0",
        "nan",
        "null",
        "true",
        "present",
    ),
    *(
        ",",
        '"',
        "'",
        ";",
        "|",
        "\\",
        "/",
        "&",
        "<",
        "]]>",
        "=",
        "+",
        "@",
        "#",
        "%",
        ":",
        "-",
        "_",
        ".",
        "..",
        "*",
    ),
    *(
        "\u2028",
        "\u00a0",
        "\u200b",
        "\ufeff",
        "\ufffd",
        "image",
        "split",
        "label",
        "value",
        "labels",
        "id",
        ".jpg",
    ),
    *("\U0001f600", "e\u0301", "\u202e", "{", "}", "[", "]", "(", "$", "~", "`", "?", "!", "not ", "maybe "),
)


def random_table(random: Random) -> LabelTable:
    """Return a table of up to 6 images and 5 classes with any names that a table may hold.

    Raises:
        SatlError: the names are no names of a table.
    """

    def names(most: int) -> tuple[str, ...]:
        wanted = random.randint(1, most)
        made = (
            "".join(random.choices(NAME_PARTS, k=random.randint(1, 3))).strip() for _ in range(3 * wanted)
        )
        return tuple(dict.fromkeys(name for name in made if name))[:wanted] or ("only",)

    images, classes = names(6), names(5)
    values = random.choice(((-1, 0, 1), (0, 1), (-1, 1), (0,), (1,)))
    cells = np.array([[random.choice(values) for _ in classes] for _ in images], dtype=np.int8)
    split = (
        np.array([random.choice(("train", "val", "Test", "a,b", "é")) for _ in images])
        if random.random() < 0.4
        else None
    )
    return LabelTable(images, classes, cells, split)


def check_every_format(table: LabelTable, folder: Path) -> bool:
    """Write a table in every format and read it back; return whether every one of them could say it."""
    everywhere = True
    for name, format in FORMATS.items():
        if format.write is None:
            continue
        for ending in {
            ENDINGS[name],
            *(format.extensions if name in ("csv", "long", "positives", "jsonl") else ()),
        }:
            file = folder / f"table{ending}"
            try:
                write_quietly(lambda file=file, name=name: write_table(table, file, format=name))
            except SatlError:
                everywhere = False
                continue
            same_table(table, open_table(file).table, f"{name} {ending}")
    return everywhere

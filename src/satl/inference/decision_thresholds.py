"""One threshold per class for decisions on probabilities: one number for all, or a file that satl wrote.

``satl thresholds -o`` writes ``class,rule,threshold,...`` and accepts what lies *above* a threshold; ``satl complete``
writes ``class,direction,threshold,...,precision_lower_bound,...`` and accepts what is *at least* the threshold, of
which a class may have none. A file of one's own needs only ``class,threshold``: at least, and none where it is blank.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from satl.errors import TableError, nearest

NEVER = 2.0
"""Stored for a class without a threshold: no probability is as large."""
_AGAIN = (
    "give the file that `satl thresholds -o` or `satl complete` wrote for this run, or write class,threshold"
)


@dataclass(frozen=True, eq=False)
class DecisionThresholds:
    """Class c is present where its probability, in float32, is at least ``values[c]``.

    Attributes
    ----------
    values: float32 (C,), larger than 1 where a class is never present.
    source: where they come from, in words.
    """

    values: npt.NDArray[np.float32]
    source: str

    @property
    def never(self) -> npt.NDArray[np.bool_]:
        """(C,) classes that are never present."""
        return self.values > 1


def same_threshold(threshold: float, num_classes: int) -> DecisionThresholds:
    """Return one threshold for all classes.

    >>> same_threshold(0.5, 2).values.tolist()
    [0.5, 0.5]
    """
    values = np.full(num_classes, at_least(threshold), dtype=np.float32)
    return DecisionThresholds(values, f"{threshold:g} for every class")


def at_least(threshold: float) -> np.float32:
    """Return the smallest float32 that is not below ``threshold``, by which float32 numbers decide as by itself.

    >>> float(at_least(0.5)), float(at_least(0.7)) >= 0.7 > float(np.float32(0.7))
    (0.5, True)
    """
    value = np.float32(threshold)
    return np.nextafter(value, np.float32(np.inf)) if float(value) < threshold else value


def above(threshold: float) -> np.float32:
    """Return the smallest float32 that is above ``threshold``, read as the float32 that it was written from.

    >>> float(above(0.5)), bool(above(1.0) > 1)
    (0.5000000596046448, True)
    """
    return np.nextafter(np.float32(threshold), np.float32(np.inf))


def read_thresholds(path: str | Path, classes: Sequence[str]) -> DecisionThresholds:
    """Read one threshold for each of ``classes``.

    Raises:
        TableError: the file cannot be read, is of another kind, or lacks a class, has one twice or one too many.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "mine.csv"
    >>> _ = file.write_text("class,threshold\\ndog,\\ncat,0.25\\n")
    >>> read_thresholds(file, ("cat", "dog")).values.tolist()
    [0.25, 2.0]
    """
    path = Path(path)
    rows = _rows(path)
    take, store = _kind(path, rows[0][1] if rows else {})
    known = frozenset(classes)  # of which there may be thousands
    found: dict[str, np.float32] = {}
    for row, cells in rows:
        name = cells["class"]
        if not take(cells):
            continue
        if name not in known:
            hint = nearest(name, classes) or f"; the run's classes are {_some(classes)}"
            raise TableError(
                f"{path}: row {row} is about class {name!r}, which the run does not have{hint}: {_AGAIN}."
            )
        if name in found:
            raise TableError(f"{path}: row {row} names class {name!r} a second time: remove one of its rows.")
        found[name] = store(_number(path, row, cells), cells)
    missing = [name for name in classes if name not in found]
    if missing:
        raise TableError(
            f"{path} has no threshold for {len(missing)} of the run's {len(classes)} classes ({_some(missing)}), "
            f"after {len(rows)} rows: add a row for each, with a blank threshold where it is never to be present."
        )
    return DecisionThresholds(np.array([found[name] for name in classes], dtype=np.float32), path.name)


_Cells = Mapping[str, str]
_Store = Callable[[float | None, _Cells], np.float32]


def _kind(path: Path, cells: _Cells) -> tuple[Callable[[_Cells], bool], _Store]:
    """Say which rows of a file count and what is stored for them, by its columns."""
    if "generator" in cells:
        raise TableError(
            f"{path} holds the thresholds of pseudo-labels, one per class and generator, by which a run was trained; "
            f"they do not say from which probability on a class is present: {_AGAIN}."
        )
    if "direction" in cells:
        # A threshold that was withheld stands in the file as well, but nothing is promised for it.
        return (
            lambda cells: cells["direction"] == "present",
            lambda value, cells: (
                np.float32(NEVER)
                if value is None or not cells.get("precision_lower_bound")
                else at_least(value)
            ),
        )
    bound = above if "rule" in cells else at_least
    return (lambda _: True), lambda value, _: np.float32(NEVER) if value is None else bound(value)


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Return the rows of a CSV file with their numbers, the first below the header being 1."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = list(csv.reader(file, strict=True))
    except OSError as error:
        raise TableError(f"{path} cannot be read ({error.strerror or error}): {_AGAIN}.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise TableError(f"{path} cannot be read as CSV in UTF-8 ({error}): {_AGAIN}.") from None
    header = [name.strip() for name in lines[0]] if lines else []
    for column in ("class", "threshold"):
        if header.count(column) != 1:
            raise TableError(f"{path}: its first row names no column {column!r}, or several: {_AGAIN}.")
    rows = []
    for row, line in enumerate(lines[1:], start=1):
        if not line:
            continue
        if len(line) != len(header):
            raise TableError(
                f"{path}: row {row} has {len(line)} cells and the header {len(header)}: mend the row, or put names "
                "with commas in quotes."
            )
        rows.append((row, dict(zip(header, line, strict=True))))
    return rows


def _number(path: Path, row: int, cells: _Cells) -> float | None:
    text = cells["threshold"].strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise TableError(
            f"{path}: row {row} (class {cells['class']!r}) has the threshold {text!r}, and probabilities lie between "
            "0 and 1: choose thresholds on the probabilities of this run, or leave the cell blank."
        )
    return value


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:3]))
    return shown + (f" and {len(names) - 3} more" if len(names) > 3 else "")

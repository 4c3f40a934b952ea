"""Files of thresholds, one per class: the only place that knows their kinds, by the columns that they have.

* ``class,threshold``: written by hand; a class is present from the threshold on, never where it is blank.
* ``class,rule,threshold,...``: what a threshold rule chose; a class is present *above* the threshold.
* ``class,direction,threshold,...``: what a completion certified; a class is present from its threshold for *present*
  on, never where there is none.
* ``class,generator,...``: the thresholds of pseudo-labels of a run, which decide nothing afterwards; refused.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from satl.checks.formulas import warn_of_formulas
from satl.errors import Sentence, TableError, Task, first_of, nearest
from satl.files import atomic_path
from satl.inference.decision_thresholds import NEVER, DecisionThresholds, above, at_least

if TYPE_CHECKING:
    from satl.thresholds.application import ClassThreshold

CERTIFIED_COLUMNS = (
    *("class", "direction", "threshold", "target", "confidence", "precision_lower_bound"),
    *("held_out", "errors", "accepted", "reason", "more_labels"),
)
"""Columns of the thresholds of a completion, two rows for each class."""

_RIGHT_FILE = Sentence(
    "give the file that {thresholds} or {complete} wrote for this run, or write the columns class,threshold",
    thresholds=Task("thresholds"),
    complete=Task("complete"),
)


def write_rule_thresholds(path: Path, rule: str, rows: Iterable[ClassThreshold]) -> None:
    """Write what a rule chose as ``class,rule,threshold,...``; ratios that are not defined are blank."""
    listed = [row.as_dict() for row in rows]
    warn_of_formulas(path, (next(iter(row.values())) for row in listed))
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        for number, row in enumerate(listed):
            (_, name), *others = row.items()
            if number == 0:
                writer.writerow(("class", "rule", *(key for key, _ in others)))
            shown = (
                f"{value:.6f}" if isinstance(value, float) and key != "threshold" else value
                for key, value in others
            )
            writer.writerow((name, rule, *shown))


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
    takes, store = _kind(path, rows[0][1] if rows else {})
    known = frozenset(classes)  # of which there may be thousands
    found: dict[str, np.float32] = {}
    for row, fields in rows:
        name = fields["class"]
        if not takes(fields):
            continue
        if name not in known:
            hint = nearest(name, classes) or f"; the run's classes are {first_of([*map(repr, classes)])}"
            raise TableError(
                f"row {row} is about class {name!r}, which the run does not have{hint}",
                where=path,
                remedy=_RIGHT_FILE,
            )
        if name in found:
            raise TableError(
                f"row {row} names class {name!r} a second time", where=path, remedy="remove one of its rows"
            )
        found[name] = store(_number(path, row, fields), fields)
    missing = [name for name in classes if name not in found]
    if missing:
        raise TableError(
            f"{len(missing)} of the run's {len(classes)} classes have no threshold ({first_of([*map(repr, missing)])})",
            where=path,
            remedy="add a row for each, with a blank threshold where it is never to be present",
        )
    return DecisionThresholds(np.array([found[name] for name in classes], dtype=np.float32), path.name)


_Fields = Mapping[str, str]
_Store = Callable[[float | None, _Fields], np.float32]


def _kind(path: Path, fields: _Fields) -> tuple[Callable[[_Fields], bool], _Store]:
    """Return which rows of a file count, and what is stored for one, by the columns of the file."""
    if "generator" in fields:
        raise TableError(
            "these are the thresholds of pseudo-labels, one per class and generator, by which a run was trained, not "
            "the probabilities from which on a class is present",
            where=path,
            remedy=_RIGHT_FILE,
        )
    if "direction" in fields:
        # The file also lists thresholds that were withheld, for which nothing is promised.
        return (
            lambda fields: fields["direction"] == "present",
            lambda value, fields: (
                np.float32(NEVER)
                if value is None or not fields.get("precision_lower_bound")
                else at_least(value)
            ),
        )
    bound = above if "rule" in fields else at_least
    return (lambda _: True), lambda value, _: np.float32(NEVER) if value is None else bound(value)


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Return the rows of a CSV file with their numbers, the first below the header being 1."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = list(csv.reader(file, strict=True))
    except OSError as error:
        raise TableError(
            f"cannot be read ({error.strerror or error})", where=path, remedy=_RIGHT_FILE
        ) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise TableError(
            f"cannot be read as CSV in UTF-8 ({error})", where=path, remedy=_RIGHT_FILE
        ) from None
    header = [name.strip() for name in lines[0]] if lines else []
    for column in ("class", "threshold"):
        if header.count(column) != 1:
            raise TableError(
                f"its first row names no column {column!r}, or several", where=path, remedy=_RIGHT_FILE
            )
    rows = []
    for row, line in enumerate(lines[1:], start=1):
        if not line:
            continue
        if len(line) != len(header):
            raise TableError(
                f"row {row} has {len(line)} columns, but the header has {len(header)}",
                where=path,
                remedy="fix the row, or put names with commas in quotes",
            )
        rows.append((row, dict(zip(header, line, strict=True))))
    return rows


def _number(path: Path, row: int, fields: _Fields) -> float | None:
    text = fields["threshold"].strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise TableError(
            f"row {row} (class {fields['class']!r}) has the threshold {text!r}, which is not a probability",
            where=path,
            remedy="choose thresholds between 0 and 1 on the probabilities of this run, or leave it blank",
        )
    return value

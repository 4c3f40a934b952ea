"""The files of a plan and of an audit: cells to label by hand, and the answers read back."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from satl.checks.formulas import warn_of_formulas
from satl.completion.statistics.audit import AuditSample, draw_audit
from satl.completion.statistics.label_plan import LabelPlan
from satl.errors import Sentence, TableError, Task, nearest
from satl.evaluation.confidence_bounds import FloatArray, IntArray
from satl.files import atomic_path
from satl.labels import LabelTable
from satl.labels.io.wide import other_separator

PLAN_COLUMNS = ("image", "label", "value", "score", "aim", "zone")
AUDIT_COLUMNS = ("image", "label", "value", "draw")
CANNOT_TELL = "?"
_DRAW = Task("audit", "OUT", "draw")
_AIMS = {"present": 1, "absent": -1}
_WORDS = {
    **dict.fromkeys(("present", "yes", "y", "1", "1.0", "+1"), 1),
    **dict.fromkeys(("absent", "no", "n", "-1", "-1.0"), -1),
    **dict.fromkeys((CANNOT_TELL, "unknown", "cannot tell"), 0),
}
_STAGES = (
    "no tested cell has this value",
    "too few labels",
    "the precision is not shown yet",
    "a looser threshold",
)


@dataclass(frozen=True)
class PlanAnswers:
    """Answered cells of a plan; without those left open and those that nobody could tell.

    Attributes:
        row, column: (K,) where they are.
        score: (K,) by which they were picked.
        value: (K,) int8, +1 present, -1 absent.
        aim: (K,) int8, the direction that the cell was picked for.
        zones: the loosest thresholds that the cells can speak for, present and absent, (C,) each.
    """

    row: IntArray
    column: IntArray
    score: FloatArray
    value: npt.NDArray[np.int8]
    aim: npt.NDArray[np.int8]
    zones: tuple[FloatArray, FloatArray]


def write_plan(plan: LabelPlan, table: LabelTable, path: str | Path) -> None:
    """Write the cells of a plan, in their order, with an empty column ``value`` to fill in."""
    words = {value: word for word, value in _AIMS.items()}
    rows = (
        (
            table.images[row],
            table.classes[column],
            "",
            f"{score:.6f}",
            words[int(plan.value_of_aim[aim])],
            repr(float(plan.zone[aim])),
        )
        for row, column, score, aim in zip(
            plan.row.tolist(), plan.column.tolist(), plan.score.tolist(), plan.aim.tolist(), strict=True
        )
    )
    _write(path, PLAN_COLUMNS, rows)


def describe_plan(plan: LabelPlan, classes: Sequence[str]) -> list[tuple[str, str, str, int, int, int]]:
    """Return one line per aim: class, direction, why, labels needed, labels in the plan, cells gained."""
    return [
        (
            classes[int(plan.column_of_aim[i])],
            "present" if plan.value_of_aim[i] > 0 else "absent",
            _STAGES[int(plan.stage[i])],
            int(plan.labels[i]),
            int(plan.drawn[i]),
            int(plan.gain[i]),
        )
        for i in range(len(plan.zone))
    ]


def read_answers(path: str | Path, table: LabelTable) -> PlanAnswers:
    """Read a plan back; cells without an answer, or with ``?``, are left out."""
    found: list[tuple[int, int, int, int]] = []
    scores: list[float] = []
    zones = np.full((2, table.num_classes), np.nan)
    for number, fields, row, column, answer in _rows(path, PLAN_COLUMNS, table):
        aim = _AIMS.get(fields["aim"])
        try:
            zone, score = float(fields["zone"]), float(fields["score"])
        except ValueError:
            zone = score = np.nan
        if aim is None or np.isnan(zone) or np.isnan(score):
            raise TableError(
                f"{path}: row {number} has lost its aim, zone or score: fill in only the column 'value' of a plan."
            )
        zones[0 if aim > 0 else 1, column] = zone
        if answer:
            found.append((row, column, answer, aim))
            scores.append(score)
    rows, columns, values, aims = np.array(found, dtype=np.int64).reshape(-1, 4).T
    return PlanAnswers(
        rows,
        columns,
        np.array(scores, dtype=np.float64),
        values.astype(np.int8),
        aims.astype(np.int8),
        (zones[0], zones[1]),
    )


def write_audit(sample: AuditSample, table: LabelTable, path: str | Path, *, size: int, seed: int) -> None:
    """Write the cells of an audit with an empty column ``value``; neither score nor band, which would bias a person."""
    draw = f"{sample.by}/{size}/{seed}"
    rows = (
        (table.images[row], table.classes[column], "", draw)
        for row, column in zip(sample.row.tolist(), sample.column.tolist(), strict=True)
    )
    _write(path, AUDIT_COLUMNS, rows)


def read_audit(
    path: str | Path, table: LabelTable, bands: npt.NDArray[np.int8]
) -> tuple[AuditSample, npt.NDArray[np.int8], int]:
    """Read an audit back: the sample, an answer per cell, and how many cells have none.

    The sample is drawn again as the file says and must be the same: a cell that was added or taken out would
    spoil the estimate. A cell without an answer counts as "cannot tell".
    """
    said: dict[tuple[int, int], int] = {}
    draws: set[str] = set()
    for _, fields, row, column, answer in _rows(path, AUDIT_COLUMNS, table):
        said[row, column] = 2 if answer is None else answer
        draws.add(fields["draw"])
    try:
        (draw,) = draws
        by, size, seed = draw.split("/")
        sample = draw_audit(bands, int(size), by, int(seed))  # type: ignore[arg-type]
    except ValueError:
        raise TableError(
            "does not say how it was drawn",
            where=path,
            remedy=Sentence("fill in only the column 'value' of the file that {audit} wrote", audit=_DRAW),
        ) from None
    cells = list(zip(sample.row.tolist(), sample.column.tolist(), strict=True))
    if set(cells) != set(said):
        missing = len(set(cells) - set(said))
        what = f"lacks {missing:,} of the cells drawn" if missing else "holds cells that were not drawn"
        raise TableError(
            f"{what} from this completion",
            where=path,
            remedy=Sentence("restore them, or draw again with {audit}", audit=_DRAW),
        )
    answers = np.array([said[cell] for cell in cells], dtype=np.int8)
    open_cells = int(np.count_nonzero(answers == 2))
    if open_cells == len(answers):
        raise TableError(f"{path} has no answer yet: write present, absent or ? into its column 'value'.")
    return sample, np.where(answers == 2, 0, answers).astype(np.int8), open_cells


def _write(path: str | Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    target = Path(path)
    if target.suffix.lower() != ".csv":
        raise TableError(f"{target}: cells to label are written as CSV: end the name in .csv.")
    if target.exists() and not _is_unanswered(target):
        raise TableError(
            f"{target} exists already and may hold a person's answers: choose another name, or remove it first."
        )
    lines = list(rows)
    warn_of_formulas(target, *([line[header.index(name)] for line in lines] for name in ("image", "label")))
    try:
        with atomic_path(target) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(lines)
    except OSError as error:
        raise TableError(f"{target} cannot be written ({error.strerror}): choose another place.") from None


def _is_unanswered(file: Path) -> bool:
    """Whether a file is one of ours and nobody has written into it, so that nothing is lost with it."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            lines = csv.DictReader(stream, strict=True)
            if tuple(lines.fieldnames or ()) not in (PLAN_COLUMNS, AUDIT_COLUMNS):
                return False
            return not any((fields["value"] or "").strip() for fields in lines)
    except (OSError, UnicodeDecodeError, csv.Error):
        return False


def _rows(
    path: str | Path, columns: Sequence[str], table: LabelTable
) -> Iterator[tuple[int, dict[str, str], int, int, int | None]]:
    """Yield number, fields, row, column and answer (None where there is none) of every line; each has its own cell."""
    seen: set[tuple[int, int]] = set()
    file = Path(path)
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            lines = csv.DictReader(stream, strict=True)
            for name in columns:
                if name not in (lines.fieldnames or ()):
                    mark = other_separator(lines.fieldnames or ("",))
                    remedy = (
                        f"separate its columns with commas, not {mark!r}"
                        if mark
                        else "give the file that satl wrote"
                    )
                    raise TableError(f"{file} has no column {name!r}: {remedy}.")
            for number, fields in enumerate(lines, start=1):
                if any(fields.get(name) is None for name in columns):
                    raise TableError(f"{file}: row {number} has too few columns: restore it.")
                row = table.index.images.position(fields["image"])
                column = table.index.classes.position(fields["label"])
                if row < 0 or column < 0:
                    what = f"image {fields['image']!r}" if row < 0 else f"class {fields['label']!r}"
                    raise TableError(
                        f"{file}: row {number}: the table has no {what}: give the file of this table."
                    )
                if (row, column) in seen:
                    raise TableError(f"{file}: row {number} repeats a cell: remove it.")
                seen.add((row, column))
                yield number, fields, row, column, _answer(fields, number, file)
    except (csv.Error, UnicodeDecodeError) as error:
        raise TableError(f"{file} cannot be read as CSV ({error}): save it as UTF-8 CSV.") from None
    except OSError as error:
        raise TableError(f"{file} cannot be read ({error.strerror}): check the path.") from None


def _answer(fields: dict[str, str], number: int, file: Path) -> int | None:
    text = fields["value"].strip().lower()
    if not text:
        return None
    if text not in _WORDS:
        # A 0 is refused on purpose: it means absent to some and unknown to others.
        raise TableError(
            f"row {number} (image {fields['image']!r}, class {fields['label']!r}): {fields['value']!r} is not an "
            f"answer{nearest(text, ('present', 'absent'))}",
            where=file,
            remedy="write present, absent, or ? if nobody can tell",
        )
    return _WORDS[text]

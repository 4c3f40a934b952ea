"""Bring the decisions of a review back into a label table, in the table's own shape and encoding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from satl.errors import RunError, TableError, in_shell
from satl.labels import ABSENT, PRESENT, UNKNOWN, LabelTable, TableFile, open_table
from satl.labels.io import check_new_files, find_format, same_format, table_files, write_alike
from satl.labels.table import Cells
from satl.review.database import ReviewStore
from satl.review.folder import CHANGES, REVIEW, read_changes, require_completed

_WORDS = {PRESENT: "present", ABSENT: "absent"}
Cell = tuple[str, str, int]
"""Image, class and +1 or -1."""


@dataclass(frozen=True)
class MergeReport:
    """What a merge did, counted in cells.

    present, absent: decisions of a person written into cells that were unknown.
    confirmed: decisions that say what the table says already.
    overwritten: decisions that changed a known cell.
    skipped: looked at and left open; they write nothing.
    elsewhere: decisions about images or classes that the table does not have, and the first of them.
    included: cells accepted by the certificate and written, because that was asked for.
    known: known cells of the new table, of ``cells`` in all.
    """

    files: tuple[Path, ...]
    present: int
    absent: int
    confirmed: int
    overwritten: int
    skipped: int
    elsewhere: int
    first_elsewhere: tuple[str, str] | None
    included: int
    known: int
    cells: int
    encoding: str | None


def merge_review(
    out: str | Path,
    table: str | Path,
    new: str | Path,
    *,
    encoding: str | None = None,
    ignore_columns: Sequence[str] = (),
    include_accepted: bool = False,
    replace_known: bool = False,
    force: bool = False,
) -> MergeReport:
    """Write ``table`` with the decisions of the review in ``out`` to ``new``.

    encoding: of ``table``, where its values can be read in several ways.
    ignore_columns: columns of ``table`` that are no classes; the new table is without them.
    include_accepted: also write the cells that ``satl complete`` accepted and no person looked at; they never
        overwrite a known cell.
    replace_known: let a decision overwrite a known cell that says the opposite.
    force: overwrite ``new``, and the file of its truth beside it.

    Raises:
        TableError: a decision contradicts a known cell and ``replace_known`` is not given, no decision is about a
            cell of the table, or ``new`` exists.
        RunError: ``out`` is no completed folder, or nobody has reviewed it.
    """
    folder, target = require_completed(out), Path(new)
    source = open_table(table, encoding, ignore_columns=ignore_columns)
    kind = find_format(target, writing=True, name=same_format(source, target))
    written = table_files(target, kind, source.table.truth is not None)
    check_new_files(written, force=force, inputs=(source.path,))
    decided, skipped = _decisions(folder, required=not include_accepted)
    cells = np.array(source.table.cells)
    person = _Cells(source.table, decided)
    person.require_some(source.path, folder)
    before = cells[person.rows, person.columns]
    clash = (before != UNKNOWN) & (before != person.values)
    if clash.any() and not replace_known:
        raise TableError(_clash(source, person, before, clash))
    cells[person.rows, person.columns] = person.values
    included = 0
    if include_accepted:
        looked_at = {(image, label) for image, label, _ in (*decided, *skipped)}
        accepted = _Cells(source.table, _accepted(folder, looked_at))
        free = source.table.cells[accepted.rows, accepted.columns] == UNKNOWN
        cells[accepted.rows[free], accepted.columns[free]] = accepted.values[free]
        included = int(free.sum())
    merged = source.table.with_cells(cells)
    return MergeReport(
        files=write_alike(source, merged, target),
        present=int(((before == UNKNOWN) & (person.values == PRESENT)).sum()),
        absent=int(((before == UNKNOWN) & (person.values == ABSENT)).sum()),
        confirmed=int((before == person.values).sum()),
        overwritten=int(clash.sum()),
        skipped=len(skipped),
        elsewhere=person.elsewhere,
        first_elsewhere=person.first_elsewhere,
        included=included,
        known=int(merged.known.sum()),
        cells=merged.cells.size,
        encoding=source.encoding,
    )


def confirmed_cells(folders: Sequence[Path], table: LabelTable) -> npt.NDArray[np.bool_]:
    """Return the cells of a table that a person decided in earlier reviews as the table says, (N, C).

    Args:
        folders: completed folders that were reviewed.
        table: into which the reviews were merged.

    Raises:
        TableError: none of the decisions of a folder is about a cell of the table.
        RunError: a folder is no completed one, or nobody has reviewed it.
    """
    found = np.zeros(table.cells.shape, dtype=np.bool_)
    for place in folders:
        folder = require_completed(place)
        decided, _ = _decisions(folder, required=False)
        if not decided:
            raise RunError(
                f"{folder} holds no decision of a person: leave out --reviewed {in_shell(folder)}."
            )
        person = _Cells(table, decided)
        person.require_some("the table", folder)
        found[person.rows, person.columns] |= table.cells[person.rows, person.columns] == person.values
    return found


class _Cells:
    """Cells named by image and class as positions in a table: rows, columns and values, each (K,)."""

    def __init__(self, table: LabelTable, named: Iterable[Cell]) -> None:
        row_of = {name: i for i, name in enumerate(table.images)}
        column_of = {name: i for i, name in enumerate(table.classes)}
        rows: list[int] = []
        columns: list[int] = []
        values: list[int] = []
        self.elsewhere = 0
        self.first_elsewhere: tuple[str, str] | None = None
        for image, label, value in named:
            row, column = row_of.get(image), column_of.get(label)
            if row is None or column is None:
                self.elsewhere += 1
                self.first_elsewhere = self.first_elsewhere or (image, label)
                continue
            rows.append(row)
            columns.append(column)
            values.append(value)
        self.rows = np.array(rows, dtype=np.int64)
        self.columns = np.array(columns, dtype=np.int64)
        self.values: Cells = np.array(values, dtype=np.int8)

    def require_some(self, path: Path | str, folder: Path) -> None:
        """Refuse a table that none of the decisions is about: it is certainly the wrong one."""
        if self.first_elsewhere is not None and not len(self.rows):
            image, label = self.first_elsewhere
            raise TableError(
                f"{path} has none of the reviewed cells (such as image {image!r}, class {label!r}): "
                f"name the table that {folder} was completed from."
            )


def _decisions(folder: Path, required: bool) -> tuple[list[Cell], list[Cell]]:
    """Return the decided and the skipped cells."""
    standing = []
    if (folder / REVIEW).is_file():
        with ReviewStore(folder) as store:
            standing = [(cell.image, cell.label, cell.value or 0) for cell in store.decisions()]
    decided = [cell for cell in standing if cell[2]]
    if required and not decided:
        raise RunError(
            f"{folder} holds no decision of a person yet: run `satl review {in_shell(folder)}` first, "
            "or pass --include accepted to write the accepted cells only."
        )
    return decided, [cell for cell in standing if not cell[2]]


def _accepted(folder: Path, looked_at: set[tuple[str, str]]) -> Iterable[Cell]:
    from satl.completion.files.completed_folder import CompletionFolder

    CompletionFolder(folder).require_all_listed()
    for change in read_changes(folder / CHANGES):
        if change.band == "accepted" and (change.image, change.label) not in looked_at:
            yield change.image, change.label, change.value


def _clash(source: TableFile, person: _Cells, before: Cells, clash: Cells) -> str:
    first = int(np.argmax(clash))
    row, column = int(person.rows[first]), int(person.columns[first])
    more = int(clash.sum()) - 1
    others = f" (and {more:,} more cell{'s' * (more != 1)})" if more else ""
    return (
        f"{source.path}: image {source.table.images[row]!r} (row {row + 1}), class "
        f"{source.table.classes[column]!r} is known to be {_WORDS[int(before[first])]}, but the review says "
        f"{_WORDS[int(person.values[first])]}{others}: pass --replace-known to overwrite what is known."
    )

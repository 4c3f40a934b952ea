"""Bring what a person decided in another tool back into a label table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from satl.errors import ConfigError, TableError, nearest
from satl.export.registry import Imported, find_tool
from satl.labels import ABSENT, PRESENT, UNKNOWN, LabelTable, open_table, write_table
from satl.labels.io import check_new_files, find_format, same_format, table_files, write_alike

UNTICKED = ("unknown", "absent")
_WORDS = {PRESENT: "present", ABSENT: "absent"}


@dataclass(frozen=True)
class ImportReport:
    """What an import did, counted in cells.

    Attributes
    ----------
    files: what was written.
    present, absent: decisions written into cells that were unknown.
    confirmed: decisions that say what the table said already.
    overwritten: decisions that changed a known cell.
    unticked: of ``absent``, those that rest on a box that was not ticked.
    suggestions: predictions in the file; they decide nothing.
    skipped: tasks that a person skipped.
    elsewhere: decisions about images or classes that the table does not have, and the first of them.
    known: known cells of the new table, of ``cells`` in all.
    """

    files: tuple[Path, ...]
    present: int
    absent: int
    confirmed: int
    overwritten: int
    unticked: int
    suggestions: int
    skipped: int
    elsewhere: int
    first_elsewhere: tuple[str, str] | None
    known: int
    cells: int


def read_export(path: str | Path, format: str, encoding: str | None = None) -> Imported:
    """Read a file of another tool, and what belongs to it beside it.

    encoding: of a wide or long table whose values can be read in several ways.
    """
    file = Path(path)
    tool = find_tool(format, file)
    if file.is_dir() or not file.exists():
        siblings = [other.name for other in file.parent.iterdir()] if file.parent.is_dir() else []
        what = "is a folder" if file.is_dir() else f"does not exist{nearest(file.name, siblings)}"
        raise TableError(f"{file} {what}: name the file that the tool exported.")
    try:
        return tool.read(file, encoding)
    except OSError as error:
        raise TableError(
            f"{file} cannot be read ({error.strerror or error}): check its permissions."
        ) from None


def import_file(
    path: str | Path,
    format: str,
    out: str | Path,
    *,
    onto: str | Path | None = None,
    encoding: str | None = None,
    ignore_columns: Sequence[str] = (),
    unticked: str = "unknown",
    replace_known: bool = False,
    force: bool = False,
) -> ImportReport:
    """Write the decisions in a file of another tool as a label table.

    Args:
        path, format: the file, and the name of its format in ``TOOLS``.
        out: table to write; its extension says how, and ``onto`` where both are alike.
        onto: table that the decisions are written into; images and classes are its own. Without it the table
            holds the images and classes of the file and nothing else is known.
        encoding: of ``onto`` (or, without it, of ``path``), where its values can be read in several ways.
        ignore_columns: columns of ``onto`` that are no classes; the new table is without them.
        unticked: what a class is that was ticked neither as present nor as absent in an image that a person looked
            at as a whole: ``unknown`` or ``absent``. Only Label Studio's export tells which images these are. A cell
            that is known already stays as it is.
        replace_known: let a decision overwrite a known cell of ``onto`` that says the opposite.
        force: overwrite ``out``, and the file of its truth beside it.

    Raises:
        TableError: a decision contradicts a known cell, the file and ``onto`` have no cell in common, ``out`` exists.
    """
    target = Path(out)
    if unticked not in UNTICKED:
        raise ConfigError(
            f"--unticked {unticked}: is neither unknown nor absent{nearest(unticked, UNTICKED)}."
        )
    inputs = (Path(path), None if onto is None else Path(onto))
    check_new_files((target,), force=force, inputs=inputs)
    imported = read_export(path, format, None if onto is not None else encoding)
    if unticked == "absent" and imported.looked_at is None:
        raise ConfigError(
            f"--unticked absent: format '{format}' does not say which images a person looked at as a whole: leave it "
            "out, and say absent in the tool itself."
        )
    source = None if onto is None else open_table(onto, encoding, ignore_columns=ignore_columns)
    table = source.table if source else imported.table.with_cells(np.zeros_like(imported.table.cells))
    kind = find_format(target, writing=True, name=None if source is None else same_format(source, target))
    check_new_files(table_files(target, kind, table.truth is not None), force=force, inputs=inputs)
    decided = _Decisions(imported, table, unticked == "absent")
    decided.require_some(Path(path), None if onto is None else Path(onto))
    before = table.cells[decided.rows, decided.columns]
    clash = (before != UNKNOWN) & (before != decided.values)
    if clash.any() and not replace_known:
        raise TableError(_clash(Path(path), table, decided, before, clash))
    cells = np.array(table.cells)
    cells[decided.rows, decided.columns] = decided.values
    merged = table.with_cells(cells)
    new = before == UNKNOWN
    return ImportReport(
        files=write_table(merged, target) if source is None else write_alike(source, merged, target),
        present=int((new & (decided.values == PRESENT)).sum()),
        absent=int((new & (decided.values == ABSENT)).sum()),
        confirmed=int((before == decided.values).sum()),
        overwritten=int(clash.sum()),
        unticked=int(decided.unticked.sum()),
        suggestions=len(imported.suggestions),
        skipped=imported.skipped,
        elsewhere=decided.elsewhere,
        first_elsewhere=decided.first_elsewhere,
        known=int(merged.known.sum()),
        cells=merged.cells.size,
    )


class _Decisions:
    """Decisions as positions in a table: rows, columns, values and whether a box was not ticked, each (K,)."""

    def __init__(self, imported: Imported, table: LabelTable, unticked: bool) -> None:
        theirs = imported.table
        row_of = table.index.images.find_distinct(theirs.images)
        columns = table.index.classes.find(theirs.classes)
        rows_in, columns_in = np.nonzero(theirs.cells)
        found = (row_of[rows_in] >= 0) & (columns[columns_in] >= 0)
        self.elsewhere = int((~found).sum())
        self.first_elsewhere: tuple[str, str] | None = None
        if self.elsewhere:
            at = int(np.argmin(found))
            self.first_elsewhere = theirs.images[rows_in[at]], theirs.classes[columns_in[at]]
        said: npt.NDArray[np.int8] = np.zeros(table.cells.shape, dtype=np.int8)
        said[row_of[rows_in[found]], columns[columns_in[found]]] = theirs.cells[
            rows_in[found], columns_in[found]
        ]
        silent = np.zeros(table.cells.shape, dtype=np.bool_)
        if unticked and imported.looked_at is not None:
            looked_at = row_of[np.flatnonzero(imported.looked_at)]
            silent[looked_at[looked_at >= 0]] = True
            # A box left alone is weak: it fills what is unknown, and contradicts nobody.
            silent &= (said == UNKNOWN) & (table.cells == UNKNOWN)
            said[silent] = ABSENT
        self.rows, self.columns = np.nonzero(said)
        self.values = said[self.rows, self.columns]
        self.unticked = silent[self.rows, self.columns]

    def require_some(self, path: Path, onto: Path | None) -> None:
        """Refuse a file that says nothing about the table: one of the two is certainly the wrong one."""
        if len(self.rows):
            return
        if self.first_elsewhere is not None:
            image, label = self.first_elsewhere
            raise TableError(
                f"{onto} has none of the cells decided in {path} (such as image {image!r}, class {label!r}): "
                "give --onto the table that was exported."
            )
        raise TableError(
            f"{path} holds no decision of a person: decide something in the tool, and export again."
        )


def _clash(
    path: Path,
    table: LabelTable,
    decided: _Decisions,
    before: npt.NDArray[np.int8],
    clash: npt.NDArray[np.bool_],
) -> str:
    first = int(np.argmax(clash))
    row, column = int(decided.rows[first]), int(decided.columns[first])
    more = int(clash.sum()) - 1
    others = f" (and {more:,} more cell{'s' * (more != 1)})" if more else ""
    return (
        f"{path}: image {table.images[row]!r} (row {row + 1} of the table), class {table.classes[column]!r} is known "
        f"to be {_WORDS[int(before[first])]}, but the file says {_WORDS[int(decided.values[first])]}{others}: pass "
        "--replace-known to overwrite what is known."
    )

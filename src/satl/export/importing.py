"""Read what a person decided in another tool into a label table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from satl.errors import Argument, ConfigError, Sentence, TableError, nearest
from satl.export.registry import Imported, find_tool
from satl.files import nearest_file
from satl.labels import ABSENT, UNKNOWN, LabelTable, open_table, write_table
from satl.labels.decisions import DecisionCounts, Decisions, apply_decisions
from satl.labels.io import check_alike, check_new_files, find_format, table_files, write_alike
from satl.labels.io.text_files import unreadable

UNTICKED = ("unknown", "absent")


@dataclass(frozen=True)
class ImportReport(DecisionCounts):
    """What an import did, counted in cells; the decisions as in :class:`DecisionCounts`.

    Attributes:
        files: what was written.
        unticked: of ``absent``, those that rest on a box that was not ticked.
        suggestions: predictions in the file; they decide nothing.
        skipped: tasks that a person skipped.
        known: known cells of the new table, of ``cells`` in all.
    """

    files: tuple[Path, ...]
    unticked: int
    suggestions: int
    skipped: int
    known: int
    cells: int


def read_export(path: str | Path, format: str, encoding: str | None = None) -> Imported:
    """Read a file of another tool, and what belongs to it beside it.

    Args:
        encoding: of a wide or long table whose values can be read in several ways.
    """
    file = Path(path)
    tool = find_tool(format, file)
    if file.is_dir() or not file.exists():
        what = "is a folder" if file.is_dir() else f"does not exist{nearest_file(file)}"
        raise TableError(f"{file} {what}: name the file that the tool exported.")
    try:
        return tool.read(file, encoding)
    except OSError as error:
        raise unreadable(file, error) from None


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
        ignore_columns: columns of ``onto`` that are not classes; the new table is without them.
        unticked: what a class is that was ticked neither as present nor as absent in an image that a person looked
            at as a whole: ``unknown`` or ``absent``. Only Label Studio's export tells which images these are. A cell
            that is known already stays as it is.
        replace_known: let a decision overwrite a known cell of ``onto`` that says the opposite.
        force: overwrite ``out``, and the file of its truth beside it.

    Raises:
        TableError: a decision contradicts a known cell, the file and ``onto`` have no cell in common, ``out`` exists.
    """
    target, file = Path(out), Path(path)
    if unticked not in UNTICKED:
        raise ConfigError(
            f"is neither unknown nor absent{nearest(unticked, UNTICKED)}",
            where=Argument("unticked", unticked),
            remedy="say one of them",
        )
    inputs = (file, None if onto is None else Path(onto))
    check_new_files((target,), force=force, inputs=inputs)
    imported = read_export(file, format, None if onto is not None else encoding)
    if unticked == "absent" and imported.looked_at is None:
        raise ConfigError(
            f"format '{format}' does not say which images a person looked at as a whole",
            where=Argument("unticked", unticked),
            remedy="leave it out, and say absent in the tool itself",
        )
    source = None if onto is None else open_table(onto, encoding, ignore_columns=ignore_columns)
    if source is None:
        table = imported.table.with_cells(np.zeros_like(imported.table.cells), "signed")
        kind = find_format(target, writing=True)
        check_new_files(table_files(target, kind, table.truth is not None), force=force, inputs=inputs)
    else:
        table = source.table
        check_alike(source, target, force=force, inputs=inputs)
    decided = Decisions.of_table(table, imported.table)
    merged, counts = apply_decisions(
        table, decided, conflicts="replace" if replace_known else "refuse", origin=file, where=onto
    )
    # A box that was not ticked is weak evidence: it fills unknown cells and never contradicts a known one.
    weak = _unticked(imported, merged) if unticked == "absent" else None
    if not weak:
        _require_some(decided, file, onto)
    else:
        merged, _ = apply_decisions(merged, weak)
        counts = replace(counts, absent=counts.absent + len(weak))
    return ImportReport(
        **vars(counts),
        files=write_table(merged, target) if source is None else write_alike(source, merged, target),
        unticked=len(weak or ()),
        suggestions=len(imported.suggestions),
        skipped=imported.skipped,
        known=int(merged.known.sum()),
        cells=merged.cells.size,
    )


def _unticked(imported: Imported, table: LabelTable) -> Decisions:
    """Return the unknown cells of the images that a person looked at as a whole, as absent."""
    assert imported.looked_at is not None
    rows = table.index.images.find_distinct(imported.table.images)[np.flatnonzero(imported.looked_at)]
    rows = rows[rows >= 0]
    at, columns = np.nonzero(table.cells[rows] == UNKNOWN)
    return Decisions(rows[at], columns, np.full(len(at), ABSENT, dtype=np.int8))


def _require_some(decided: Decisions, file: Path, onto: str | Path | None) -> None:
    """Refuse a file that says nothing about the table: one of the two is certainly the wrong one."""
    if onto is not None:
        remedy = Sentence("give {onto} the table that was exported", onto=Argument("onto"))
        decided.require_some(onto, file, remedy)
    if not len(decided):
        raise TableError(
            "holds no decision of a person",
            where=file,
            remedy="decide something in the tool, and export again",
        )

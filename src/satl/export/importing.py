"""Read what a person decided in another tool into a label table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from satl.errors import Argument, ConfigError, Sentence, TableError, nearest
from satl.export.registry import Imported, ServerProject, find_server, find_tool
from satl.files import nearest_file
from satl.labels import ABSENT, UNKNOWN, LabelTable, open_table, write_table
from satl.labels.decisions import DecisionCounts, Decisions, apply_decisions
from satl.labels.io import check_alike, check_new_files, find_format, table_files, write_alike
from satl.labels.io.text_files import unreadable
from satl.review.agreement import DisagreementRule, PairAgreement, Settlement, pair_agreement, settle

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
        disagreements: cells left out because persons disagree about them.
        first_disagreement: image and class of one of them.
        agreement: how far every two persons agree, over all classes and class by class.
    """

    files: tuple[Path, ...]
    unticked: int
    suggestions: int
    skipped: int
    known: int
    cells: int
    disagreements: int
    first_disagreement: tuple[str, str] | None
    agreement: tuple[PairAgreement, ...]


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
    disagreements: DisagreementRule = "leave",
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
        disagreements: what counts on cells about which persons disagree: nothing (they are left as they are and
            counted), the latest decision, or that of the majority; as in :func:`satl.review.merge_review`.
        force: overwrite ``out``, and the file of its truth beside it.

    Raises:
        TableError: a decision contradicts a known cell, the file and ``onto`` have no cell in common, ``out`` exists.
    """
    file = Path(path)
    return _import(
        lambda known_as: read_export(file, format, known_as),
        file,
        out,
        format,
        _Wishes(onto, encoding, ignore_columns, unticked, replace_known, disagreements, force),
    )


def import_project(
    project: ServerProject,
    format: str,
    out: str | Path,
    *,
    onto: str | Path | None = None,
    encoding: str | None = None,
    ignore_columns: Sequence[str] = (),
    unticked: str = "unknown",
    replace_known: bool = False,
    disagreements: DisagreementRule = "leave",
    force: bool = False,
) -> ImportReport:
    """Write the decisions in a project on a tool's server as a label table; all else as in :func:`import_file`."""
    server = find_server(format)
    return _import(
        lambda _: server.fetch(project),
        f"project {project.project} of {project.address}",
        out,
        format,
        _Wishes(onto, encoding, ignore_columns, unticked, replace_known, disagreements, force),
    )


class _Wishes(NamedTuple):
    """How decisions become a table, as in :func:`import_file`."""

    onto: str | Path | None
    encoding: str | None
    ignore_columns: Sequence[str]
    unticked: str
    replace_known: bool
    disagreements: DisagreementRule
    force: bool


def _import(
    read: Callable[[str | None], Imported], origin: Path | str, out: str | Path, format: str, wishes: _Wishes
) -> ImportReport:
    target, onto, force = Path(out), wishes.onto, wishes.force
    if wishes.unticked not in UNTICKED:
        raise ConfigError(
            f"is neither unknown nor absent{nearest(wishes.unticked, UNTICKED)}",
            where=Argument("unticked", wishes.unticked),
            remedy="say one of them",
        )
    settle((), wishes.disagreements)  # refuses a rule that there is not
    inputs = (origin if isinstance(origin, Path) else None, None if onto is None else Path(onto))
    check_new_files((target,), force=force, inputs=inputs)
    imported = read(None if onto is not None else wishes.encoding)
    if wishes.unticked == "absent" and imported.looked_at is None:
        raise ConfigError(
            f"format '{format}' does not say which images a person looked at as a whole",
            where=Argument("unticked", wishes.unticked),
            remedy="leave it out, and say absent in the tool itself",
        )
    source = None if onto is None else open_table(onto, wishes.encoding, ignore_columns=wishes.ignore_columns)
    if source is None:
        table = imported.table.with_cells(np.zeros_like(imported.table.cells), "signed")
        kind = find_format(target, writing=True)
        check_new_files(table_files(target, kind, table.truth is not None), force=force, inputs=inputs)
    else:
        table = source.table
        check_alike(source, target, force=force, inputs=inputs)
    settlement = settle(imported.disagreements, wishes.disagreements)
    decided = _decided(imported, settlement)
    decisions = Decisions.of_table(table, decided)
    merged, counts = apply_decisions(
        table,
        decisions,
        conflicts="replace" if wishes.replace_known else "refuse",
        origin=origin,
        where=onto,
    )
    # A box that was not ticked is weak evidence: it fills unknown cells and never contradicts a known one.
    weak = _unticked(imported, merged, settlement) if wishes.unticked == "absent" else None
    if not weak:
        _require_some(decisions, origin, onto, settlement)
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
        disagreements=len(settlement.disagreements),
        first_disagreement=settlement.disagreements[0] if settlement.disagreements else None,
        agreement=tuple(pair_agreement(imported.votes)),
    )


def _decided(imported: Imported, settlement: Settlement) -> LabelTable:
    """Return the table of what was imported, with what a rule made of the cells on which persons disagree."""
    table = imported.table
    votes = [one for one in settlement.decisions if one.value]
    settled = Decisions.by_name(
        table, [one.image for one in votes], [one.label for one in votes], [one.value or 0 for one in votes]
    )
    return apply_decisions(table, settled)[0]


def _unticked(imported: Imported, table: LabelTable, settlement: Settlement) -> Decisions:
    """Return the unknown cells of the images that a person looked at as a whole, as absent.

    A cell on which persons disagree is none of them: somebody ticked it.
    """
    assert imported.looked_at is not None
    rows = table.index.images.find_distinct(imported.table.images)[np.flatnonzero(imported.looked_at)]
    rows = rows[rows >= 0]
    open_cells = table.cells == UNKNOWN
    disputed = Decisions.by_name(
        table,
        [image for image, _ in settlement.disagreements],
        [label for _, label in settlement.disagreements],
        [ABSENT] * len(settlement.disagreements),
    )
    open_cells[disputed.rows, disputed.columns] = False
    at, columns = np.nonzero(open_cells[rows])
    return Decisions(rows[at], columns, np.full(len(at), ABSENT, dtype=np.int8))


def _require_some(
    decided: Decisions, origin: Path | str, onto: str | Path | None, settlement: Settlement
) -> None:
    """Refuse a file that says nothing about the table: one of the two is certainly the wrong one."""
    if onto is not None:
        remedy = Sentence("give {onto} the table that was exported", onto=Argument("onto"))
        decided.require_some(onto, origin, remedy)
    if len(decided):
        return
    if settlement.disagreements:
        raise TableError(
            "holds no decision on which its annotators agree",
            where=origin,
            remedy=Sentence(
                "settle their disagreements in the tool, or pass {latest} to take the latest decisions",
                latest=Argument("disagreements", "latest"),
            ),
        )
    raise TableError(
        "holds no decision of a person",
        where=origin,
        remedy="decide something in the tool" + (", and export again" if isinstance(origin, Path) else ""),
    )

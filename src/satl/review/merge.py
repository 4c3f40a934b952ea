"""Write the decisions of a review into a label table, in the table's own format and encoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from satl.completion.outputs.completed_folder import CompletedFolder
from satl.errors import Argument, RunError, Sentence, Task
from satl.labels import UNKNOWN, LabelTable, open_table
from satl.labels.bands import ACCEPTED, BANDS
from satl.labels.decisions import DecisionCounts, Decisions, apply_decisions
from satl.labels.io import check_alike, write_alike
from satl.review.agreement import DisagreementRule, PairAgreement, Settlement, Vote, pair_agreement, settle
from satl.review.database import ReviewStore


@dataclass(frozen=True)
class MergeReport(DecisionCounts):
    """What a merge did, counted in cells; the decisions of a person as in :class:`DecisionCounts`.

    Attributes:
        files: what was written.
        skipped: looked at and left open; they write nothing.
        included: cells accepted by the certificate and written, because that was asked for.
        known: known cells of the new table, of ``cells`` in all.
        encoding: of the new table, as of the old one.
        disagreements: cells left out because annotators disagree about them and nobody has settled it.
        first_disagreement: image and class of one of them.
        agreement: how far every two annotators agree, over all classes and class by class.
    """

    files: tuple[Path, ...]
    skipped: int
    included: int
    known: int
    cells: int
    encoding: str | None
    disagreements: int
    first_disagreement: tuple[str, str] | None
    agreement: tuple[PairAgreement, ...]


def merge_review(
    out: str | Path,
    table: str | Path,
    new: str | Path,
    *,
    encoding: str | None = None,
    ignore_columns: Sequence[str] = (),
    include_accepted: bool = False,
    replace_known: bool = False,
    disagreements: DisagreementRule = "leave",
    force: bool = False,
) -> MergeReport:
    """Write ``table`` with the decisions of the review in ``out`` to ``new``.

    Args:
        encoding: of ``table``, where its values can be read in several ways.
        ignore_columns: columns of ``table`` that are not classes; the new table is without them.
        include_accepted: also write the cells that ``satl complete`` accepted and no person looked at; they never
            overwrite a known cell.
        replace_known: let a decision overwrite a known cell that says the opposite.
        disagreements: what counts on cells about which annotators disagree and nobody made a final decision: nothing
            (they are left as they are and counted), the latest decision, or that of the majority.
        force: overwrite ``new``, and the file of its truth beside it.

    Raises:
        TableError: a decision contradicts a known cell and ``replace_known`` is not given, no decision is about a
            cell of the table, or ``new`` exists.
        RunError: ``out`` is not the folder of a completion, or nobody has reviewed it.
    """
    folder, target = CompletedFolder.open(out), Path(new)
    source = open_table(table, encoding, ignore_columns=ignore_columns)
    check_alike(source, target, force=force, inputs=(source.path,))
    votes = _votes(folder)
    settlement = settle(votes, disagreements)
    decided, skipped = _decisions(settlement, source.table)
    if not include_accepted and not len(decided) and not decided.elsewhere:
        raise _nothing_to_write(folder, settlement)
    decided.require_some(source.path, folder.path, f"name the table that {folder.path} was completed from")
    merged, counts = apply_decisions(
        source.table,
        decided,
        conflicts="replace" if replace_known else "refuse",
        origin="the review",
        where=source.path,
    )
    included = 0
    if include_accepted:
        merged, more = apply_decisions(merged, _accepted(folder, merged, skipped), conflicts="keep")
        included = more.present + more.absent
    return MergeReport(
        **vars(counts),
        files=write_alike(source, merged, target),
        skipped=skipped.elsewhere + len(skipped),
        included=included,
        known=int(merged.known.sum()),
        cells=merged.cells.size,
        encoding=source.encoding,
        disagreements=len(settlement.disagreements),
        first_disagreement=settlement.disagreements[0] if settlement.disagreements else None,
        agreement=tuple(pair_agreement(votes)),
    )


def _nothing_to_write(folder: CompletedFolder, settlement: Settlement) -> RunError:
    review = Task("review", folder.path)
    if settlement.disagreements:
        return RunError(
            "holds no decision on which its annotators agree",
            where=folder.path,
            remedy=Sentence(
                "settle their disagreements in {review}, or pass {latest} to take the latest decisions",
                review=review,
                latest=Argument("disagreements", "latest"),
            ),
        )
    return RunError(
        "holds no decision of a person yet",
        where=folder.path,
        remedy=Sentence(
            "run {review} first, or pass {include} to write the accepted cells only",
            review=review,
            include=Argument("include_accepted", True),
        ),
    )


def confirmed_cells(folders: Sequence[Path], table: LabelTable) -> npt.NDArray[np.bool_]:
    """Return the cells of a table that a person decided in earlier reviews as the table says, (N, C).

    Args:
        folders: completed folders that were reviewed.
        table: into which the reviews were merged.

    Raises:
        TableError: none of the decisions of a folder is about a cell of the table.
        RunError: a folder is not that of a completion, or nobody has reviewed it.
    """
    found = np.zeros(table.cells.shape, dtype=np.bool_)
    for place in folders:
        folder = CompletedFolder.open(place)
        decided, _ = _decisions(settle(_votes(folder)), table)
        if not len(decided) and not decided.elsewhere:
            raise RunError(
                "holds no decision of a person",
                where=folder.path,
                remedy=Sentence("leave out {reviewed}", reviewed=Argument("reviewed", folder.path)),
            )
        decided.require_some(
            "the table", folder.path, f"name the table that {folder.path} was completed from"
        )
        found[decided.rows, decided.columns] |= table.cells[decided.rows, decided.columns] == decided.values
    return found


def is_reviewed(folder: CompletedFolder) -> bool:
    """Tell whether a person decided or skipped a cell; to have opened the page is not enough."""
    try:
        return bool(_votes(folder))
    except RunError:  # what it holds cannot be read just now
        return True


def _votes(folder: CompletedFolder) -> list[Vote]:
    if not folder.review.is_file():
        return []
    with ReviewStore(folder.path) as store:
        return store.votes()


def _decisions(settlement: Settlement, table: LabelTable) -> tuple[Decisions, Decisions]:
    """Return the decided and the skipped cells of ``table``."""
    current = settlement.decisions
    decided, skipped = (
        Decisions.by_name(
            table,
            [cell.image for cell in cells],
            [cell.label for cell in cells],
            [cell.value or 0 for cell in cells],
        )
        for cells in ([cell for cell in current if cell.value], [cell for cell in current if not cell.value])
    )
    return decided, skipped


def _accepted(folder: CompletedFolder, table: LabelTable, skipped: Decisions) -> Decisions:
    """Return the unknown cells of ``table`` that were accepted and that nobody skipped."""
    folder.require_all_listed()
    before = folder.read_labels()
    # Where the rows and columns of the table before completion are in this one.
    rows, columns = table.index.find(before.images, before.classes)
    open_cells = table.cells == UNKNOWN
    open_cells[skipped.rows, skipped.columns] = False
    found = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int8))]
    for block in folder.read_changes(before):
        row, column = rows[block.row], columns[block.column]
        kept = (block.band == BANDS.index(ACCEPTED)) & (row >= 0) & (column >= 0)
        kept[kept] = open_cells[row[kept], column[kept]]
        found.append((row[kept], column[kept], block.value[kept]))
    row_parts, column_parts, values = zip(*found, strict=True)
    return Decisions(np.concatenate(row_parts), np.concatenate(column_parts), np.concatenate(values))

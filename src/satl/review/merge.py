"""Write the decisions of a review into a label table, in the table's own format and encoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from satl.errors import Argument, RunError, Sentence, Task
from satl.labels import UNKNOWN, LabelTable, open_table
from satl.labels.decisions import DecisionCounts, Decisions, apply_decisions
from satl.labels.io import check_alike, write_alike
from satl.review.database import ReviewStore, Standing
from satl.review.folder import CHANGES, REVIEW, read_changes, require_completed


@dataclass(frozen=True)
class MergeReport(DecisionCounts):
    """What a merge did, counted in cells; the decisions of a person as in :class:`DecisionCounts`.

    Attributes:
        files: what was written.
        skipped: looked at and left open; they write nothing.
        included: cells accepted by the certificate and written, because that was asked for.
        known: known cells of the new table, of ``cells`` in all.
        encoding: of the new table, as of the old one.
    """

    files: tuple[Path, ...]
    skipped: int
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
    check_alike(source, target, force=force, inputs=(source.path,))
    decided, skipped = _decisions(folder, source.table)
    if not include_accepted and not len(decided) and not decided.elsewhere:
        raise RunError(
            "holds no decision of a person yet",
            where=folder,
            remedy=Sentence(
                "run {review} first, or pass {include} to write the accepted cells only",
                review=Task("review", folder),
                include=Argument("include_accepted", True),
            ),
        )
    decided.require_some(source.path, folder, f"name the table that {folder} was completed from")
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
        decided, _ = _decisions(folder, table)
        if not len(decided) and not decided.elsewhere:
            raise RunError(
                "holds no decision of a person",
                where=folder,
                remedy=Sentence("leave out {reviewed}", reviewed=Argument("reviewed", folder)),
            )
        decided.require_some("the table", folder, f"name the table that {folder} was completed from")
        found[decided.rows, decided.columns] |= table.cells[decided.rows, decided.columns] == decided.values
    return found


def _decisions(folder: Path, table: LabelTable) -> tuple[Decisions, Decisions]:
    """Return the decided and the skipped cells of ``table``."""
    standing = []
    if (folder / REVIEW).is_file():
        with ReviewStore(folder) as store:
            standing = store.decisions()

    def located(which: list[Standing]) -> Decisions:
        return Decisions.by_name(
            table,
            [cell.image for cell in which],
            [cell.label for cell in which],
            [cell.value or 0 for cell in which],
        )

    return located([cell for cell in standing if cell.value]), located(
        [cell for cell in standing if not cell.value]
    )


def _accepted(folder: Path, table: LabelTable, skipped: Decisions) -> Decisions:
    """Return the cells of ``table`` that were accepted and that nobody skipped."""
    from satl.completion.files.completed_folder import CompletionFolder

    CompletionFolder(folder).require_all_listed()
    changes = [change for change in read_changes(folder / CHANGES) if change.band == "accepted"]
    found = Decisions.by_name(
        table, [c.image for c in changes], [c.label for c in changes], [c.value for c in changes]
    )
    open_cells = table.cells == UNKNOWN
    open_cells[skipped.rows, skipped.columns] = False
    kept = open_cells[found.rows, found.columns]
    return Decisions(found.rows[kept], found.columns[kept], found.values[kept])

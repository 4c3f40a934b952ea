"""Hide known labels on purpose, to measure what a method makes of the rest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from satl.errors import Argument, SatlError
from satl.labels.table import UNKNOWN, LabelTable

_ROWS_AT_ONCE = 65_536


def mask_table(
    table: LabelTable, proportion: float, seed: int = 0, further_splits: Sequence[str] = ()
) -> LabelTable:
    """Keep each label with probability ``proportion``, hide the others, and move all of them into ``truth``.

    The published recipe, to the bit: one uniform number per cell from
    ``numpy.random.RandomState(seed).random_sample((N, C))``, row by row in the order of the table; a
    label stays where its number is below ``proportion``. So masks are nested: what is known at 5 % is
    known at 10 %. Positives and negatives are hidden alike. ``proportion`` is rho in the papers.

    Where the table has a split, only its ``train`` rows (also ``Train``, ``training``) are masked (N counts them
    alone), and then those of ``further_splits``, so that the mask of the ``train`` rows is the same with them and
    without. All others stay as they are. Cells that were unknown stay unknown. ``proportion`` 1 hides nothing.

    >>> table = LabelTable(("a", "b"), ("cat", "dog"), np.array([[1, -1], [-1, 1]]))
    >>> masked = mask_table(table, 0.6)
    >>> masked.cells.tolist(), masked.truth.tolist()
    ([[1, 0], [0, 1]], [[1, -1], [-1, 1]])
    """
    check_proportion(proportion)
    parts = [table.train_rows(), *(np.flatnonzero(table.split_mask(name)) for name in further_splits)]
    rows = np.concatenate(parts)
    cells = table.cells.copy()
    if proportion < 1:
        random = random_state(seed)
        # In blocks of rows: the stream of numbers is the same and the table may be large.
        for block in np.array_split(rows, max(1, len(rows) // _ROWS_AT_ONCE)):
            keep = random.random_sample((len(block), table.num_classes)) < proportion
            cells[block] *= keep
    truth = table.cells if table.truth is None else np.where(table.truth != UNKNOWN, table.truth, table.cells)
    return LabelTable(table.images, table.classes, cells, table.split, truth, "signed")


def check_proportion(proportion: float) -> None:
    """Raise unless ``proportion`` lies in (0, 1]."""
    # Written so that NaN is refused as well.
    if not 0 < proportion <= 1:
        raise SatlError(
            "must be above 0 and at most 1",
            where=Argument("proportion", proportion),
            remedy="give the share of the labels to keep, such as 0.1",
        )


def random_state(seed: int) -> np.random.RandomState:
    """Return numpy's frozen generator: its stream of numbers will never change between versions."""
    if not 0 <= seed < 2**32:
        raise SatlError(f"must lie between 0 and {2**32 - 1}", where=Argument("seed", seed))
    return np.random.RandomState(seed)

"""Set images aside so that every class keeps its share of known positives."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from satl.errors import SatlError, TableError
from satl.labels.masking import random_state
from satl.labels.table import PRESENT, LabelTable


def split_table(
    table: LabelTable, fraction: float, seed: int = 0, *, name: str = "val", source: str = "train"
) -> LabelTable:
    """Move a ``fraction`` of the images of split ``source`` to split ``name``, stratified on known positives.

    A table without a split counts as ``source`` altogether. The result has the same images in the
    same order; only ``split`` differs. Exactly ``round(fraction * n)`` of the n images move, and each
    class gives its share of known positives up to rounding, rarest classes first (iterative
    stratification, Sechidis, Tsoumakas and Vlahavas 2011). The same table and seed give the same split.

    >>> cells = np.where(np.arange(20)[:, None] % 5 == np.arange(2), 1, -1)
    >>> table = split_table(LabelTable(tuple(map(str, range(20))), ("cat", "dog"), cells), 0.25)
    >>> table.splits
    {'train': 15, 'val': 5}
    >>> (table.where_split("val").cells == 1).sum(axis=0).tolist()
    [1, 1]
    """
    if not 0 < fraction < 1:
        raise SatlError(f"the fraction of images to set aside is {fraction}, but must lie between 0 and 1.")
    rows = np.arange(table.num_images) if table.split is None else np.flatnonzero(table.split_mask(source))
    wanted = round(fraction * len(rows))
    if wanted in (0, len(rows)):
        raise TableError(
            f"setting aside {fraction} of {len(rows)} '{source}' images leaves '{name}' or '{source}' "
            f"without any: use more images or another fraction."
        )
    random = random_state(seed)
    # The rows are visited in random order, so that "the first k" below is a random choice.
    order = random.permutation(len(rows))
    positives = table.cells[rows[order]] == PRESENT
    chosen = _iterative_stratification(positives, fraction, wanted)
    split = np.array(
        [source] * table.num_images if table.split is None else table.split.tolist(), dtype=object
    )
    split[rows[order[chosen]]] = name
    return table.with_split(split.tolist())


def _iterative_stratification(
    positives: npt.NDArray[np.bool_], fraction: float, wanted: int
) -> npt.NDArray[np.bool_]:
    """Choose ``wanted`` of N rows with about ``fraction`` of the positives of each column; bool (N,).

    The original gives rows one at a time to the subset that still wants most of the rarest label.
    With two subsets the wishes for a label always add up to its remaining rows, so the outcome for one
    label is "round the wish": whole columns can be dealt out at once, C steps instead of N.
    """
    num_rows = len(positives)
    target = positives.sum(axis=0) * fraction
    wish = target.copy()
    chosen = np.zeros(num_rows, dtype=np.bool_)
    open_rows = np.ones(num_rows, dtype=np.bool_)
    remaining = positives.sum(axis=0)
    while remaining.any():
        rarest = int(np.argmin(np.where(remaining > 0, remaining, num_rows + 1)))
        rows = np.flatnonzero(open_rows & positives[:, rarest])
        take = int(np.clip(np.floor(wish[rarest] + 0.5), 0, len(rows)))
        chosen[rows[:take]] = True
        wish -= positives[rows[:take]].sum(axis=0)
        remaining -= positives[rows].sum(axis=0)
        open_rows[rows] = False
    rest = np.flatnonzero(open_rows)
    chosen[rest[: max(0, wanted - int(chosen.sum()))]] = True
    return _with_exact_size(chosen, positives, target, wanted)


def _with_exact_size(
    chosen: npt.NDArray[np.bool_],
    positives: npt.NDArray[np.bool_],
    target: npt.NDArray[np.float64],
    wanted: int,
) -> npt.NDArray[np.bool_]:
    """Move the few rows that rounding left over or short, each time the one that hurts balance least."""
    weight = 1.0 / np.maximum(positives.sum(axis=0), 1)
    while int(chosen.sum()) != wanted:
        surplus = positives[chosen].sum(axis=0) - target
        removing = int(chosen.sum()) > wanted
        candidates = np.flatnonzero(chosen if removing else ~chosen)
        # Change of the squared imbalance when a column's count moves by one: 1 -/+ 2 * surplus.
        change = weight * (1 - 2 * surplus if removing else 1 + 2 * surplus)
        best = candidates[int(np.argmin(positives[candidates] @ change))]
        chosen[best] = not removing
    return chosen

"""A linear probe of features: fitted to as many rows as are worth the time, applied to all of them in blocks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from satl.checks.tensor_checks import known_cells
from satl.features import FeatureTable
from satl.images import epoch_order
from satl.models.feature_input import FeatureInput
from satl.runs.data import RunData
from satl.scoring import ProbeLogits, fit_probe, probe_logits

IntArray = npt.NDArray[np.int64]
MOST_WORK = 2_000_000_000
"""Rows x features x classes that a probe is fitted to, at most: about two minutes on two cores. More rows are for the
network itself to learn from."""
LEAST_ROWS = 2_000
_ROWS_AT_ONCE = 16_384


def probed_part(network: nn.Module) -> nn.Module:
    """Return the part of a network whose output a probe is fitted to: the backbone, or whole feature vectors.

    A probe standardises each number: of principal components it would make much of those that say little.
    """
    backbone = network.get_submodule("backbone")
    return backbone.whole if isinstance(backbone, FeatureInput) else backbone


def fit_to_training_images(
    probe: ProbeLogits, features_of: Callable[[IntArray], Tensor], cells: Tensor, data: RunData
) -> int:
    """Fit a probe to the training images of a run and keep its logits; return how many of them it was fitted to.

    Args:
        probe: keeps the logits.
        features_of: gives the features ``(R, D)`` of rows, on the device.
        cells: ``(N, C)`` labels of the table, on the device.
        data: of the run.
    """
    rows = data.rows("train")
    if isinstance(data.source, FeatureTable):
        return fit_to_some(features_of, cells, rows, probe, data.source.dim * cells.shape[1])
    where = torch.from_numpy(rows).to(cells.device)
    logits = probe_logits(features_of(rows), cells.index_select(0, where), encoding="signed")
    probe.keep(where, logits, len(cells))
    return len(rows)


@torch.no_grad()
def fit_to_some(
    features_of: Callable[[IntArray], Tensor],
    cells: Tensor,
    rows: IntArray,
    probe: ProbeLogits,
    size: int,
    most_work: int = MOST_WORK,
) -> int:
    """Fit a probe to the known cells of some rows and keep its logits for all of them; return how many rows it saw.

    Known cells that were fitted to get the logits of a fit to other folds, as in :func:`satl.scoring.probe_logits`;
    where all rows are worth the work the logits are those.

    Args:
        features_of: gives the features ``(R, D)`` of rows, on the device.
        cells: ``(N, C)`` labels of the table, on the device.
        rows: training rows, ascending.
        probe: keeps the logits.
        size: D x C.
        most_work: rows x D x C, at most.
    """
    most = max(LEAST_ROWS, most_work // size)
    chosen = rows if len(rows) <= most else np.sort(rows[epoch_order(len(rows), 0, 0)[:most]])
    labels = cells.index_select(0, torch.from_numpy(chosen).to(cells.device))
    features = features_of(chosen)
    fitted, left_out = fit_probe(features, labels, encoding="signed")
    del features
    logits = torch.zeros(cells.shape, device=cells.device)
    for begin in range(0, len(rows), _ROWS_AT_ONCE):
        some = rows[begin : begin + _ROWS_AT_ONCE]
        logits[torch.from_numpy(some).to(cells.device)] = fitted(features_of(some))
    where = torch.from_numpy(chosen).to(cells.device)
    for begin in range(0, len(chosen), _ROWS_AT_ONCE):
        part = slice(begin, begin + _ROWS_AT_ONCE)
        at = where[part]
        logits[at] = torch.where(known_cells(labels[part]), left_out[part], logits[at])
    probe.keep_all(logits)
    return len(chosen)

"""The maps that training features become, computed once for all epochs where a processor would repeat the work."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from satl.features import FeatureTable
from satl.models.feature_input import FeatureInput
from satl.runs.data import RunData

MOST_BYTES = 1 << 30
"""Memory that they may take; above it each batch is projected anew."""
_ROWS_AT_ONCE = 4096


@torch.no_grad()
def maps_of_training(data: RunData, project: FeatureInput) -> Tensor | None:
    """Return the maps (N, K, 1, 1) of a table's training features by row; those of other rows are not written.

    None where each batch is projected anew: on a GPU, which does it in no time, where pictures have several views,
    where nothing is projected, and where the maps of all rows would take more than :data:`MOST_BYTES`: memory that is
    asked for counts on some systems, though nothing is written to it.
    """
    source, rows = data.source, data.rows("train")
    if not isinstance(source, FeatureTable) or source.views > 1 or project.components is None:
        return None
    if project.mean.device.type != "cpu" or len(source) * project.channels * 4 > MOST_BYTES:
        return None
    maps = torch.empty(len(source), project.channels, 1, 1)
    for some in np.split(rows, range(_ROWS_AT_ONCE, len(rows), _ROWS_AT_ONCE)):
        maps[torch.from_numpy(some)] = project(torch.from_numpy(source.take(some))[:, 0].float())
    return maps

"""Scores and labels of every awkward kind that a threshold rule may meet."""

from __future__ import annotations

import math

import torch
from hypothesis import strategies as st
from torch import Tensor

MIXES = {
    "even": [1.0, 1.0, 1.0],
    "nothing known": [0.0, 1.0, 0.0],
    "positives only": [0.0, 1.0, 1.0],
    "negatives only": [1.0, 1.0, 0.0],
    "everything known": [1.0, 0.0, 1.0],
    "rare positives": [5.0, 4.0, 0.2],
}
"""Weights of absent, unknown and present cells."""


@st.composite
def unit_tables(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Scores in [0, 1], some not a number, in several precisions, and labels with +1, -1, 0."""
    images, classes = draw(st.integers(1, 50)), draw(st.integers(1, 4))
    noise = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    scores = torch.rand(images, classes, generator=noise)
    shape = draw(st.sampled_from(["uniform", "ties", "extreme", "constant"]))
    if shape == "ties":
        scores = (scores * 8).round() / 8
    elif shape == "extreme":
        scores = (scores > 0.5).float()
    elif shape == "constant":
        scores = torch.full_like(scores, draw(st.sampled_from([0.0, 0.3, 0.5, 1.0])))
    if draw(st.booleans()):
        scores = torch.where(torch.rand(images, classes, generator=noise) < 0.1, math.nan, scores)
    scores = scores.to(draw(st.sampled_from([torch.float32, torch.float16, torch.bfloat16])))
    weights = torch.tensor(draw(st.sampled_from(list(MIXES.values()))))
    picks = torch.multinomial(weights, images * classes, replacement=True, generator=noise)
    labels = (picks - 1).view(images, classes)
    return scores, labels.to(draw(st.sampled_from([torch.int8, torch.int64, torch.float32])))

"""Classes start at the log-odds of their known labels where the configuration says so."""

from __future__ import annotations

import numpy as np
import torch

from satl.training.build import build_learner
from training.tiny import tiny_config

LABELS = np.array([[1, -1, 0], [1, -1, 0], [-1, -1, 0], [1, 0, 0]], dtype=np.int8)


def class_bias(*overrides: str) -> torch.Tensor:
    learner = build_learner(tiny_config(*overrides), ("a", "b", "c"), LABELS)
    return learner.network.class_head.classifier.bias.detach()


def test_bias_is_the_log_odds_of_the_known_cells():
    # (positives + 1) / (known + 2); a class of which nothing is known starts undecided
    expected = torch.logit(torch.tensor([4 / 6, 1 / 5, 1 / 2]))
    torch.testing.assert_close(class_bias("model.prior_bias=true"), expected)


def test_without_it_the_bias_is_the_published_random_start():
    assert class_bias().abs().max() <= 1 / 16**0.5

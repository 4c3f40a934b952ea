"""Large losses: which unknown cells are chosen, what becomes of them, and how long."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
import torch

from methods.simple import (
    assert_learns,
    assert_resumes,
    default_settings,
    make_batch,
    make_learner,
    spread,
    step,
)
from reference import losses as plain
from reference import thresholds as plain_thresholds

VARIANTS = ["rejection", "temporary", "permanent"]
"""LL-R, LL-Ct and LL-Cp."""


def settings_of(variant: str) -> tuple[str, str]:
    """The settings of a published variant."""
    loss = "rejection" if variant == "rejection" else "correction"
    permanent = "true" if variant == "permanent" else "false"
    return f"method.losses.large_loss.variant={loss}", f"method.thresholds.permanent={permanent}"


def test_published_values_are_the_defaults() -> None:
    settings = default_settings("large-loss")
    assert settings["losses"] == {"large_loss": {"variant": "rejection"}}
    given = {"share_step": 0.002, "permanent": False, "memory_cells": 1_000_000}
    assert settings["thresholds"] == {"rule": "large-loss", **given}


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_epoch_is_the_plain_loss(variant: str) -> None:
    learner = make_learner(
        "large-loss",
        *settings_of(variant),
        "method.thresholds.share_step=0.05",
        "method.thresholds.memory_cells=50",
    )
    learner.rules.train()  # the network stays in eval mode
    spread(learner)
    batch = make_batch()
    labels = batch[1]
    result, logits = step(learner, 1, batch)
    assert float(result.loss) == pytest.approx(
        float(plain.large_loss(logits, labels, labels, variant)), rel=1e-5
    )
    corrected: set[tuple[int, int]] = set()
    for epoch in range(1, 4):
        learner.update_thresholds()
        result, logits = step(learner, 2, batch)
        scores = logits.sigmoid()
        if variant == "permanent":
            left = labels.clone()
            for n, c in corrected:
                left[n, c] = 1
            corrected |= plain_thresholds.largest_unknown(scores.tolist(), left.tolist(), Fraction("0.05"))
        else:
            corrected = plain_thresholds.largest_unknown(
                scores.tolist(), labels.tolist(), epoch * Fraction("0.05")
            )
        chosen = labels.clone()
        for n, c in corrected:
            chosen[n, c] = 1
        assert torch.equal(result.pseudo["probability"], chosen)
        assert float(result.loss) == pytest.approx(
            float(plain.large_loss(logits, labels, chosen, variant)), rel=1e-5
        )
    # Of 64 cells: 4 in each of three epochs, or ceil(3 * 3.2).
    assert len(corrected) == (12 if variant == "permanent" else 10)


def test_a_cell_corrected_for_good_stays_so_whatever_the_network_says() -> None:
    batch = make_batch()
    for variant, stays in (("temporary", False), ("permanent", True)):
        learner = make_learner("large-loss", *settings_of(variant), "method.thresholds.share_step=0.05")
        learner.rules.train()
        spread(learner)
        learner.update_thresholds()
        first = step(learner, 2, batch)[0].pseudo["probability"]
        with torch.no_grad():
            learner.network.class_head.classifier.weight.neg_()
            learner.network.class_head.classifier.bias.neg_()
        learner.update_thresholds()
        second = step(learner, 2, batch)[0].pseudo["probability"]
        assert bool((second[first > batch[1]] == 1).all()) is stays


@pytest.mark.parametrize(
    "variant",
    [
        "rejection",
        pytest.param("temporary", marks=pytest.mark.slow),
        pytest.param("permanent", marks=pytest.mark.slow),
    ],
)
def test_it_learns(variant: str, tmp_path: Path) -> None:
    last = assert_learns(
        tmp_path / "run", "large-loss", *settings_of(variant), "method.thresholds.share_step=0.01"
    )
    assert last["pseudo_labels"]["probability"]["emitted"] > 0
    assert 0 < min(last["thresholds"]["probability"]) < 1


@pytest.mark.parametrize("variant", [pytest.param("temporary", marks=pytest.mark.slow), "permanent"])
def test_it_resumes(variant: str, tmp_path: Path) -> None:
    assert_resumes(
        tmp_path,
        "large-loss",
        *settings_of(variant),
        "method.thresholds.share_step=0.02",
        "method.thresholds.memory_cells=500",
    )

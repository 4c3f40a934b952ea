"""SPLC: unknown cells are negatives in stage 1, and positives above the threshold in stage 2."""

from __future__ import annotations

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
from satl.methods import METHODS, configure


def test_published_values_are_the_defaults() -> None:
    settings = default_settings("splc")
    assert settings["losses"] == {"self_paced": {"margin": 1.0, "gamma": 2.0}}
    assert settings["thresholds"] == {"rule": "fixed", "confidence": 0.6}
    _, parameters = configure(METHODS["splc"], {"thresholds": {"rule": "fixed"}})
    assert parameters.thresholds.confidence == 0.6  # type: ignore[union-attr]


def test_both_stages_are_the_plain_loss() -> None:
    learner, batch = make_learner("splc"), make_batch()
    spread(learner)
    labels = batch[1]
    result, logits = step(learner, 1, batch)
    assert float(result.loss) == pytest.approx(
        float(plain.self_paced(logits, labels, labels, 1.0, 2.0)), rel=1e-5
    )
    assert result.pseudo == {}
    learner.update_thresholds()
    result, logits = step(learner, 2, batch)
    corrected = torch.where((labels == 0) & (logits.sigmoid() > 0.6), 1, labels)
    assert 0 < int((corrected != labels).sum()) < int((labels == 0).sum())
    assert torch.equal(result.pseudo["probability"], corrected)
    assert float(result.loss) == pytest.approx(
        float(plain.self_paced(logits, labels, corrected, 1.0, 2.0)), rel=1e-5
    )
    assert set(result.parts) == {"self_paced"}


def test_known_negatives_stay_negative_however_confident_the_network_is() -> None:
    learner, (pixels, labels, images) = make_learner("splc"), make_batch()
    learner.update_thresholds()
    learner.rules["probability"].value.fill_(0.0)
    result, _ = step(learner, 2, (pixels, labels, images))
    assert torch.equal(result.pseudo["probability"] < 0, labels < 0)


def test_it_learns_and_corrects(tmp_path: Path) -> None:
    last = assert_learns(tmp_path / "run", "splc")
    assert set(last["thresholds"]["probability"]) == {0.6}
    assert last["pseudo_labels"]["probability"]["emitted"] > 0


def test_it_resumes(tmp_path: Path) -> None:
    assert_resumes(tmp_path, "splc")

"""Curriculum labelling: confident predictions of either sign are labels in stage 2."""

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


def test_the_default_is_a_score_of_two() -> None:
    confidence = default_settings("curriculum")["thresholds"]["confidence"]
    assert torch.logit(torch.tensor(confidence)).item() == pytest.approx(2.0, abs=0.01)


@pytest.mark.parametrize("reduction", ["known", "sample"])
def test_both_stages_are_the_plain_loss(reduction: str) -> None:
    settings = (f"method.losses.{name}.reduction={reduction}" for name in ("classification", "curriculum"))
    learner, batch = make_learner("curriculum", *settings), make_batch()
    spread(learner)
    labels = batch[1]
    result, logits = step(learner, 1, batch)
    assert float(result.loss) == pytest.approx(float(plain.partial_bce(logits, labels, reduction)), rel=1e-5)
    learner.update_thresholds()
    result, logits = step(learner, 2, batch)
    score = torch.logit(torch.tensor(0.88))
    signs = (logits > score).to(torch.int8) - (logits < -score).to(torch.int8)
    filled = torch.where(labels == 0, signs, labels)
    unknown = filled[labels == 0]
    assert {-1, 0, 1} <= set(unknown.tolist())  # the case has all three
    assert float(result.loss) == pytest.approx(float(plain.partial_bce(logits, filled, reduction)), rel=1e-5)
    # Only the positive ones are pseudo-labels in the sense of the reports.
    assert torch.equal(result.pseudo["probability"] > labels, (labels == 0) & (signs > 0))


def test_it_learns(tmp_path: Path) -> None:
    last = assert_learns(tmp_path / "run", "curriculum", "method.thresholds.confidence=0.6")
    assert last["pseudo_labels"]["probability"]["emitted"] > 0


@pytest.mark.slow
def test_it_resumes(tmp_path: Path) -> None:
    assert_resumes(tmp_path, "curriculum", "method.thresholds.rule=mat")

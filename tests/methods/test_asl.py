"""ASL: its loss is the asymmetric one over known cells, it learns and resumes."""

from __future__ import annotations

from pathlib import Path

import pytest

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
from satl.errors import ConfigError
from training.tiny import tiny_config


def test_published_values_are_the_defaults() -> None:
    given = {"gamma_positive": 0.0, "gamma_negative": 4.0, "margin": 0.05}
    assert default_settings("asl") == {"losses": {"asymmetric": {"reduction": "known", **given}}}


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("reduction", ["known", "sample"])
def test_the_loss_is_the_plain_one(stage: int, reduction: str) -> None:
    options = ("gamma_positive=1", "gamma_negative=2", "margin=0.1", f"reduction={reduction}")
    learner = make_learner("asl", *(f"method.losses.asymmetric.{option}" for option in options))
    spread(learner)
    batch = make_batch()
    batch[1][3] = 0
    result, logits = step(learner, stage, batch)
    wanted = plain.asymmetric(logits, batch[1], (1.0, 2.0), 0.1, reduction)
    assert set(result.parts) == {"asymmetric"}
    assert float(result.loss) == pytest.approx(float(wanted), rel=1e-5)
    assert result.pseudo == {}


def test_it_has_no_threshold_to_choose() -> None:
    with pytest.raises(ConfigError, match="makes no pseudo-labels"):
        tiny_config("method.name=asl", "method.thresholds.rule=mat")


def test_it_learns(tmp_path: Path) -> None:
    assert_learns(tmp_path / "run", "asl")


@pytest.mark.slow
def test_it_resumes(tmp_path: Path) -> None:
    assert_resumes(tmp_path, "asl")

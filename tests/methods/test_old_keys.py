"""Parameters of before each part had a section: a run folder is still read, a configuration is told the new key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from satl.errors import ConfigError
from satl.methods.old_keys import OLD_KEYS, with_new_keys
from satl.runs.config import MethodConfig
from satl.runs.run_folder import RunFolder
from training.tiny import tiny_config

OLD_SATL_PLUS: dict[str, Any] = {
    "name": "satl+",
    "threshold": "precision",
    "generators": ["teacher"],
    "bce_reduction": "sample",
    "contrast_weight": 0.1,
    "mix_weight": 0.0,
    "teacher_decay": 0.9,
    "probe_weight": 0.2,
    "pseudo_weight": 0.5,
    "bins": 64,
    "min_count": 2,
    "least_precision": 0.9,
    "rate": 0.7,
}
NEW_SATL_PLUS: dict[str, Any] = {
    "generators": {"cross": False, "teacher": {}},
    "thresholds": {"rule": "precision", "bins": 64, "min_count": 2, "least_precision": 0.9, "rate": 0.7},
    "losses": {
        "classification": {"reduction": "sample"},
        "contrast": {"weight": 0.1},
        "mixed": {"weight": 0.0, "certainty": 0.0},
        "pseudo": {"reduction": "sample", "weight": 0.5, "fused": False},
    },
    "teacher": {"decay": 0.9, "probe_weight": 0.2, "agreement": 0.0},
}
OLD_LARGE_LOSS = {"name": "large-loss", "variant": "permanent", "share_step": 0.1, "memory_cells": 9}


def test_a_run_folder_of_before_is_read(tmp_path: Path) -> None:
    content = tiny_config("method.name=satl+").resolved()
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**content, "method": OLD_SATL_PLUS}))
    config = RunFolder.open(tmp_path).read_config()
    assert config.resolved() == {**content, "method": {"name": "satl+", **NEW_SATL_PLUS}}


def test_one_old_key_may_be_two_new_ones() -> None:
    config = MethodConfig.model_validate(with_new_keys(OLD_LARGE_LOSS))
    assert config.losses == {"large_loss": {"variant": "correction"}}
    thresholds = {"rule": "large-loss", "share_step": 0.1, "permanent": True, "memory_cells": 9}
    assert config.thresholds == thresholds


def test_a_section_of_today_stays_as_it_is() -> None:
    today = {"name": "satl+", **NEW_SATL_PLUS}
    assert with_new_keys(today) == today
    assert with_new_keys({"name": "no such method", "rate": 1}) == {"name": "no such method", "rate": 1}


@pytest.mark.parametrize("key", OLD_KEYS)
def test_an_old_key_in_a_configuration_is_answered_with_the_new_one(key: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"no key '{key}' any more, it is method\.{OLD_KEYS[key][0]}.* now;"
    ):
        tiny_config("method.name=sst", f"method.{key}=1")

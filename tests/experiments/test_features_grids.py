"""The grids on frozen features can be run as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from satl.experiments.configs import run_configs
from satl.experiments.grid import make_grid

FOLDER = Path(__file__).parents[2] / "experiments" / "features"


@pytest.mark.parametrize(("name", "grid_runs"), [("main", 90), ("tuning", 150)])
def test_every_run_has_a_configuration(name: str, grid_runs: int) -> None:
    grid = make_grid(yaml.safe_load((FOLDER / f"{name}.yaml").read_text()), name)
    configs = run_configs(grid, FOLDER, name)
    assert len(configs) == grid_runs
    for config in configs.values():
        assert config.on_features
        assert config.data.use_test == (name == "main")
        assert name == "main" or config.data.validation_labels == "known"
        assert config.training.checkpoint_epochs >= config.training.epochs
    assert f"| {grid_runs} |" in (FOLDER / "README.md").read_text()


def test_the_main_runs_are_what_a_user_gets_who_names_features_alone() -> None:
    grid = make_grid(yaml.safe_load((FOLDER / "main.yaml").read_text()), "main")
    plain = next(
        config
        for grid_run, config in run_configs(grid, FOLDER, "main").items()
        if grid_run.method == "satl+" and not grid_run.variant
    )
    default = type(plain).model_validate({"data": {"table": "labels.csv", "features": "features.npz"}})
    assert plain.method == default.method
    assert plain.features == default.features
    assert plain.model == default.model
    said = {"evaluate_every", "checkpoint_epochs", "seed"}
    assert plain.training.model_dump(exclude=said) == default.training.model_dump(exclude=said)

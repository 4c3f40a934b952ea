"""The grids of the embedded data set can be run as they stand, with the demo's settings."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from satl.experiments.configs import run_configs
from satl.experiments.grid import make_grid

FOLDER = Path(__file__).parents[2] / "experiments" / "scenes"


@pytest.mark.parametrize(
    ("name", "grid_runs"),
    [
        *(("main", 75), ("ablation", 75), ("sweeps", 90), ("all_known", 5), ("many", 50)),
        *(("rules", 140), ("tuning_baselines", 48)),
    ],
)
def test_every_run_has_a_configuration(name: str, grid_runs: int) -> None:
    grid = make_grid(yaml.safe_load((FOLDER / f"{name}.yaml").read_text()), name)
    configs = run_configs(grid, FOLDER, name)
    assert len(configs) == grid_runs
    for config in configs.values():
        assert config.data.scenes is not None
        assert (config.training.epochs, config.model.backbone) == (24, "satl_tiny")
        assert config.data.use_test != name.startswith("tuning")
    assert f"| {grid_runs} |" in (FOLDER / "README.md").read_text()


def test_the_settings_are_those_of_the_demo() -> None:
    demo = yaml.safe_load(files("satl.demo").joinpath("demo.yaml").read_text(encoding="utf-8"))
    base = yaml.safe_load((FOLDER / "base.yaml").read_text())
    for section in ("images", "model", "training"):
        for key, value in demo[section].items():
            assert base[section].get(key) == value, f"{section}.{key}"

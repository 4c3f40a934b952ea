"""The grids of the real photographs can be run as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from satl.experiments.configs import run_configs
from satl.experiments.grid import make_grid
from satl.runs.reading import make_config

FOLDER = Path(__file__).parents[2] / "experiments" / "coco18"
PAPER = {
    *("ignore", "assume-negative", "ssgrl", "ml-gcn", "kggr", "sst", "hst"),
    *("sst+sate", "sst+drl", "sst+satl", "hst+sate", "hst+drl", "hst+satl"),
}


@pytest.mark.parametrize(
    ("name", "grid_runs"),
    [
        *(("main", 255), ("all_known", 5), ("tuning", 222), ("others", 162), ("sweeps", 84)),
        *(("tuning_baselines", 215), ("controls", 230), ("rules", 470), ("drl", 100), ("tuning_plus", 96)),
    ],
)
def test_every_run_has_a_configuration(name: str, grid_runs: int) -> None:
    grid = make_grid(yaml.safe_load((FOLDER / f"{name}.yaml").read_text()), name)
    configs = run_configs(grid, FOLDER, name)
    assert len(configs) == grid_runs
    for config in configs.values():
        assert config.data.images == (FOLDER / "data" / "images").resolve()  # data may be a link
        assert config.model.backbone == "resnet50"
        assert config.training.epochs == 15 or name == "tuning"
        assert config.training.checkpoint_epochs >= config.training.epochs
        assert config.data.use_test == (not name.startswith("tuning"))
        assert config.data.validation_labels == ("known" if name.startswith("tuning_") else "complete")
    assert grid.models == "none"  # hundreds of ResNet-50 would fill a disk
    assert f"| {grid_runs} |" in (FOLDER / "README.md").read_text()


def test_together_they_hold_every_method_of_the_paper() -> None:
    methods = set()
    for name in ("main", "others"):
        methods |= set(yaml.safe_load((FOLDER / f"{name}.yaml").read_text())["methods"])
    assert methods == PAPER | {"satl+"}


def test_the_run_of_the_certificates_is_valid() -> None:
    config = make_config(yaml.safe_load((FOLDER / "certificates.yaml").read_text()), "certificates")
    assert config.data.holdout
    assert config.data.proportion == 0.1

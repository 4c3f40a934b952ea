"""The grid that the guide offers to copy works, and the guide names every key."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from satl.experiments.configs import run_configs
from satl.experiments.grid import Grid, Sweep, Variant, make_grid
from satl.experiments.results import COLUMNS

PAGE = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text(encoding="utf-8")


def test_the_grid_of_the_guide_can_be_run_as_it_stands():
    scenes, coco = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    published = run_configs(make_grid(yaml.safe_load(coco), "docs"), Path(), "docs")
    assert len(published) == 7 * 6 * 3
    assert {config.model.backbone for config in published.values()} == {"resnet101"}
    grid = make_grid(yaml.safe_load(scenes), "docs/experiments.md")
    configs = run_configs(grid, Path(), "docs/experiments.md")
    assert len(configs) == 13 * 3 * 3 + 3 + 2 * (5 + 4 + 3)
    assert {config.training.device for config in configs.values()} == {"cpu"}
    swept = [
        config.resolved()["method"] for grid_run, config in configs.items() if "rate=" in grid_run.variant
    ]
    rates = {method["thresholds"]["rate"] for method in swept}
    assert rates == {0.1, 0.3, 0.5, 0.7, 0.9}


def test_every_key_and_column_is_explained():
    for model in (Grid, Variant, Sweep):
        for key in model.model_fields:
            assert f"`{key}`" in PAGE, key
    for column in COLUMNS:
        assert f"`{column.replace('_micro', '')}`" in PAGE, column

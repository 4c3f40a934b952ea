"""The grids on frozen features can be run as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from satl.experiments.configs import run_configs
from satl.experiments.grid import make_grid

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
FOLDER = EXPERIMENTS / "features"


@pytest.mark.parametrize(
    ("folder", "name", "grid_runs"),
    [
        ("features", "main", 90),
        ("features", "tuning", 150),
        ("features", "tuning_rules", 81),
        ("features", "rules", 120),
        ("coco2014_features", "main", 63),
        ("coco2014_features", "rules", 72),
    ],
)
def test_every_run_has_a_configuration(folder: str, name: str, grid_runs: int) -> None:
    grid = make_grid(yaml.safe_load((EXPERIMENTS / folder / f"{name}.yaml").read_text()), name)
    configs = run_configs(grid, EXPERIMENTS / folder, name)
    assert len(configs) == grid_runs
    tuning = name.startswith("tuning")
    for config in configs.values():
        assert config.on_features
        assert config.data.use_test != tuning
        assert not tuning or config.data.validation_labels == "known"
        assert config.training.checkpoint_epochs >= config.training.epochs
    assert f"| {grid_runs} |" in (EXPERIMENTS / folder / "README.md").read_text()


def test_the_rules_of_both_data_sets_have_the_same_settings() -> None:
    """What was chosen on 18 classes is what 80 classes are tested with."""
    grids = [
        yaml.safe_load((EXPERIMENTS / name / "rules.yaml").read_text())
        for name in ("features", "coco2014_features")
    ]
    assert grids[0]["variants"] == grids[1]["variants"]
    assert grids[0]["method_settings"] == grids[1]["method_settings"]
    chosen = {variant["name"]: variant["set"] for variant in grids[0]["variants"]}
    tried = yaml.safe_load((FOLDER / "tuning_rules.yaml").read_text())["variants"]
    names = {
        "linear": "linear75",
        "linear-tuned": "linear3",
        "fixed": "fixed5",
        "flexmatch": "flexmatch7",
        "cap": "cap",
    }
    names |= {
        "mat": "mat5",
        "precision": "precision97",
        "shrunk": "shrunk8",
        "sate-plus": "plus9",
        "none": "none",
    }
    for name, candidate in names.items():
        (settings,) = (variant["set"] for variant in tried if variant["name"] == candidate)
        assert chosen[name] == settings
    # 0.5 is the rate that satl+ has anyway.
    (settings,) = (variant["set"] for variant in tried if variant["name"] == "sate5")
    assert [*chosen["sate"], "method.thresholds.rate=0.5"] == settings


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

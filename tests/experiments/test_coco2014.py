"""The grids of MS-COCO 2014 and of VG-200 can be run as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from satl.experiments.configs import run_configs
from satl.experiments.grid import read_grid

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
SIX = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)


@pytest.mark.parametrize(
    ("name", "grid_runs"),
    [
        ("table1", 162),
        ("controls", 63),
        ("rules", 78),
        ("drl", 30),
        ("sweeps", 22),
        ("tuning", 30),
        ("plus", 117),
        ("short", 36),
        ("short_tuning", 12),
        ("at224", 87),
        ("reduction", 120),
    ],
)
def test_every_run_has_a_configuration(name: str, grid_runs: int) -> None:
    folder = EXPERIMENTS / "coco2014"
    grid = read_grid(folder / f"{name}.yaml")
    configs = run_configs(grid, folder, name)
    assert len(configs) == grid_runs
    for config in configs.values():
        assert config.model.backbone == "resnet50"
        assert config.training.epochs == (4 if name.startswith("short") else 5 if name == "tuning" else 10)
        assert config.data.use_test == ("tuning" not in name)
        assert config.data.validation_labels == "known"
    assert grid.models == "none"
    assert f"| {grid_runs} |" in (folder / "README.md").read_text(encoding="utf-8")


def test_the_controls_have_what_satl_plus_has() -> None:
    for data, proportions in (("coco18", SIX), ("coco2014", (0.1, 0.2, 0.5))):
        folder = EXPERIMENTS / data
        configs = run_configs(read_grid(folder / "controls.yaml"), folder, "controls")
        plus = {run: config for run, config in configs.items() if run.method == "satl+"}
        alike = {run: config for run, config in configs.items() if run.variant == "alike+"}
        for method in ("ignore", "ssgrl", "sst+satl"):
            found = {run.proportion for run in alike if run.method == method}
            assert found == {*proportions, *([1.0] if method == "ignore" else [])}
        teacher = next(iter(plus.values()))
        for config in alike.values():
            assert config.images == teacher.images
            assert config.model == teacher.model
            assert config.training.ema == teacher.method.teacher["decay"]
            assert config.method.losses["mixed_known"]["weight"] > 0


@pytest.mark.parametrize("data", ["coco18", "coco2014"])
def test_every_rule_is_in_the_shoot_out(data: str) -> None:
    folder = EXPERIMENTS / data
    configs = run_configs(read_grid(folder / "rules.yaml"), folder, "rules")
    rules = {config.method.thresholds["rule"] for run, config in configs.items() if run.method == "sst"}
    published = {"linear", "fixed", "flexmatch", "cap", "mat", "precision", "learned", "semantic"}
    assert rules == {*published, "shrunk"}
    assert {run.method for run in configs} >= {"asl", "splc", "large-loss", "curriculum"}


def test_visual_genome_starts_from_the_published_settings() -> None:
    folder = EXPERIMENTS / "vg200"
    configs = run_configs(read_grid(folder / "table1.yaml"), folder, "table1")
    assert len(configs) == 162
    assert "| 162 |" in (folder / "README.md").read_text(encoding="utf-8")
    assert {run.proportion for run in configs} == set(SIX)
    for config in configs.values():
        assert config.data.dataset == "vg200"
        assert config.model.backbone == "resnet101"
        assert config.images.size == 448


def test_no_grid_is_without_a_row_of_its_readme() -> None:
    for file in EXPERIMENTS.glob("*/*.yaml"):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        if "methods" in content and "seeds" in content:
            count = len(read_grid(file).runs())
            readme = (file.parent / "README.md").read_text(encoding="utf-8")
            (row,) = (line for line in readme.splitlines() if line.startswith(f"| `{file.name}` |"))
            assert row.endswith(f"| {count} |"), file


def test_a_tuned_sst_is_the_same_in_every_grid() -> None:
    """What ``controls.yaml`` calls tuned is what the other grids lower SST to."""
    for data in ("coco18", "coco2014"):
        folder = EXPERIMENTS / data
        tuned = {
            name: next(
                config.method.thresholds
                for run, config in run_configs(read_grid(folder / f"{name}.yaml"), folder, name).items()
                if run.method == "sst" and run.variant == variant
            )
            for name, variant in (("controls", "tuned"), ("rules", "linear-tuned"), ("drl", ""))
        }
        kept = [{key: tuned[name][key] for key in ("update_every", "step", "end")} for name in tuned]
        assert kept[0] == kept[1] == kept[2]

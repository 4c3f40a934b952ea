from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from experiments.grids import BASE, grid_of
from satl.errors import ConfigError
from satl.experiments.configs import (
    check_paths,
    dataset_name,
    resolve_grid,
    run_configs,
)
from satl.runs.config import RunConfig, changed_settings
from satl.runs.reading import apply_overrides


def configs_of(folder: Path = Path(), **changes: object) -> dict[str, RunConfig]:
    grid = grid_of(**changes)
    return {grid_run.name: config for grid_run, config in run_configs(grid, folder, "grid.yaml").items()}


def test_every_run_has_its_method_proportion_seed_and_settings():
    configs = configs_of(
        method_settings={"sst*": ["method.losses.contrast.weight=0.005"], "sst": ["training.epochs=4"]},
        sweeps=[{"key": "method.thresholds.rate", "values": [0.3], "methods": ["sst+satl"], "seeds": [1]}],
    )
    sst, satl = configs["sst-p30-s1"], configs["sst+satl-p30-s1-rate=0.3"]
    assert (sst.method.name, sst.data.proportion, sst.training.seed) == ("sst", 0.3, 1)
    assert (sst.training.epochs, configs["ignore-p30-s1"].training.epochs) == (4, 3)
    assert sst.method.losses["contrast"] == satl.method.losses["contrast"] == {"weight": 0.005}
    assert satl.method.thresholds["rate"] == 0.3
    # The pictures are the same whatever the seed; only mask, weights and order follow it.
    assert configs["sst-p30-s0"].data.scenes == sst.data.scenes


def test_parameters_of_the_base_belong_to_its_own_method():
    configs = configs_of(base={**BASE, "method": {"name": "sst", "thresholds": {"end": 0.5}}})
    assert configs["sst-p30-s0"].method.thresholds["end"] == 0.5
    assert configs["ignore-p30-s0"].method.thresholds == {}


def test_a_base_may_be_a_file_or_a_file_for_each_method(tmp_path):
    (tmp_path / "bases").mkdir()
    for method, epochs in (("ignore", 4), ("sst", 5)):
        plain = apply_overrides(BASE, [f"training.epochs={epochs}", f"method.name={method}"])
        plain["data"] = {"table": "labels.csv", "images": "../photos"}
        (tmp_path / "bases" / f"{method}.yaml").write_text(yaml.safe_dump(plain))
    one = configs_of(tmp_path, base="bases/sst.yaml")
    assert {config.training.epochs for config in one.values()} == {5}
    config = one["ignore-p30-s0"]
    assert config.data.table == tmp_path / "bases" / "labels.csv"
    assert config.data.images == tmp_path / "photos"
    each = configs_of(tmp_path, base="bases/{method}.yaml")
    assert (each["ignore-p30-s0"].training.epochs, each["sst-p30-s0"].training.epochs) == (4, 5)
    with pytest.raises(
        ConfigError, match=r"none\.yaml: cannot be read .*give the YAML file of a run as base"
    ):
        configs_of(tmp_path, base="none.yaml")


def test_the_folder_of_a_text_model_is_relative_to_the_grid_and_a_name_stays_one(tmp_path):
    grid = grid_of(base={**BASE, "model": {**BASE["model"], "text_model": "./sentences"}})
    configs = run_configs(grid, tmp_path, "grid.yaml")
    assert {config.model.text_model for config in configs.values()} == {str(tmp_path / "sentences")}
    assert resolve_grid(grid, tmp_path, configs).base["model"]["text_model"] == str(tmp_path / "sentences")
    named = configs_of(tmp_path, base={**BASE, "model": {**BASE["model"], "text_model": "a/name"}})
    assert {config.model.text_model for config in named.values()} == {"a/name"}


def test_every_method_may_start_from_its_own_recipe(tmp_path):
    grid = grid_of(
        recipe="coco",
        methods=["ssgrl", "hst+satl"],
        base={"data": {"root": "coco"}, "training": {"epochs": 6}, "method": {"name": "ssgrl"}},
    )
    configs = run_configs(grid, tmp_path, "grid.yaml")
    by_name = {grid_run.name: config for grid_run, config in configs.items()}
    hst, ssgrl = by_name["hst+satl-p30-s0"], by_name["ssgrl-p30-s0"]
    assert (hst.method.name, hst.training.batch_size, hst.images.size) == ("hst+satl", 32, 448)
    assert hst.model_dump(exclude={"training", "method", "data"}) != ssgrl.model_dump()
    assert {config.training.epochs for config in configs.values()} == {6}
    assert hst.data.root == tmp_path / "coco"
    resolved = resolve_grid(grid, tmp_path, configs)
    assert (resolved.recipe, resolved.dataset) == ("coco", "MS-COCO")
    assert run_configs(resolved, Path("/elsewhere"), "grid.yaml") == configs
    with pytest.raises(
        ConfigError, match=r"grid\.yaml: recipe: there is none for 'cocos' \(did you mean 'coco'\?\)"
    ):
        run_configs(grid_of(recipe="cocos"), tmp_path, "grid.yaml")
    with pytest.raises(ConfigError, match="give base, the run configuration of every run, or recipe"):
        grid_of(base=None)


def test_a_resolved_grid_stands_alone(tmp_path):
    base = {**BASE, "data": {"table": "labels.csv", "images": "."}}
    grid = grid_of(base=base)
    configs = run_configs(grid, tmp_path, "grid.yaml")
    resolved = resolve_grid(grid, tmp_path, configs)
    assert resolved.dataset == "labels"
    assert run_configs(resolved, Path("/elsewhere"), "grid.yaml") == configs
    (tmp_path / "sst.yaml").write_text(yaml.safe_dump(BASE))
    grid = grid_of(base="{method}.yaml", methods=["sst"])
    resolved = resolve_grid(grid, tmp_path, run_configs(grid, tmp_path, "grid.yaml"))
    assert resolved.base == str(tmp_path / "{method}.yaml")
    assert resolved.dataset == "scenes"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"methods": ["ignore", "sts"]},
            r"grid\.yaml: methods: there is no method 'sts' \(did you mean 'sst'\?\)",
        ),
        (
            {"base": {**BASE, "training": {"epochz": 1}}},
            r"grid\.yaml, run ignore-p30-s0: there is no key 'training\.epochz' \(did you mean 'epochs'\?\)",
        ),
        (
            {"variants": [{"name": "x", "set": ["method.thresholds.rate=0.1"], "methods": ["sst"]}]},
            r"run sst-p30-s0-x: method\.thresholds: there is no key 'rate'",
        ),
        (
            {"sweeps": [{"key": "training.lr", "values": [0.1, -1]}]},
            r"run ignore-p30-s0-lr=-1: training\.lr",
        ),
    ],
)
def test_a_mistake_in_any_run_is_found_and_named(changes, message):
    with pytest.raises(ConfigError, match=message):
        configs_of(**changes)


def test_missing_files_are_found_before_anything_runs(tmp_path):
    (tmp_path / "labels.csv").write_text("image,cat\n")
    grid = grid_of(base={**BASE, "data": {"table": "labels.csv", "images": "photos"}})
    configs = run_configs(grid, tmp_path, "grid.yaml")
    with pytest.raises(ConfigError, match=r"run ignore-p30-s0: data\.images: .*photos does not exist; fix"):
        check_paths(configs, "grid.yaml")
    (tmp_path / "photos").mkdir()
    check_paths(configs, "grid.yaml")


def test_changed_settings_are_named_and_harmless_ones_are_not():
    plain = configs_of()["sst-p30-s0"]
    assert changed_settings(plain, plain) == []
    harmless = [
        "images.workers=2",
        "images.gpu_cache_gb=1",
        "training.checkpoint_steps=null",
        "training.checkpoint_epochs=5",
    ]
    other = configs_of(
        base=apply_overrides(BASE, ["training.lr=0.01", *harmless, "model.pool=2"]), models="none"
    )["sst-p30-s0"]
    assert changed_settings(plain, other) == [
        "model.pool (was 1, now 2)",
        "training.lr (was 0.003, now 0.01)",
    ]


def test_the_name_of_the_data_set(tmp_path):
    config = configs_of()["sst-p30-s0"]
    assert dataset_name(grid_of(), config) == "scenes"
    assert dataset_name(grid_of(dataset="MS-COCO"), config) == "MS-COCO"

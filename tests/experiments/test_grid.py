from __future__ import annotations

import pytest
import yaml

from experiments.grids import content, grid_of, write_grid
from satl.errors import ConfigError
from satl.experiments.grid import GridRun, choose_runs, make_grid, read_grid
from satl.runs.settings import parse_setting


def names(grid_runs):
    return [grid_run.name for grid_run in grid_runs]


def test_plain_runs_come_seed_by_seed_so_that_early_results_compare_all_methods():
    grid = grid_of(methods=["ignore", "sst+satl"], proportions=[0.05, 0.5], seeds=[3, 1])
    assert names(grid.runs()) == [
        "ignore-p5-s3",
        "sst+satl-p5-s3",
        "ignore-p50-s3",
        "sst+satl-p50-s3",
        "ignore-p5-s1",
        "sst+satl-p5-s1",
        "ignore-p50-s1",
        "sst+satl-p50-s1",
    ]


def test_variants_and_sweeps_follow_with_their_own_limits():
    grid = grid_of(
        variants=[{"name": "hot", "set": ["training.lr=0.1"], "methods": ["ignore"], "seeds": [1]}],
        sweeps=[
            {
                "key": "method.thresholds.rate",
                "values": [0.1, 0.5],
                "methods": ["sst+sate"],
                "proportions": [0.2],
                "seeds": [0],
                "set": ["method.thresholds.bins=64"],
            }
        ],
        method_settings={"sst*": ["method.losses.contrast.weight=0"], "*": ["training.epochs=2"]},
    )
    extra = grid.runs()[4:]
    assert names(extra) == ["ignore-p30-s1-hot", "sst+sate-p20-s0-rate=0.1", "sst+sate-p20-s0-rate=0.5"]
    assert extra[0].settings == {"training.lr": 0.1}
    assert extra[0].common == ("training.epochs=2",)
    assert extra[2].settings == {"method.thresholds.bins": 64, "method.thresholds.rate": 0.5}
    assert extra[2].common == ("method.losses.contrast.weight=0", "training.epochs=2")
    assert grid.all_methods == ("ignore", "sst", "sst+sate")


@pytest.mark.parametrize("value", [0.001, 1e-5, 3, True, None, "linear", [1, 2]])
def test_a_sweep_value_survives_its_way_through_a_setting(value):
    sweep = grid_of(sweeps=[{"key": "a.b", "values": [value]}]).sweeps[0]
    assert parse_setting(sweep.setting(value)) == ("a.b", value)


def test_a_written_grid_reads_back_the_same(tmp_path):
    grid = grid_of(sweeps=[{"key": "method.thresholds.rate", "values": [0.1]}], methods=["sst+satl"])
    path = tmp_path / "grid.yaml"
    path.write_text(yaml.safe_dump(grid.model_dump(mode="json")))
    assert read_grid(path) == grid
    assert read_grid(write_grid(tmp_path / "other.yaml")).runs() == grid_of().runs()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": ["sst"]}, r"grid.yaml: there is no key 'method' \(did you mean 'methods'\?\)"),
        ({"variants": [{"nam": "x", "set": ["a.b=1"]}]}, r"no key 'variants.1.nam' \(did you mean 'name'"),
        ({"sweeps": [{"keys": "a.b", "values": [1]}]}, r"no key 'sweeps.1.keys' \(did you mean 'key'"),
        ({"seeds": []}, "seeds: list should have at least 1 item"),
        ({"seeds": 3}, r"seeds: input should be a valid list \(got 3\)"),
        ({"seeds": [-1]}, "seeds.1: .*greater than or equal to 0.*-1"),
        ({"seeds": [0, 0]}, "seeds: 0 is listed twice"),
        ({"proportions": [0.0]}, "proportions.1"),
        ({"proportions": [10]}, "proportions.1: .*less than or equal to 1.*10"),
        ({"models": "some"}, "models: .*'all', 'best' or 'none'.*'some'"),
        ({"methods": ["a/b"]}, "methods.1: use letters, digits"),
        ({"variants": [{"name": "x", "set": ["epochs"]}]}, "write it as section.key=value"),
        ({"variants": [{"name": "x", "set": ["a.b=[1,"]}]}, "the value is not valid YAML"),
        ({"variants": [{"name": "x", "set": ["training.seed=3"]}]}, "decided by seeds of the grid"),
        ({"sweeps": [{"key": "data.proportion", "values": [0.1]}]}, "decided by proportions of the grid"),
        ({"method_settings": {"hst*": ["a.b=1"]}}, "'hst\\*' fits no method of the grid"),
        (
            {"methods": ["sst", "hst"], "method_settings": {"sst": ["data.mask_seed=7"]}},
            "data.mask_seed would give 'sst' other data than hst, .* set it in the base, or as a variant",
        ),
        (
            {"variants": [{"name": "x", "set": ["a.b=1"]}, {"name": "x", "set": ["a.b=2"]}]},
            "ignore-p30-s0-x is listed twice",
        ),
        (
            {"variants": [{"name": "x", "set": ["a.b=1"]}, {"name": "X", "set": ["a.b=2"]}]},
            "ignore-p30-s0-x is listed twice",
        ),
    ],
)
def test_a_wrong_key_or_value_is_one_sentence(changes, message):
    with pytest.raises(ConfigError, match=message) as caught:
        make_grid(content(**changes), "grid.yaml")
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_a_missing_key(tmp_path):
    plain = content()
    del plain["methods"]
    with pytest.raises(ConfigError, match="the key 'methods' is missing; add it"):
        make_grid(plain, "grid.yaml")
    (tmp_path / "g.yaml").write_text("- 1\n")
    with pytest.raises(ConfigError, match=r"g\.yaml: must hold keys"):
        read_grid(tmp_path / "g.yaml")
    (tmp_path / "g.yaml").write_text("a: [1,\nb: {")
    with pytest.raises(ConfigError, match=r"g\.yaml: is not valid YAML at line 2"):
        read_grid(tmp_path / "g.yaml")
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
        read_grid(tmp_path / "none.yaml")


def test_choosing_runs_by_pattern():
    grid_runs = (GridRun("sst", 0.1, 0), GridRun("sst+satl", 0.1, 0), GridRun("sst", 0.2, 1))
    assert choose_runs(grid_runs, []) == grid_runs
    assert choose_runs(grid_runs, ["sst-*", "*-p10-*"]) == (grid_runs[0], grid_runs[2], grid_runs[1])
    assert choose_runs(grid_runs, ["sst-*"]) == (grid_runs[0], grid_runs[2])
    with pytest.raises(
        ConfigError,
        match=r"only='sst-p10-s9': matches no run.*did you mean 'sst-p10-s0'.*names look like sst-p10-s0",
    ):
        choose_runs(grid_runs, ["sst-p10-s9"])

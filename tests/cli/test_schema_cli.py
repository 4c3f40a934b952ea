"""``satl schema``: every configuration of the project fits it, and what satl refuses as a key does not."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from satl.cli import add_commands
from satl.errors import ConfigError
from satl.labels.datasets import DATASETS
from satl.methods import METHODS
from satl.parsing import parse_yaml
from satl.recipes import read_recipe, recipe_names
from satl.runs.reading import make_config

jsonschema = pytest.importorskip("jsonschema")
ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "experiments").rglob("*.yaml"))


def made(*arguments: str) -> Any:
    app = typer.Typer()
    add_commands(app, "schema")
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    schema = json.loads(result.output)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.fixture(scope="module")
def run() -> Any:
    return made()


@pytest.fixture(scope="module")
def grid() -> Any:
    return made("grid")


def problems(validator: Any, content: Any) -> list[str]:
    return [
        f"{'.'.join(map(str, error.absolute_path))}: {error.message[:200]}"
        for error in validator.iter_errors(content)
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_experiments_fit(file: Path, run: Any, grid: Any) -> None:
    content = parse_yaml(file.read_text(encoding="utf-8"))
    assert problems(grid if "methods" in content else run, content) == []


def test_recipes_fit(run: Any) -> None:
    names = recipe_names()
    assert names
    for name in names:
        assert problems(run, read_recipe(name)) == [], name


def test_the_demo_fits(run: Any) -> None:
    content = yaml.safe_load((ROOT / "src/satl/demo/demo.yaml").read_text(encoding="utf-8"))
    common = {name: content[name] for name in ("data", "images", "model", "training")}
    for name, settings in content["methods"].items():
        assert problems(run, {**common, "method": {"name": name, **settings}}) == []


def doc_blocks() -> Iterator[tuple[str, str]]:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        for margin, block in re.findall(r"^( *)```yaml[^\n]*\n(.*?)^\1```$", text, re.DOTALL | re.MULTILINE):
            yield page.name, re.sub(rf"^{margin}", "", block, flags=re.MULTILINE)


def test_blocks_of_the_pages_fit(run: Any, grid: Any) -> None:
    found = list(doc_blocks())
    assert len(found) > 10
    for page, block in found:
        content = yaml.safe_load(block)
        is_grid = {"methods", "grid", "base"} & set(content)
        assert problems(grid if is_grid else run, content) == [], f"{page}: {block}"


def resolved(name: str, **data: Any) -> dict[str, Any]:
    return make_config({"data": data or {"scenes": {}}, "method": {"name": name}}, "test").resolved()


@pytest.mark.parametrize("name", list(METHODS))
def test_the_resolved_configuration_of_every_method_fits(name: str, run: Any) -> None:
    assert problems(run, resolved(name)) == []
    try:
        on_vectors = resolved(name, table="t.csv", features="f.npz")
    except ConfigError:
        return
    assert problems(run, on_vectors) == []


def keys(content: Any, *place: str) -> Iterator[tuple[str, ...]]:
    if isinstance(content, dict):
        for name, value in content.items():
            yield (*place, name)
            yield from keys(value, *place, name)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_misspelt_key_fails(name: str, run: Any) -> None:
    """Each key of each method's parts, and with the first method each key of all sections."""
    content = resolved(name)
    wanted = content if name == next(iter(METHODS)) else {"method": content["method"]}
    places = [place for place in keys(wanted) if place[:2] != ("model", "backbone_args")]
    assert len(places) > 3
    for *outer, last in places:
        changed = copy.deepcopy(wanted)
        inner = changed
        for part in outer:
            inner = inner[part]
        if (*outer, last) == ("method", "name"):
            continue  # without it the keys of another method are meant
        inner[f"{last}x"] = inner.pop(last)
        assert problems(run, changed), ".".join((*outer, last))


@pytest.mark.parametrize(
    "method",
    [
        {"name": "sst+satll"},
        {"name": "ignore", "thresholds": {"rate": 0.4}},
        {"thresholds": {"rule": "no such rule"}},
        {"thresholds": {"rate": "much"}},
        {"name": "sst", "generators": {"prototype": {}}},
        {"losses": {"cooccurrence": {"weight": -1}}},
    ],
)
def test_what_a_method_cannot_have_fails(method: dict[str, Any], run: Any) -> None:
    assert problems(run, {"method": method})
    with pytest.raises(ConfigError):
        make_config({"data": {"scenes": {}}, "method": method}, "test")


def test_another_rule_brings_its_own_keys(run: Any) -> None:
    assert problems(run, {"method": {"name": "sst", "thresholds": {"rule": "mat", "beta": 0.5}}}) == []
    assert problems(run, {"method": {"name": "sst", "thresholds": {"rule": "mat", "betta": 0.5}}})


def test_options_of_data_sets_are_keys(run: Any) -> None:
    for dataset in DATASETS.values():
        for option in dataset.options:
            assert problems(run, {"data": {"dataset": dataset.name, option.name: option.default}}) == []


def test_a_grid_is_checked_inside(grid: Any) -> None:
    content = {"base": {"training": {"epochs": 1}}, "methods": ["sst"], "proportions": [0.1], "seeds": [0]}
    assert problems(grid, content) == []
    assert problems(grid, {**content, "base": {"training": {"epoch": 1}}})
    assert problems(grid, {**content, "methods": ["sstt"]})
    assert problems(grid, {**content, "seed": [0]})
    assert problems(grid, {"base": "run.yaml"})


def test_a_file_is_written_once(tmp_path: Path) -> None:
    app = typer.Typer()
    add_commands(app, "schema")
    file = tmp_path / "grid.schema.json"
    assert CliRunner().invoke(app, ["grid", "-o", str(file)]).exit_code == 0
    assert json.loads(file.read_text(encoding="utf-8")) == made("grid").schema
    again = CliRunner().invoke(app, ["-o", str(file)])
    assert isinstance(again.exception, ConfigError)
    assert "exists" in str(again.exception)
    assert CliRunner().invoke(app, ["-o", str(file), "--force"]).exit_code == 0
    assert json.loads(file.read_text(encoding="utf-8")) == made().schema

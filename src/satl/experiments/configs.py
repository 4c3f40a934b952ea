"""The run configuration of every grid run; a mistake in any of them is found before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from satl.errors import ConfigError, nearest
from satl.experiments.grid import Grid, GridRun
from satl.experiments.paper_numbers import paper
from satl.methods import get_method
from satl.runs.config import RunConfig
from satl.runs.reading import absolute_path, apply_overrides, make_absolute, own_config, path_keys
from satl.runs.settings import read_yaml
from satl.runs.settling import settled

_METHOD = "{method}"


def resolve_grid(grid: Grid, folder: Path, configs: Mapping[GridRun, RunConfig]) -> Grid:
    """Return the grid with base, paths and name of the data set written out, so that it needs no other file.

    A base with ``{method}`` in its name stays a name: there is one file for each method.

    Args:
        grid: as the user wrote it.
        folder: that relative paths in it are relative to.
        configs: configurations of its grid runs.
    """
    dataset = dataset_name(grid, next(iter(configs.values())))
    base: Any
    if isinstance(grid.base, str) and _METHOD in grid.base:
        base = absolute_path(folder, grid.base, "base")
    else:
        base = _own_base(grid, folder, grid.methods[0])
    return grid.model_copy(update={"base": base, "dataset": dataset})


def run_configs(grid: Grid, folder: Path, origin: str) -> dict[GridRun, RunConfig]:
    """Build the configuration of every grid run.

    Args:
        grid: the experiment.
        folder: that relative paths in the grid are relative to.
        origin: the grid's name in messages.

    Raises:
        ConfigError: the first run that cannot be built, and why.
    """
    for method in grid.all_methods:
        try:
            get_method(method)
        except ConfigError as error:
            raise ConfigError(f"{origin}: {str(error).replace('method.name', 'methods', 1)}") from error
    bases = {method: _base(grid, folder, method, origin) for method in grid.all_methods}
    return {grid_run: _run_config(grid_run, bases[grid_run.method], origin) for grid_run in grid.runs()}


def _run_config(grid_run: GridRun, base: Mapping[str, Any], origin: str) -> RunConfig:
    # The parameters of a method mean nothing to another one.
    content = apply_overrides(base, ())
    method = content.get("method")
    if not (isinstance(method, dict) and method.get("name") == grid_run.method):
        content["method"] = {"name": grid_run.method}
    axes = (f"data.proportion={grid_run.proportion!r}", f"training.seed={grid_run.seed}")
    content = apply_overrides(content, (*axes, *grid_run.common, *grid_run.own))
    make_absolute(content, Path.cwd())
    return settled(own_config(content, f"{origin}, run {grid_run.name}"))


def _base(grid: Grid, folder: Path, method: str, origin: str) -> dict[str, Any]:
    """Return what the runs of a method start from: its recipe, if there is one, and the base over it."""
    own = _own_base(grid, folder, method)
    if grid.recipe is None:
        return own
    from satl.recipes import read_recipe, recipe_datasets

    if grid.recipe not in (known := recipe_datasets()):
        raise ConfigError(
            f"{origin}: recipe: there is none for '{grid.recipe}'{nearest(grid.recipe, known)}; known: "
            f"{', '.join(known)}."
        )
    if (own.get("method") or {}).get("name", method) != method:
        del own["method"]
    return _laid_over(read_recipe(f"{grid.recipe}/{method}"), own)


def _laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return both together; where they differ, what is above counts.

    >>> _laid_over({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}, "d": 4})
    {'a': {'b': 1, 'c': 3}, 'd': 4}
    """
    joined = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(joined.get(key), Mapping)
        joined[key] = _laid_over(joined[key], value) if both else value
    return joined


def _own_base(grid: Grid, folder: Path, method: str) -> dict[str, Any]:
    if isinstance(grid.base, str):
        path = Path(absolute_path(folder, grid.base.replace(_METHOD, method), "base"))
        content = read_yaml(path, "the YAML file of a run as base")
        make_absolute(content, path.parent)
        return content
    content = apply_overrides(grid.base or {}, ())
    make_absolute(content, folder)
    return content


def check_paths(configs: Mapping[GridRun, RunConfig], origin: str) -> None:
    """Raise if a file or folder that a run will read is not there."""
    seen: set[Path] = set()
    for grid_run, config in configs.items():
        for keys in path_keys():
            value: Any = config
            for key in keys:
                value = None if value is None else getattr(value, key)
            if isinstance(value, Path) and value not in seen:
                seen.add(value)
                if not value.exists():
                    raise ConfigError(
                        f"{origin}, run {grid_run.name}: {'.'.join(keys)}: {value} does not exist; fix this path."
                    )


def dataset_name(grid: Grid, config: RunConfig) -> str:
    """Return the name of the data set in tables: that of the grid, or of the data; the paper's name where it has one.

    >>> from satl.experiments.grid import make_grid
    >>> plain = {"base": {}, "methods": ["sst"], "proportions": [0.1], "seeds": [0]}
    >>> dataset_name(make_grid({**plain, "dataset": "mine"}, "here"), own_config({"data": {"scenes": {}}}, "here"))
    'mine'
    """
    if grid.dataset is not None:
        return grid.dataset
    name = data_name(config.resolved()["data"])
    return paper().same_dataset(name) or name if config.data.dataset is not None else name


def data_name(data: Mapping[str, Any]) -> str:
    """Return the name of a run's data from the section ``data`` of its configuration, as plain data.

    >>> data_name({"dataset": "coco"}), data_name({"table": "/data/mine.csv"}), data_name({"scenes": {"train": 9}})
    ('coco', 'mine', 'scenes')
    """
    if data.get("dataset"):
        return str(data["dataset"])
    return Path(str(data["table"])).stem if data.get("table") else "scenes"

"""The grid file of an experiment: methods x proportions x seeds, variants and sweeps, and the runs they give."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from satl.errors import Argument, ConfigError, nearest
from satl.runs.settings import parse_setting, read_yaml, validation_error

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=+-]*")
_AXES = {"method.name": "methods", "data.proportion": "proportions", "training.seed": "seeds"}


def _check_setting(text: str) -> str:
    key, _ = parse_setting(text)
    if key in _AXES:
        raise ValueError(f"{key} is decided by {_AXES[key]} of the grid")
    return text


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("use letters, digits and . _ = + - only, beginning with a letter or digit")
    return name


def _check_unique(items: tuple[Any, ...]) -> tuple[Any, ...]:
    twice = next((item for i, item in enumerate(items) if item in items[:i]), None)
    if twice is not None:
        raise ValueError(f"{twice} is listed twice")
    return items


Setting = Annotated[str, AfterValidator(_check_setting)]
Name = Annotated[str, AfterValidator(_check_name)]
Proportion = Annotated[float, Field(gt=0, le=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Methods = Annotated[tuple[Name, ...], AfterValidator(_check_unique)]
Proportions = Annotated[tuple[Proportion, ...], AfterValidator(_check_unique)]
Seeds = Annotated[tuple[Seed, ...], AfterValidator(_check_unique)]
Models = Literal["all", "best", "none"]
"""Which checkpoints of a finished run are kept: best and last, best, or neither."""


class GridSection(BaseModel):
    """A section of a grid file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Restriction(GridSection):
    """Methods, proportions and seeds that a variant or sweep is restricted to."""

    methods: Methods | None = Field(None, min_length=1, description="Methods; all of the grid if not given.")
    proportions: Proportions | None = Field(None, min_length=1, description="Proportions; likewise.")
    seeds: Seeds | None = Field(None, min_length=1, description="Seeds; likewise.")


class Variant(Restriction):
    """A named change of settings."""

    name: Name = Field(description="Ends the name of its runs.")
    set: tuple[Setting, ...] = Field(min_length=1, description="Settings, section.key=value each.")


class Sweep(Restriction):
    """One setting over a list of values."""

    key: str = Field(description="The setting, for example method.thresholds.rate.")
    values: tuple[Any, ...] = Field(min_length=1, description="The values it takes.")
    set: tuple[Setting, ...] = Field((), description="Further settings of all its runs.")

    @model_validator(mode="after")
    def _settings(self) -> Sweep:
        for value in self.values:
            _check_setting(self.setting(value))
        _check_unique(self.values)
        return self

    @property
    def title(self) -> str:
        """The last part of the key: ``rate`` for ``method.thresholds.rate``."""
        return self.key.rsplit(".", maxsplit=1)[-1]

    def setting(self, value: Any) -> str:
        """Return the setting of one value, in the words of ``--set``."""
        text = yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("\n...\n").strip()
        return f"{self.key}={text}"

    def variant(self, value: Any) -> str:
        """Return the name of the variant of one value."""
        return re.sub(r"[^A-Za-z0-9._=+-]+", "_", f"{self.title}={value}").strip("_")


@dataclass(frozen=True)
class GridRun:
    """A grid run: one method at one proportion with one seed, plain or with the settings of a variant.

    Attributes:
        method, proportion, seed: its place in the grid.
        variant: name of the variant or sweep value; empty for a plain run.
        common: settings of its method (``method_settings`` of the grid).
        own: settings of the variant.
    """

    method: str
    proportion: float
    seed: int
    variant: str = ""
    common: tuple[str, ...] = ()
    own: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of its folder.

        >>> GridRun("sst+satl", 0.1, 0).name, GridRun("sst", 0.05, 3, "rate=0.3").name
        ('sst+satl-p10-s0', 'sst-p5-s3-rate=0.3')
        """
        name = f"{self.method}-p{100 * self.proportion:.6g}-s{self.seed}"
        return f"{name}-{self.variant}" if self.variant else name

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the variant, as key and value."""
        return dict(map(parse_setting, self.own))


class Grid(GridSection):
    """An experiment: the plain runs are methods x proportions x seeds, then come variants and sweeps."""

    title: str = Field("Experiment", min_length=1, description="Heading of the report.")
    dataset: str | None = Field(
        None, min_length=1, description="Name of the data set in tables; by default that of the data."
    )
    recipe: Name | None = Field(
        None, description="Data set of the recipes (see `satl recipes`) that every method starts from."
    )
    base: str | dict[str, Any] | None = Field(
        None,
        description="Run configuration of every run: a file (relative to the grid; {method} in its name stands "
        "for the method) or the configuration itself; with a recipe, what is laid over it.",
    )
    methods: Methods = Field(min_length=1, description="See `satl methods`.")
    proportions: Proportions = Field(min_length=1, description="Shares of training labels to keep.")
    seeds: Seeds = Field(min_length=1, description="Each decides mask, weights and order of a run.")
    method_settings: dict[str, tuple[Setting, ...]] = Field(
        default_factory=dict, description="Settings of single methods; names may hold *, as in sst*."
    )
    variants: tuple[Variant, ...] = Field((), description="Named changes of settings.")
    sweeps: tuple[Sweep, ...] = Field((), description="Single settings over lists of values.")
    models: Models = Field(
        "all", description="Checkpoints of finished runs that are kept: best and last, best, or none."
    )

    @model_validator(mode="after")
    def _patterns(self) -> Grid:
        if self.base is None and self.recipe is None:
            raise ValueError("give base, the run configuration of every run, or recipe")
        used = self.all_methods
        for pattern in self.method_settings:
            if not any(fnmatchcase(method, pattern) for method in used):
                raise ValueError(
                    f"method_settings: '{pattern}' fits no method of the grid{nearest(pattern, used)}"
                )
            others = [method for method in used if not fnmatchcase(method, pattern)]
            for key, _ in map(parse_setting, self.method_settings[pattern]):
                if key.startswith("data.") and others:
                    # Tables pair methods by seed, because they see the same images and known labels.
                    raise ValueError(
                        f"method_settings: {key} would give '{pattern}' other data than {others[0]}, with which it is "
                        "compared; set it in the base, or as a variant"
                    )
        names = [grid_run.name for grid_run in self.runs()]
        _check_unique(tuple(names))
        # Some file systems take two names for one that differ only in capitals.
        _check_unique(tuple(name.lower() for name in names))
        return self

    @property
    def all_methods(self) -> tuple[str, ...]:
        """The methods of the plain runs, then those of variants and sweeps alone."""
        further = (method for part in (*self.variants, *self.sweeps) for method in part.methods or ())
        return tuple(dict.fromkeys((*self.methods, *further)))

    def runs(self) -> tuple[GridRun, ...]:
        """Return all grid runs in the order of running: seed by seed, so that early results compare all methods."""
        parts: list[tuple[str, tuple[str, ...], Restriction]] = [("", (), Restriction())]
        parts += [(one.name, one.set, one) for one in self.variants]
        parts += [
            (one.variant(value), (*one.set, one.setting(value)), one)
            for one in self.sweeps
            for value in one.values
        ]
        return tuple(grid_run for part in parts for grid_run in self._unfold(*part))

    def _unfold(self, variant: str, own: tuple[str, ...], limits: Restriction) -> Iterator[GridRun]:
        for seed in limits.seeds or self.seeds:
            for proportion in limits.proportions or self.proportions:
                for method in limits.methods or self.methods:
                    common = tuple(
                        setting
                        for pattern, settings in self.method_settings.items()
                        if fnmatchcase(method, pattern)
                        for setting in settings
                    )
                    yield GridRun(method, proportion, seed, variant, common, own)


def read_grid(path: Path | str) -> Grid:
    """Read a grid file and check its keys and values; configurations of runs are not built yet.

    Raises:
        ConfigError: the file cannot be read, a key is unknown, or a value does not fit.
    """
    return make_grid(read_yaml(Path(path), "the YAML file of an experiment"), str(path))


def make_grid(content: Mapping[str, Any], origin: str) -> Grid:
    """Validate plain data; ``origin`` is named in messages."""
    try:
        return Grid.model_validate(content)
    except ValidationError as error:
        raise validation_error(error, origin, Grid) from error


def choose_runs(grid_runs: Sequence[GridRun], patterns: Sequence[str]) -> tuple[GridRun, ...]:
    """Return the grid runs whose names match one of the patterns (``*`` and ``?``); all without a pattern.

    They are in the order of the patterns, so that patterns can also choose the order of running.

    >>> grid_runs = (GridRun("sst", 0.1, 0), GridRun("sst", 0.2, 0), GridRun("sst", 0.2, 1))
    >>> [grid_run.name for grid_run in choose_runs(grid_runs, ["*-s1", "*-p20-*"])]
    ['sst-p20-s1', 'sst-p20-s0']

    Raises:
        ConfigError: a pattern matches no run.
    """
    if not patterns:
        return tuple(grid_runs)
    chosen: dict[GridRun, None] = {}
    for pattern in patterns:
        matching = [grid_run for grid_run in grid_runs if fnmatchcase(grid_run.name, pattern)]
        if not matching:
            hint = nearest(pattern, [grid_run.name for grid_run in grid_runs])
            raise ConfigError(
                f"matches no run of the grid{hint}",
                where=Argument("only", pattern),
                remedy=f"names look like {grid_runs[0].name}",
            )
        chosen |= dict.fromkeys(matching)
    return tuple(chosen)

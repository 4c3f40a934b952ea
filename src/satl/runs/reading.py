"""Read and check run configurations: YAML files and ``section.key=value`` overrides."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from satl.errors import Argument, ConfigError, SatlWarning, first_line
from satl.files import atomic_path
from satl.models.class_prompts import PREFIX, is_folder_name, is_tower
from satl.remote.addresses import is_remote
from satl.remote.copies import trust
from satl.runs.config import RunConfig
from satl.runs.settings import parse_setting, read_yaml, section_model, validation_error
from satl.sections import Section

AnySection = TypeVar("AnySection", bound=Section)


def read_config(path: Path | str, overrides: Iterable[str] = ()) -> RunConfig:
    """Read a YAML file and apply ``a.b=c`` overrides.

    Relative paths in the file are relative to the file, those in overrides to the working folder.

    Raises:
        ConfigError: the file cannot be read, a key is unknown, or a value does not fit.
    """
    path = Path(path)
    content = read_yaml(path, "a YAML file with sections such as data and training")
    make_absolute(content, path.parent)
    return override_config(content, overrides, str(path))


def override_config(content: Mapping[str, Any], overrides: Iterable[str], origin: str) -> RunConfig:
    """Apply ``a.b=c`` overrides to plain data and validate it; relative paths are relative to the working folder."""
    result = apply_overrides(content, overrides)
    # A run is resumed and evaluated from any folder.
    make_absolute(result, Path.cwd())
    config = own_config(result, origin)
    if result.get("training", {}).get("tensorboard"):
        text = f"{origin}: training.tensorboard is now training.trackers: [tensorboard]."
        warnings.warn(SatlWarning(text), stacklevel=2)
    return config


def own_config(content: Mapping[str, Any], origin: str) -> RunConfig:
    """Validate plain data that the person at work has written; what it names behind addresses may be fetched."""
    config = make_config(content, origin)
    for place in config.data.remote.values():
        trust(str(place))
    return config


def apply_overrides(content: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Return ``content`` with ``section.key=value`` settings applied; values are read as YAML.

    >>> apply_overrides({"training": {"epochs": 20}}, ["training.epochs=3", "method.name=sst"])
    {'training': {'epochs': 3}, 'method': {'name': 'sst'}}
    """
    result = copy.deepcopy(dict(content))
    for override in overrides:
        try:
            name, value = parse_setting(override)
        except ValueError as error:
            raise ConfigError(f"{error}.", where=Argument("settings", override)) from error
        *sections, key = name.split(".")
        place = result
        for section in sections:
            if not isinstance(place.get(section), dict):
                place[section] = {}
            place = place[section]
        place[key] = value
    return result


def make_config(content: Mapping[str, Any], origin: str) -> RunConfig:
    """Validate plain data, such as that of a run folder from elsewhere; ``origin`` is named in messages."""
    try:
        return RunConfig.model_validate(content)
    except ValidationError as error:
        raise validation_error(error, origin, RunConfig) from error


def make_section(kind: type[AnySection], content: Any, name: str, origin: str) -> AnySection:
    """Validate one section that is no part of a run; ``name`` and ``origin`` are named in messages."""
    if not isinstance(content, Mapping):
        raise ConfigError(
            f"{name} must be a section of keys, not {content!r}", where=origin, remedy="fix this value"
        )
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise validation_error(error, origin, kind, prefix=f"{name}.") from error


def save_config(config: RunConfig, path: Path) -> None:
    """Write the resolved configuration as YAML, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(yaml.safe_dump(config.resolved(), sort_keys=False), encoding="utf-8")


def path_keys(model: type[BaseModel] = RunConfig, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the place of every path of a run configuration.

    >>> [".".join(keys) for keys in path_keys() if keys[0] == "data"]
    ['data.table', 'data.images', 'data.features', 'data.truth', 'data.root', 'data.holdout_from']
    """
    for name, field in model.model_fields.items():
        kinds = (field.annotation, *get_args(field.annotation))
        if Path in kinds:
            yield (*prefix, name)
        section = section_model(field.annotation)
        if section is not None:
            yield from path_keys(section, (*prefix, name))


def make_absolute(content: dict[str, Any], folder: Path) -> None:
    """Write out, in place, the relative paths of plain data; they are relative to ``folder``; addresses stay."""
    for *sections, key in path_keys():
        place: Any = content
        for section in sections:
            place = place.get(section) if isinstance(place, dict) else None
        if isinstance(place, dict) and isinstance(place.get(key), str) and not is_remote(place[key]):
            place[key] = absolute_path(folder, place[key], ".".join((*sections, key)))
    model = content.get("model")
    text = model.get("text_model") if isinstance(model, dict) else None
    if isinstance(model, dict) and isinstance(text, str):
        prefix = PREFIX if is_tower(text) else ""
        place = text.removeprefix(prefix)
        if is_folder_name(place):
            model["text_model"] = prefix + absolute_path(folder, place, "model.text_model")


def absolute_path(folder: Path, written: str, key: str) -> str:
    """Write a path out that is relative to ``folder``, or begins with a home folder.

    Raises:
        ConfigError: what is ``written`` under this key is no path.
    """
    try:
        return str((folder / Path(written).expanduser()).resolve())
    except (ValueError, OSError, RuntimeError) as error:  # a zero, a loop of links, nobody's home folder
        raise ConfigError(f"is no path ({first_line(error)})", where=key, remedy="fix this value") from None

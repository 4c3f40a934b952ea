"""Settings of a call: a configuration as a path or plain data, and single keys."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from satl.errors import Argument, ConfigError
from satl.inference.decision_thresholds import (
    DecisionThresholds,
    ThresholdsOfClasses,
    at_least,
    same_threshold,
)

Threshold = float | str | os.PathLike[str] | Mapping[str, float] | None
"""From which probability on a class is present: one number, a file, or one number for each class."""


def config_content(config: Any) -> tuple[dict[str, Any], str]:
    """Return a configuration as plain data, and what messages call it.

    Args:
        config: a YAML file, plain data, or None.
    """
    if config is None:
        return {}, "the settings"
    if isinstance(config, Mapping):
        return copy.deepcopy(dict(config)), "config"
    if not isinstance(config, str | os.PathLike):
        raise ConfigError(
            f"a {type(config).__qualname__} is no configuration",
            where=Argument("config"),
            remedy="give the path of a YAML file, or a dictionary of sections",
        )
    from satl.runs.reading import make_absolute
    from satl.runs.settings import read_yaml

    path = Path(config)
    content = read_yaml(path, "a YAML file with sections such as data and training")
    make_absolute(content, path.parent)
    return content, str(path)


def setting_words(settings: Mapping[str, Any] | None) -> list[str]:
    """Return single keys as ``section.key=value``.

    >>> setting_words({"training.epochs": 3, "data.images": Path("photos")})
    ['training.epochs=3', 'data.images="photos"']
    """
    if settings is None:
        return []
    if not isinstance(settings, Mapping):
        raise ConfigError(
            "is no dictionary", where=Argument("set", settings), remedy="write set={'training.epochs': 5}"
        )
    return [f"{key}={json.dumps(value, default=_plain)}" for key, value in settings.items()]


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic):
        return value.item()
    raise ConfigError(
        f"{value!r} is no plain value", where=Argument("set"), remedy="use numbers, texts, lists or paths"
    )


def thresholds_of(threshold: Threshold) -> ThresholdsOfClasses:
    """Return a function from the classes of a run to their thresholds; None: 0.5 for each.

    >>> thresholds_of({"cat": 0.25, "dog": 0.5})(("dog", "cat")).values.tolist()
    [0.5, 0.25]
    """

    def choose(classes: tuple[str, ...]) -> DecisionThresholds:
        if isinstance(threshold, str | os.PathLike):
            from satl.inference.threshold_files import read_thresholds

            return read_thresholds(os.fspath(threshold), classes)
        if threshold is None:
            return same_threshold(0.5, len(classes))
        items = getattr(threshold, "items", None)  # of a dictionary, or a series of pandas
        if items is None:
            return same_threshold(_probability(threshold), len(classes))
        given = {str(name): _probability(number) for name, number in items()}
        wrong = {*classes} ^ {*given}
        if wrong:
            raise ConfigError(
                f"the run and the thresholds differ in class {sorted(wrong)[0]!r}",
                where=Argument("threshold"),
                remedy="give one number for each class of the run",
            )
        return DecisionThresholds(
            np.array([at_least(given[name]) for name in classes], dtype=np.float32), "given by class"
        )

    return choose


def _probability(number: Any) -> float:
    """Return a probability from a number of Python, NumPy or torch."""
    value = number.item() if getattr(number, "ndim", None) == 0 and hasattr(number, "item") else number
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) <= 1:
        raise ConfigError(
            "is no probability",
            where=Argument("threshold", number),
            remedy="use a number from 0 to 1, or a dictionary with one for each class",
        )
    return float(value)

"""Runs side by side, from what their folders hold: settings that differ, metrics, pseudo-labels, time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from satl.errors import ConfigError, RunError
from satl.evaluation.pseudo_quality import UNION
from satl.inference.run_record import best_epoch, read_plain_config
from satl.parsing import parse_json
from satl.runs.config import deciding_settings
from satl.runs.data import SPLITS
from satl.runs.run_folder import RunFolder

METRICS = ("mAP", "mAP_rare", "OF1", "CF1")
"""What is shown of a measurement."""
QUALITY = ("macro_precision", "macro_recall", "micro_precision", "micro_recall")
"""What is shown of pseudo-labels whose truth is known."""
_MOST_SETTINGS = 100_000
"""Of a configuration, entries of lists included."""
_WRONG = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading a file raises that holds other things than a run writes."""


def runs_side_by_side(runs: Sequence[Path]) -> list[dict[str, Any]]:
    """Return what the folders of runs hold, one entry a run; nothing is computed.

    Args:
        runs: at least two folders; a run need not be finished.

    Returns:
        For each run ``run``, ``settings`` (those that can change a result and are not the same in all runs),
        ``epochs`` (``done`` and ``asked``), ``last`` and ``best`` (the epoch, counted from 1, and its validation
        metrics; empty before the first epoch is done), ``pseudo_labels`` (of the last epoch, all generators together;
        empty where it made none), ``evaluations`` (by split, as they were written last) and ``train_seconds``.
        Metrics are shares of one, None where they are not measurable.

    Raises:
        ConfigError: there are fewer than two, or one is given twice.
        RunError: one is no run, or a file in it cannot be read.
    """
    if len(runs) < 2:
        raise ConfigError("at least two runs are needed to compare", remedy="give their folders")
    places: dict[Path, Path] = {}
    for run in runs:
        if run.resolve() in places:
            raise ConfigError("is given twice", where=run, remedy="give each run once")
        places[run.resolve()] = run
    settings, found = [], []
    for run in runs:
        folder = RunFolder.open(run)
        own, asked = _settings(folder)
        settings.append(own)
        found.append({"run": str(run), "settings": {}, **training_facts(folder, asked)})
        found[-1]["evaluations"] = read_evaluations(run)
    keys = dict.fromkeys(key for own in settings for key in own)
    for key in keys:
        given = [own[key] for own in settings if key in own]
        if len(given) < len(runs) or any(value != given[0] for value in given):
            for entry, own in zip(found, settings, strict=True):
                if key in own:
                    entry["settings"][key] = own[key]
    return found


def _settings(folder: RunFolder) -> tuple[dict[str, Any], int]:
    """Return the settings of a run that can change its result, and the epochs that it was asked for."""
    config = read_plain_config(folder.path)
    try:
        _require_few(config)
        settings = {key: _plain(value) for key, value in deciding_settings(config).items()}
        return settings, int(config["training"]["epochs"])
    except _WRONG as error:
        raise _unreadable(folder.config) from error


def _require_few(config: Mapping[str, Any]) -> None:
    """Refuse a configuration in which YAML's references stand for more settings than any run has."""
    waiting: list[Any] = [config]
    for _ in range(_MOST_SETTINGS):
        if not waiting:
            return
        value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    raise ValueError("too many settings")


def _plain(value: Any) -> Any:
    """Return a setting as JSON can hold it."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    simple = (
        value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
    )
    return value if simple else str(value)


def training_facts(folder: RunFolder, asked: int) -> dict[str, Any]:
    """Return what a run has done: ``epochs``, ``last``, ``best``, ``pseudo_labels`` and ``train_seconds``."""
    rows = folder.read_metrics()
    done: dict[str, Any] = {"epochs": {"done": len(rows), "asked": asked}, "last": {}, "best": {}}
    try:
        if rows:
            done["last"] = _epoch(rows[-1])
            done["best"] = _epoch({row["epoch"]: row for row in rows}[best_epoch(rows)])
        union = (rows[-1].get("pseudo_labels") or {}).get(UNION) if rows else None
        done["pseudo_labels"] = {} if union is None else _numbers(union, ("emitted", "expected", *QUALITY))
        done["train_seconds"] = round(math.fsum(_number(row["train_seconds"]) or 0.0 for row in rows), 3)
    except _WRONG as error:
        raise _unreadable(folder.metrics) from error
    return done


def _epoch(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"epoch": row["epoch"] + 1, **_numbers(row.get("val") or {}, METRICS)}


def read_evaluations(run: Path) -> dict[str, dict[str, Any]]:
    """Return what the evaluations of a run say, by split."""
    return {split: content for split in SPLITS if (content := read_evaluation(run, split)) is not None}


def read_evaluation(run: Path, split: str) -> dict[str, Any] | None:
    """Return what ``evaluation-SPLIT.json`` of a run says; None: there is none.

    Raises:
        RunError: it holds something else.
    """
    file = run / f"evaluation-{split}.json"
    try:
        content = parse_json(file.read_text(encoding="utf-8"))
        facts = {key: str(content[key]) for key in ("checkpoint", "thresholds") if key in content}
        doubts = {"doubts": [str(one) for one in content["doubts"]]} if "doubts" in content else {}
        return {**facts, **_numbers(content, METRICS), **doubts}
    except FileNotFoundError:
        return None
    except (OSError, *_WRONG) as error:
        raise RunError("cannot be read", where=file, remedy="evaluate the run again") from error


def _numbers(content: Mapping[str, Any], names: Sequence[str]) -> dict[str, float | None]:
    """Return the numbers of these names; None for one that is not there, as in files of earlier versions."""
    return {name: _number(content.get(name)) for name in names}


def _number(value: Any) -> float | None:
    """Return a number that is to be written as JSON again.

    >>> _number(0.5), _number(None), _number(float("nan"))
    (0.5, None, None)
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("not a number")
    return value if math.isfinite(value) else None


def _unreadable(file: Path) -> RunError:
    return RunError("cannot be read", where=file, remedy="restore it from a copy of the run")

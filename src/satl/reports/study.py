"""Runs put in order: which belong together, which are repeats with another seed, which sweep a setting."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from satl.drawing.style import method_rank
from satl.errors import RunError, in_shell
from satl.inference.run_record import (
    RECORD,
    RunRecord,
    collect_run,
    is_finished,
    read_plain_config,
    read_record,
)
from satl.runs.config import deciding_settings

PAPER_PROPORTION = 0.2
"""Where the paper shows single classes and images; the nearest proportion that was run is taken."""
_REPEATS = frozenset(("training.seed", "data.mask_seed", "data.scenes.seed", "data.proportion"))
"""Settings in which runs of one entry of a table may differ, beside those that change no result."""


@dataclass(frozen=True)
class Run:
    """One finished run of a study; what it scores is read, or measured, when it is first asked for.

    Attributes:
        path: its folder.
        config: its configuration, as plain data.
        epochs: the rows of ``metrics.jsonl``.
        dataset: name of the data.
        variant: what an experiment calls its deviation from the plain method, "" for none; None if unknown.
        announce: is told when the run has to be measured first.
    """

    path: Path
    config: Mapping[str, Any]
    epochs: tuple[dict[str, Any], ...]
    dataset: str
    variant: str | None = None
    announce: Callable[[str], Any] = field(default=lambda text: None, compare=False)

    @property
    def method(self) -> str:
        """Name of the method."""
        return str(self.config["method"]["name"])

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return int(self.config["training"].get("seed", 0))

    @property
    def backbone(self) -> str:
        """Name of the network under the method."""
        return str((self.config.get("model") or {}).get("backbone", ""))

    @cached_property
    def proportion(self) -> float:
        """Share of the labels that the run was given."""
        asked = (self.config.get("data") or {}).get("proportion")
        return round(self.record.proportion, 3) if asked is None else float(asked)

    @cached_property
    def settings(self) -> dict[str, str]:
        """Everything that decides what the run does but seeds and proportion: key -> value as JSON."""
        return {
            key: json.dumps(value, sort_keys=True, default=str)
            for key, value in deciding_settings(self.config).items()
            if key not in _REPEATS
        }

    @cached_property
    def record(self) -> RunRecord:
        """What the run scores.

        Raises:
            SatlError: there is no record yet and none can be made.
        """
        if not (self.path / RECORD).is_file():
            from satl.runs.run_folder import RunFolder

            self.announce(f"Scoring the training images of {self.path} (once)")
            return collect_run(RunFolder.open(self.path))
        return read_record(self.path)

    @property
    def generators(self) -> tuple[str, ...]:
        """Names of the generators, from the last epoch's thresholds."""
        return tuple(self.epochs[-1].get("thresholds") or ())

    @property
    def seconds(self) -> float:
        """How long the training took."""
        return float(sum(row["train_seconds"] for row in self.epochs))

    def pseudo(self, key: str) -> float:
        """Return a number of the last epoch's pseudo-labels, all generators together, or NaN."""
        value = (self.epochs[-1].get("pseudo_labels") or {}).get("union", {}).get(key)
        return float("nan") if value is None else float(value)


@dataclass(frozen=True)
class Study:
    """The runs on one data set, with one backbone."""

    name: str
    runs: tuple[Run, ...]

    @cached_property
    def plain(self) -> tuple[Run, ...]:
        """The runs that compare methods; those that sweep a setting are left out.

        An experiment says which they are; without one, the settings that most runs of a method and proportion
        share are the plain ones, and of equally many those that agree most with the runs of other methods.
        """
        stated = [run for run in self.runs if not run.variant] or list(self.runs)
        groups: dict[tuple[str, float], dict[str, list[Run]]] = {}
        for run in stated:
            alike = groups.setdefault((run.method, run.proportion), {})
            alike.setdefault(json.dumps(run.settings), []).append(run)
        usual = Counter(setting for run in stated for setting in run.settings.items())

        def weight(runs: list[Run]) -> tuple[int, int]:
            return len(runs), sum(usual[setting] for setting in runs[0].settings.items())

        largest = (max(alike.values(), key=weight) for alike in groups.values())
        return tuple(run for runs in largest for run in _one_a_seed(runs))

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods, in the order of legends."""
        return tuple(sorted({run.method for run in self.plain}, key=method_rank))

    def of(self, method: str, proportion: float | None = None) -> tuple[Run, ...]:
        """Return the runs of a method, at one proportion or at all, by seed."""
        runs = [run for run in self.plain if run.method == method and proportion in (None, run.proportion)]
        return tuple(sorted(runs, key=lambda run: (run.proportion, run.seed)))

    def proportions(self, methods: Iterable[str]) -> tuple[float, ...]:
        """Return the proportions at which at least one of the methods was run."""
        wanted = set(methods)
        return tuple(sorted({run.proportion for run in self.plain if run.method in wanted}))

    def shown_proportion(self, methods: Sequence[str]) -> float:
        """Return where to look at single classes: most of the methods are there, and it is near 20 %."""

        def rank(proportion: float) -> tuple[int, float]:
            there = sum(bool(self.of(method, proportion)) for method in methods)
            return -there, abs(proportion - PAPER_PROPORTION)

        return min(self.proportions(methods), key=rank)

    def matching(self, methods: Sequence[str], proportion: float) -> tuple[Run, ...]:
        """Return one run of each method at a proportion, all with the first seed that most of them have."""
        seeds = sorted({run.seed for method in methods for run in self.of(method, proportion)})
        if not seeds:
            return ()
        found = {
            seed: [r for m in methods for r in self.of(m, proportion) if r.seed == seed] for seed in seeds
        }
        largest: list[Run] = max(found.values(), key=len)
        return tuple(largest)

    def sweep(self, key: str, preferred: Sequence[str]) -> tuple[Run, ...]:
        """Return the runs of one method that differ in one setting (and seed and proportion) only.

        Args:
            key: the setting, as ``method.rate``.
            preferred: methods to take first; of several sweeps of a method the one with most values is taken.
        """
        ranks = {name: rank for rank, name in enumerate(preferred)}
        groups: dict[str, list[Run]] = {}
        for run in self.runs:
            if key in run.settings:
                others = {name: value for name, value in run.settings.items() if name != key}
                groups.setdefault(json.dumps(others), []).append(run)
        swept = [runs for runs in groups.values() if len({run.settings[key] for run in runs}) > 1]
        if not swept:
            return ()
        best = min(
            swept,
            key=lambda runs: (ranks.get(runs[0].method, len(ranks)), -len({r.settings[key] for r in runs})),
        )
        return tuple(_one_a_seed(best))


def _one_a_seed(runs: Iterable[Run]) -> list[Run]:
    """Return the first of runs that are the same to the seed: a repetition is not a further sample."""
    kept: dict[tuple[float, int, str], Run] = {}
    for run in runs:
        kept.setdefault((run.proportion, run.seed, json.dumps(run.settings)), run)
    return list(kept.values())


def find_runs(
    folders: Iterable[Path], announce: Callable[[str], Any] = lambda text: None
) -> tuple[tuple[Run, ...], tuple[Path, ...]]:
    """Return the finished runs in run folders, experiment folders or folders of runs, and the unfinished.

    Raises:
        RunError: a folder holds no run, or none of its runs is finished.
    """
    runs: list[Run] = []
    unfinished: list[Path] = []
    for folder in folders:
        found = _run_folders(folder)
        described = _described(folder)
        for path in found:
            run = _read_run(path, described.get(path.name, {}), announce)
            if run is None:
                unfinished.append(path)
            else:
                runs.append(run)
    if not runs:
        raise RunError(
            f"{unfinished[0]}: the run is not finished; continue it with "
            f"`satl train --resume {in_shell(unfinished[0])}`."
        )
    return tuple(runs), tuple(unfinished)


def find_studies(runs: Iterable[Run]) -> tuple[Study, ...]:
    """Group runs by data set and backbone; the backbone is named where one data set has several."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.dataset, run.backbone), []).append(run)
    names = [dataset for dataset, _ in groups]
    return tuple(
        Study(dataset if names.count(dataset) == 1 else f"{dataset}, {backbone}", tuple(members))
        for (dataset, backbone), members in groups.items()
    )


def mean_and_sd(values: Iterable[float]) -> tuple[float, float, int]:
    """Return mean, standard deviation (0 for a single value) and number of the values that are defined.

    >>> mean_and_sd([1.0, 3.0, float("nan")])
    (2.0, 1.4142135623730951, 2)
    """
    array = np.array([value for value in values if np.isfinite(value)], dtype=np.float64)
    if not len(array):
        return float("nan"), 0.0, 0
    return float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else 0.0, len(array)


def _run_folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise RunError(f"{folder}: is not a folder; give the folder of a run or of an experiment.")
    if (folder / "config.yaml").is_file():
        return [folder]
    for parent in (folder / "runs", folder):
        found = sorted(path.parent for path in parent.glob("*/config.yaml"))
        if found:
            return found
    raise RunError(
        f"{folder}: holds no run; give the folder that `satl train --out` or `satl experiment --out` wrote."
    )


def _described(folder: Path) -> dict[str, dict[str, str]]:
    """Return what an experiment's results say about its runs: name of the run -> columns."""
    file = folder / "results.csv"
    if not file.is_file():
        return {}
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            return {row["run"]: row for row in csv.DictReader(lines) if row.get("run")}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RunError(f"{file}: cannot be read; run `satl experiment` again, it keeps the runs.") from error


def _read_run(path: Path, described: Mapping[str, str], announce: Callable[[str], Any]) -> Run | None:
    from satl.runs.run_folder import RunFolder

    config, epochs = read_plain_config(path), RunFolder(path).read_metrics()
    if not is_finished(config, len(epochs)):
        return None
    dataset = described.get("dataset") or _dataset_name(config)
    return Run(path, config, tuple(epochs), dataset, described.get("variant"), announce)


def _dataset_name(config: Mapping[str, Any]) -> str:
    data = config.get("data") or {}
    if data.get("scenes"):
        return "scenes"
    return str(data.get("dataset") or Path(str(data.get("table") or "data")).stem)

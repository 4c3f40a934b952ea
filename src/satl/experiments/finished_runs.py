"""Finished runs found in run folders and experiment folders, grouped by data set and backbone, as figures need them.

What a run measured is a row of :class:`~satl.experiments.results.Results`, as in an experiment; its epochs and scores
are read from its folder. An experiment says which runs are plain and which are variants; of runs without one it is
inferred from their settings.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from satl.drawing.style import method_rank
from satl.errors import RunError, Sentence, Task
from satl.experiments.configs import data_name
from satl.experiments.experiment_folder import ExperimentFolder
from satl.experiments.results import COLUMNS, Results, Row, read_results, training_columns
from satl.inference.run_record import (
    RunRecord,
    collect_run,
    is_finished,
    read_plain_config,
    read_record,
    record_file,
)
from satl.runs.config import deciding_settings

PAPER_PROPORTION = 0.2
"""Where the paper shows single classes and images; the nearest proportion that was run is taken."""
_REPEATS = frozenset(("training.seed", "data.mask_seed", "data.scenes.seed", "data.proportion"))
"""Settings in which runs of one entry of a table may differ, beside those that change no result."""


@dataclass(frozen=True)
class FinishedRun:
    """A finished run; its scores are read, or measured, when they are first needed.

    Attributes:
        path: its run folder.
        config: its configuration, as plain data.
        epochs: the rows of ``metrics.jsonl``.
        dataset: name of the data set.
        variant: name of its variant in the experiment, "" for a plain run; None for a run without an experiment.
        jobs: how many runs of its experiment shared the machine; None for a run without one.
        announce: is called with a message before the run is measured.
    """

    path: Path
    config: Mapping[str, Any]
    epochs: tuple[dict[str, Any], ...]
    dataset: str
    variant: str | None = None
    jobs: int | None = None
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
        """Name of its backbone, or of its file of features."""
        features = (self.config.get("data") or {}).get("features")
        if features is not None:
            return Path(features).name
        return str((self.config.get("model") or {}).get("backbone", ""))

    @cached_property
    def proportion(self) -> float:
        """Proportion of the training labels that are known."""
        asked = (self.config.get("data") or {}).get("proportion")
        return round(self.record.proportion, 3) if asked is None else float(asked)

    @cached_property
    def settings(self) -> dict[str, str]:
        """All settings that can change its result, but seeds and proportion: key -> value as JSON."""
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
        return self.record_after(None)

    def record_after(self, epoch: int | None) -> RunRecord:
        """Return what the run scores after an epoch that it kept, counted from 1; None for the last model.

        Raises:
            SatlError: there is no record yet and none can be made.
        """
        if not (self.path / record_file(epoch)).is_file():
            from satl.runs.run_folder import RunFolder

            self.announce(f"Scoring the training images of {self.path} (once)")
            return collect_run(RunFolder.open(self.path), epoch)
        return read_record(self.path, epoch)

    @property
    def generators(self) -> tuple[str, ...]:
        """Names of the generators, from the last epoch's thresholds."""
        return tuple(self.epochs[-1].get("thresholds") or ())

    @property
    def other_processors(self) -> float | None:
        """How many processors other programs kept busy while it trained; None where that was not recorded."""
        timed = [row for row in self.epochs if isinstance(row.get("other_seconds"), int | float)]
        seconds = sum(float(row["train_seconds"]) for row in timed)
        return sum(float(row["other_seconds"]) for row in timed) / seconds if seconds else None

    def row(self, variant: str = "") -> Row:
        """Return what the run measured as a row of results.

        Args:
            variant: what the row is called; "" for a plain run.
        """
        return {
            **dict.fromkeys(COLUMNS),
            "dataset": self.dataset,
            "backbone": self.backbone,
            "method": self.method,
            "proportion": self.proportion,
            "seed": self.seed,
            "variant": variant,
            "model": "last",
            "status": "done",
            "error": "",
            "epoch": len(self.epochs),
            **training_columns(self.epochs),
            "run": self.path.name,
        }


@dataclass(frozen=True)
class RunGroup:
    """The finished runs on one data set with one backbone."""

    name: str
    runs: tuple[FinishedRun, ...]

    @cached_property
    def results(self) -> Results:
        """Rows of the plain runs."""
        return Results([run.row() for run in self.plain])

    @cached_property
    def plain(self) -> tuple[FinishedRun, ...]:
        """The runs that compare methods; variants and values of a sweep are left out.

        An experiment says which they are; without one, the settings that most runs of a method and proportion
        share are the plain ones, and of equally many those that agree most with the runs of other methods.
        """
        stated = [run for run in self.runs if not run.variant] or list(self.runs)
        groups: dict[tuple[str, float], dict[str, list[FinishedRun]]] = {}
        for run in stated:
            alike = groups.setdefault((run.method, run.proportion), {})
            alike.setdefault(json.dumps(run.settings), []).append(run)
        usual = Counter(setting for run in stated for setting in run.settings.items())

        def weight(runs: list[FinishedRun]) -> tuple[int, int]:
            return len(runs), sum(usual[setting] for setting in runs[0].settings.items())

        largest = (max(alike.values(), key=weight) for alike in groups.values())
        return tuple(run for runs in largest for run in _one_a_seed(runs))

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods, in the order of legends."""
        return tuple(sorted({run.method for run in self.plain}, key=method_rank))

    def of(self, method: str, proportion: float | None = None) -> tuple[FinishedRun, ...]:
        """Return the runs of a method, at one proportion or at all, by seed."""
        runs = [run for run in self.plain if run.method == method and proportion in (None, run.proportion)]
        return tuple(sorted(runs, key=lambda run: (run.proportion, run.seed)))

    def proportions(self, methods: Iterable[str]) -> tuple[float, ...]:
        """Return the proportions at which at least one of the methods was run."""
        wanted = set(methods)
        return tuple(sorted({run.proportion for run in self.plain if run.method in wanted}))

    def shown_proportion(self, methods: Sequence[str]) -> float:
        """Return the proportion where single classes are shown: that of most of the methods, nearest to 20 %."""

        def rank(proportion: float) -> tuple[int, float]:
            there = sum(bool(self.of(method, proportion)) for method in methods)
            return -there, abs(proportion - PAPER_PROPORTION)

        return min(self.proportions(methods), key=rank)

    def matching(self, methods: Sequence[str], proportion: float) -> tuple[FinishedRun, ...]:
        """Return one run of each method at a proportion, all with the first seed that most of them have."""
        seeds = sorted({run.seed for method in methods for run in self.of(method, proportion)})
        if not seeds:
            return ()
        found = {
            seed: [r for m in methods for r in self.of(m, proportion) if r.seed == seed] for seed in seeds
        }
        largest: list[FinishedRun] = max(found.values(), key=len)
        return tuple(largest)

    def sweep(self, key: str, preferred: Sequence[str]) -> tuple[FinishedRun, ...]:
        """Return the runs of one method that differ in one setting (and seed and proportion) only.

        Args:
            key: the setting, as ``method.thresholds.rate``.
            preferred: methods to take first; of several sweeps of a method the one with most values is taken.
        """
        ranks = {name: rank for rank, name in enumerate(preferred)}
        groups: dict[str, list[FinishedRun]] = {}
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


def _one_a_seed(runs: Iterable[FinishedRun]) -> list[FinishedRun]:
    """Return the first of runs that are the same to the seed: a repetition is not a further sample."""
    kept: dict[tuple[float, int, str], FinishedRun] = {}
    for run in runs:
        kept.setdefault((run.proportion, run.seed, json.dumps(run.settings)), run)
    return list(kept.values())


def find_runs(
    folders: Iterable[Path], announce: Callable[[str], Any] = lambda text: None
) -> tuple[tuple[FinishedRun, ...], tuple[Path, ...]]:
    """Return the finished runs in run folders, experiment folders or folders of runs, and the unfinished.

    Raises:
        RunError: a folder holds no run, or none of its runs is finished.
    """
    runs: list[FinishedRun] = []
    unfinished: list[Path] = []
    for folder in folders:
        found = _run_folders(folder)
        rows = _experiment_rows(folder)
        for path in found:
            run = _read_run(path, rows.get(path.name, {}), announce)
            if run is None:
                unfinished.append(path)
            else:
                runs.append(run)
    if not runs:
        raise RunError(
            "the run is not finished",
            where=unfinished[0],
            remedy=Sentence("continue it with {train}", train=Task("train", resume=unfinished[0])),
        )
    return tuple(runs), tuple(unfinished)


def group_runs(runs: Iterable[FinishedRun]) -> tuple[RunGroup, ...]:
    """Group runs by data set and backbone; the backbone is named where one data set has several."""
    groups: dict[tuple[str, str], list[FinishedRun]] = {}
    for run in runs:
        groups.setdefault((run.dataset, run.backbone), []).append(run)
    names = [dataset for dataset, _ in groups]
    return tuple(
        RunGroup(dataset if names.count(dataset) == 1 else f"{dataset}, {backbone}", tuple(members))
        for (dataset, backbone), members in groups.items()
    )


def _run_folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise RunError("is not a folder", where=folder, remedy="give the folder of a run or of an experiment")
    if (folder / "config.yaml").is_file():
        return [folder]
    for parent in (ExperimentFolder(folder).runs, folder):
        found = sorted(path.parent for path in parent.glob("*/config.yaml"))
        if found:
            return found
    raise RunError("holds no run", where=folder, remedy="give the folder of a run or of an experiment")


def _experiment_rows(folder: Path) -> dict[str, Row]:
    """Return the rows of an experiment's results by the name of the run; empty for other folders."""
    file = ExperimentFolder(folder).csv
    return {row["run"]: row for row in read_results(file).rows} if file.is_file() else {}


def _read_run(path: Path, row: Mapping[str, Any], announce: Callable[[str], Any]) -> FinishedRun | None:
    from satl.runs.run_folder import RunFolder

    config, epochs = read_plain_config(path), RunFolder(path).read_metrics()
    if not is_finished(config, len(epochs)):
        return None
    dataset = row.get("dataset") or data_name(config.get("data") or {})
    return FinishedRun(path, config, tuple(epochs), dataset, row.get("variant"), row.get("jobs"), announce)

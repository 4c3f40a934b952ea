"""Results of runs: a row for each run and model, chosen by method, proportion, seed and variant."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from satl.checks.formulas import warn_of_formulas
from satl.errors import RunError, Sentence, Task
from satl.evaluation.pseudo_quality import NEXT_TO_NONE
from satl.experiments.experiment_folder import ExperimentFolder
from satl.experiments.grid import Grid, GridRun
from satl.experiments.paper_numbers import BASES
from satl.files import atomic_path

METRICS = ("mAP", "OF1", "CF1", "OP", "OR", "CP", "CR")
RARE = "mAP_rare"
"""mAP of the rarest third of the classes."""
PSEUDO_CLASSES = "pseudo_classes"
"""Number of classes that have a pseudo-label: over those ``pseudo_precision`` is a mean."""
PSEUDO_SHARE = "pseudo_share"
"""Pseudo-labels for every hundred positives that are to be expected among the unknown cells."""
PSEUDO = {
    "pseudo_precision": "macro_precision",
    "pseudo_recall": "macro_recall",
    "pseudo_precision_micro": "micro_precision",
    "pseudo_recall_micro": "micro_recall",
}
_KINDS = {
    **dict.fromkeys(
        ("dataset", "backbone", "method", "variant", "model", "status", "error", "run", "split", "device"),
        "string",
    ),
    **dict.fromkeys(("seed", "epoch", "jobs", "threads", PSEUDO_CLASSES), "int64"),
    **dict.fromkeys(("proportion", "train_seconds", *METRICS, *PSEUDO, RARE, PSEUDO_SHARE), "float64"),
}
_SINCE = (RARE, PSEUDO_CLASSES, PSEUDO_SHARE)
"""Columns that results of earlier versions lack."""
COLUMNS = (
    *("dataset", "backbone", "method", "proportion", "seed", "variant", "model", "status", "error", "epoch"),
    *METRICS,
    *PSEUDO,
    *("train_seconds", "run", "split", "device", "jobs", "threads"),
    *_SINCE,
)
"""Columns of every results table; one for each setting that a variant or sweep changes follows."""

Row = dict[str, Any]
_A_RESULTS_FILE = "give the folder of an experiment, or its results.csv"


@dataclass(frozen=True)
class Estimate:
    """Mean and standard deviation of n numbers; no deviation of one, nothing of none."""

    mean: float | None
    deviation: float | None
    n: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Estimate:
        """Estimate from numbers (n - 1 in the denominator of the variance).

        >>> Estimate.of([1.0, 2.0, 3.0])
        Estimate(mean=2.0, deviation=1.0, n=3)
        >>> Estimate.of([])
        Estimate(mean=None, deviation=None, n=0)
        """
        numbers = list(values)
        if not numbers:
            return cls(None, None, 0)
        return cls(fmean(numbers), stdev(numbers) if len(numbers) > 1 else None, len(numbers))


class Results:
    """The rows of an experiment.

    Args:
        rows: tidy, with the keys of :data:`COLUMNS` and one for each changed setting.
        settings: the names of the latter.
        facts: backbone and images of the experiment, from its first finished run.
        bases: method -> the method that it extends, beside those of the paper.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        settings: Sequence[str] = (),
        facts: Mapping[str, Any] | None = None,
        bases: Mapping[str, str] | None = None,
    ) -> None:
        self.rows = list(rows)
        self.columns = (*COLUMNS, *settings)
        self.facts = facts or {}
        self.bases = {**BASES, **(bases or {})}
        self._values: dict[tuple[str, float, str, str], dict[int, Row]] = {}
        for row in self.rows:
            if row["status"] == "done":
                place = (row["method"], row["proportion"], row["variant"], row["model"])
                self._values.setdefault(place, {})[row["seed"]] = row

    @property
    def done(self) -> bool:
        """Whether any run is finished."""
        return bool(self._values)

    def places(self, model: str = "best") -> tuple[tuple[float, str, str], ...]:
        """Return proportion, method and variant of the finished runs, by proportion and then as they were run."""
        found = [
            (proportion, method, variant) for method, proportion, variant, m in self._values if m == model
        ]
        return tuple(sorted(found, key=lambda place: place[0]))

    def by_seed(
        self, column: str, method: str, proportion: float, variant: str = "", model: str = "best"
    ) -> dict[int, float]:
        """Return the numbers of a column that are there, by seed."""
        rows = self._values.get((method, proportion, variant, model), {})
        return {seed: row[column] for seed, row in rows.items() if row.get(column) is not None}

    def paired(
        self,
        column: str,
        method: str,
        proportions: Iterable[float],
        variant: str = "",
        model: str = "best",
    ) -> dict[tuple[float, int], float]:
        """Return the numbers of a column by proportion and seed."""
        return {
            (proportion, seed): value
            for proportion in proportions
            for seed, value in self.by_seed(column, method, proportion, variant, model).items()
        }

    def averages(
        self,
        column: str,
        method: str,
        proportions: Sequence[float],
        model: str = "best",
    ) -> dict[int, float]:
        """Return the mean over the proportions, by seed; a seed that lacks one of them is left out."""
        columns = [self.by_seed(column, method, one, model=model) for one in proportions]
        seeds = set.intersection(*map(set, columns)) if columns else set()
        return {seed: fmean(values[seed] for values in columns) for seed in sorted(seeds)}

    def silent(self) -> list[tuple[str, str, float, int, int]]:
        """Return where stage 2 ended with next to no pseudo-labels.

        Returns:
            Method, variant, proportion, number of such runs and number of runs that say how many they made.
        """
        found = []
        for (method, proportion, variant, model), rows in self._values.items():
            shares = [row[PSEUDO_SHARE] for row in rows.values() if row.get(PSEUDO_SHARE) is not None]
            few = sum(share < 100 * NEXT_TO_NONE for share in shares)
            if few and model == "last":
                found.append((method, variant, proportion, few, len(shares)))
        return sorted(found, key=lambda one: (one[0], one[1], one[2]))

    def write(self, folder: ExperimentFolder) -> None:
        """Write ``results.parquet`` and ``results.csv``."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        arrays = []
        for name in self.columns:
            values = [row.get(name) for row in self.rows]
            kind = _KINDS.get(name)
            if kind is None:  # a setting: numbers as numbers, anything mixed as text
                numeric = all(
                    value is None or (isinstance(value, int | float) and not isinstance(value, bool))
                    for value in values
                )
                kind = "float64" if numeric else "string"
                values = [value if value is None or numeric else str(value) for value in values]
            arrays.append(pa.array(values, pa.type_for_alias(kind)))
        with atomic_path(folder.parquet) as temporary:
            pq.write_table(pa.table(arrays, list(self.columns)), temporary)
        self.write_csv(folder.csv)

    def write_csv(self, path: Path) -> None:
        """Write the rows as a CSV file, completely or not at all."""
        names = ("dataset", "backbone", "method", "variant", "run", "error")
        warn_of_formulas(path, (str(row.get(name) or "") for row in self.rows for name in names))
        with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self.columns, lineterminator="\n", extrasaction="ignore")
            writer.writeheader()
            writer.writerows(
                {key: "" if value is None else value for key, value in row.items()} for row in self.rows
            )


def read_results(path: Path) -> Results:
    """Read results back: ``results.csv`` of an experiment's folder, or such a file of any name.

    Raises:
        RunError: there is no such file, or it holds something else.
    """
    file = path / "results.csv" if path.is_dir() else path
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream)
            columns = reader.fieldnames or ()
            missing = [name for name in COLUMNS if name not in columns and name not in _SINCE]
            if missing:
                raise RunError(f"has no column '{missing[0]}'", where=file, remedy=_A_RESULTS_FILE)
            rows = [{name: _parsed(name, text) for name, text in row.items()} for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RunError("cannot be read", where=file, remedy=_A_RESULTS_FILE) from error
    except ValueError as error:
        remedy = Sentence(
            "write it again with {report}", report=Task("experiment", out=file.parent, report=True)
        )
        raise RunError(f"row {reader.line_num}: {error}", where=file, remedy=remedy) from error
    return Results(rows, [name for name in columns if name not in COLUMNS])


def _parsed(name: str, text: str | None) -> Any:
    kind = _KINDS.get(name)
    if kind == "string":
        return text or ""
    if not text:
        return None
    return text if kind is None else int(text) if kind == "int64" else float(text)


def gather_results(folder: ExperimentFolder, grid: Grid) -> Results:
    """Read what the finished and the failed runs of a grid left behind; the others have no row."""
    rows: list[Row] = []
    grid_runs = grid.runs()
    settings = dict.fromkeys(key for grid_run in grid_runs for key in grid_run.settings)
    first: Mapping[str, Any] = {}
    bases: dict[str, str] = {}
    for grid_run in grid_runs:
        state = folder.state(grid_run)
        if state == "done":
            result = folder.result(grid_run)
            rows += _done_rows(grid_run, result)
            first = first or result["facts"]
            if base := result["facts"].get("base"):
                bases[grid_run.method] = base
        elif state == "failed":
            failure = folder.failure(grid_run)
            rows += [
                _row(grid_run, model, failure["facts"]) | {"error": failure["error"]}
                for model in ("last", "best")
            ]
            first = first or failure["facts"]
    for row in rows:
        row["dataset"] = grid.dataset
    return Results(rows, tuple(settings), first, bases)


def _row(grid_run: GridRun, model: str, facts: Mapping[str, Any]) -> Row:
    return {
        **dict.fromkeys(COLUMNS),
        **grid_run.settings,
        "backbone": facts.get("backbone"),
        "method": grid_run.method,
        "proportion": grid_run.proportion,
        "seed": grid_run.seed,
        "variant": grid_run.variant,
        "model": model,
        "status": "failed",
        "error": "",
        "run": grid_run.name,
    }


def _done_rows(grid_run: GridRun, result: Mapping[str, Any]) -> list[Row]:
    rows = []
    for model in ("last", "best"):
        measured = result["models"][model]
        rows.append(
            {
                **_row(grid_run, model, result["facts"]),
                "status": "done",
                "epoch": measured["epoch"],
                **{name: _percent(measured[name]) for name in METRICS},
                RARE: _percent(measured.get(RARE)),
                **_pseudo_columns(result["pseudo_labels"]),
                **{name: result[name] for name in ("train_seconds", "split", "device", "jobs", "threads")},
            }
        )
    return rows


def training_columns(epochs: Sequence[Mapping[str, Any]]) -> Row:
    """Return the columns of a row that come from the training: time, and quality of the last epoch's pseudo-labels.

    Args:
        epochs: the rows of ``metrics.jsonl``.
    """
    union = (epochs[-1].get("pseudo_labels") or {}).get("union")
    return {"train_seconds": float(sum(row["train_seconds"] for row in epochs)), **_pseudo_columns(union)}


def _pseudo_columns(union: Mapping[str, Any] | None) -> Row:
    found = union or {}
    return {
        **{name: _percent(found.get(key)) for name, key in PSEUDO.items()},
        PSEUDO_CLASSES: found.get("classes_with_precision"),
        PSEUDO_SHARE: 100.0 * found["emitted"] / found["expected"] if found.get("expected") else None,
    }


def _percent(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else 100.0 * value

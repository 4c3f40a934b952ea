"""Runs that nobody trained: folders with plausible configurations, metrics and records, made in milliseconds.

Positives of a class score around its own height, negatives lower; some classes are easy, some mixed, some rare.
SST and HST have one threshold for all classes, SATL one for each; everything follows from a seed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from satl.evaluation.pseudo_quality import pseudo_label_table
from satl.experiments.results import Results
from satl.inference.run_record import MethodRecord, RunRecord, write_record

METHODS = ("ignore", "sst", "hst", "sst+satl", "hst+satl")
_ADJECTIVES = ("red", "small", "old", "wooden", "striped", "bright", "round", "paper", "wild", "steel")
_NOUNS = (
    *("cat", "bus", "chair", "kite", "lamp", "horse", "apple", "bridge", "clock", "dog"),
    *("boat", "shoe", "window", "owl", "train", "cup", "guitar", "tree", "plate", "drum"),
)
_PER_CLASS = {"sate", "satl"}


def class_names(count: int, long: bool = False) -> tuple[str, ...]:
    """Return so many different names, ordinary or of the longest kind."""
    names = [f"{adjective} {noun}" for adjective in _ADJECTIVES for noun in _NOUNS][:count]
    if long:
        return tuple(f"{name} with an unusually long description, number {i}" for i, name in enumerate(names))
    return tuple(names)


def write_run(
    folder: Path,
    method: str,
    proportion: float = 0.2,
    seed: int = 0,
    classes: Sequence[str] = class_names(20),
    images: int = 500,
    epochs: int = 8,
    truth: bool = True,
    settings: Mapping[str, Any] | None = None,
) -> Path:
    """Write the folder of a finished run, its record included; ``settings`` are of its thresholds."""
    folder.mkdir(parents=True)
    settings = dict(settings or {})
    base, _, parts = method.partition("+")
    generators = {"sst": ("intra", "cross"), "hst": ("intra", "prototype")}.get(base, ())
    if parts in _PER_CLASS:
        settings = {"rate": None, "negative_quantile": 0.999, "positive_quantile": 0.1, **settings}
    config = {
        "data": {
            "scenes": {"train": images, "val": 50, "test": 100, "size": 32, "seed": seed},
            "proportion": proportion,
        },
        "model": {"backbone": "satl_tiny"},
        "method": {"name": method, "thresholds": settings},
        "training": {"epochs": epochs, "stage1_epochs": 2, "seed": seed},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    (folder / "classes.json").write_text(json.dumps(list(classes)))
    record = _record(
        folder, config, method, generators, parts in _PER_CLASS, proportion, seed, classes, images, truth
    )
    rows = _epochs(record, method, proportion, seed, epochs, settings, truth)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_record(record)
    return folder


def write_experiment(
    folder: Path,
    methods: Iterable[str] = METHODS,
    proportions: Sequence[float] = (0.1, 0.2, 0.5),
    seeds: int = 3,
    sweeps: bool = True,
    **options: Any,
) -> Path:
    """Write an experiment folder: runs and ``results.csv``, with sweeps of the rate and of both quantiles."""
    cells: list[tuple[str, float, int, str, dict[str, Any]]] = [
        (method, proportion, seed, "", {})
        for method in methods
        for proportion in proportions
        for seed in range(seeds)
    ]
    if sweeps:
        swept = {
            ("hst+sate", "rate"): (0.1, 0.5, 0.9),
            ("sst+sate", "negative_quantile"): (0.5, 0.99, 0.999),
            ("sst+sate", "positive_quantile"): (0.1, 0.3, 0.5),
        }
        for (method, key), values in swept.items():
            cells += [
                (method, proportion, seed, f"{key}{value:g}", {key: value})
                for value in values
                for proportion in proportions[-2:]
                for seed in range(seeds)
            ]
    described = []
    for method, proportion, seed, variant, settings in cells:
        name = f"{method}-p{100 * proportion:g}-s{seed}" + (f"-{variant}" if variant else "")
        write_run(folder / "runs" / name, method, proportion, seed, settings=settings, **options)
        place = {"method": method, "proportion": proportion, "seed": seed, "variant": variant}
        described.append({"dataset": "drawn scenes", "run": name, "model": "last", "status": "done", **place})
    Results(described).write_csv(folder / "results.csv")
    return folder


def _record(
    folder: Path,
    config: dict[str, Any],
    method: str,
    generators: tuple[str, ...],
    per_class: bool,
    proportion: float,
    seed: int,
    classes: Sequence[str],
    images: int,
    with_truth: bool,
) -> RunRecord:
    labels = np.random.default_rng(seed)  # the same labels for every method
    count = len(classes)
    ease = np.random.default_rng(1).permutation(np.linspace(0, 1, count))
    share = np.random.default_rng(2).permutation(np.geomspace(0.02, 0.35, count))
    truth = np.where(labels.random((images, count)) < share, 1, -1).astype(np.int8)
    truth[:6] = 1  # no class without a positive
    truth[:6, 3:] = np.where(labels.random(truth[:6, 3:].shape) < 0.6, -1, truth[:6, 3:])
    cells = np.where(labels.random(truth.shape) < proportion, truth, 0).astype(np.int8)
    rng = np.random.default_rng([seed, *method.encode()])
    scores, thresholds = {}, {}
    for number, name in enumerate(generators):
        height = np.where(truth > 0, 0.5 + 0.4 * ease, 0.22 + 0.12 * (1 - ease))
        spread = np.where(truth > 0, 0.09, 0.07) * (1.0 + 0.4 * number)
        scores[name] = np.clip(height + spread * rng.standard_normal(truth.shape), -0.2 * number, 0.999)
        if name == "intra":
            scores[name][~(cells > 0).any(1)] = np.nan
        level = {"sst": 0.75, "hst": 0.66}.get(method.partition("+")[0], 0.7)
        thresholds[name] = np.full(count, level)
        if per_class:
            for index in range(count):
                column = scores[name][:, index]
                negative = column[(cells[:, index] < 0) & ~np.isnan(column)]
                positive = column[(truth[:, index] > 0) & ~np.isnan(column)]
                ideal = [np.quantile(negative, 0.999)] if len(negative) else []
                ideal += [np.quantile(positive, 0.1)] if len(positive) else []
                thresholds[name][index] = 0.02 + max(ideal, default=0.9)
    record = MethodRecord(
        name=method,
        epochs=(),
        summary={"mAP": 0.4 + 0.1 * per_class},
        average_precision=np.clip(0.2 + 0.7 * ease + 0.02 * rng.standard_normal(count), 0, 1),
        scores=scores,
        thresholds=thresholds,
        best_epoch=0,
        seconds=0.0,
    )
    measured = with_truth and generators
    return RunRecord(
        path=folder,
        config=config,
        classes=tuple(classes),
        method=record,
        images=tuple(f"scene-{row:05d}.png" for row in range(images)),
        rows=np.arange(images),
        cells=cells,
        truth=truth if with_truth else None,
        probability=rng.random(truth.shape),
        quality=pseudo_label_table(record.pseudo_labels(cells), cells, truth) if measured else {},
        known_positives=np.count_nonzero(cells > 0, axis=0),
        positives=np.count_nonzero(truth > 0, axis=0) if with_truth else None,
        counts={"train": images, "val": 50, "test": 100},
    )


def _epochs(
    record: RunRecord,
    method: str,
    proportion: float,
    seed: int,
    epochs: int,
    settings: Mapping[str, Any],
    truth: bool,
) -> list[dict[str, Any]]:
    rng = np.random.default_rng([seed, 5, *method.encode()])
    generators = record.method.generators
    union = record.quality.get("union")
    # What a lower threshold does: more is found, less of it is right.
    boldness = (settings.get("rate") or 0.3) + 2 * (0.999 - settings.get("negative_quantile", 0.999))
    boldness -= 0.3 * settings.get("positive_quantile", 0.1)
    rows = []
    for epoch in range(epochs):
        stage = 1 if epoch < 2 else 2
        pseudo: dict[str, Any] = {}
        if stage == 2 and generators:
            pseudo = {"union": {"emitted": 100}}
            if truth and union is not None:
                noise = 0.004 * rng.standard_normal(2)
                pseudo["union"] |= {
                    "macro_precision": float(min(0.99 - 0.12 * boldness + 0.03 * proportion + noise[0], 1)),
                    "macro_recall": float(
                        0.3 + 0.1 * np.sqrt(max(boldness, 0)) + 0.2 * proportion + noise[1]
                    ),
                }
        fall = 0.28 * np.exp(-0.35 * epoch) + (0.05 if "satl" in method else 0.09) - 0.04 * proportion
        losses = {"total": 1.0, "classification": float(fall + 0.004 * rng.standard_normal())}
        if pseudo:  # one term for each generator
            losses["pseudo"] = len(generators) * (losses["classification"] + 0.02)
        rows.append(
            {
                "epoch": epoch,
                "stage": stage,
                "losses": losses,
                "thresholds": {name: values.tolist() for name, values in record.method.thresholds.items()},
                "pseudo_labels": pseudo,
                "train_seconds": float(
                    (400 if "+" in method else 370) * (1.25 if "hst" in method else 1)
                    + 9 * rng.standard_normal()
                ),
                "val": {"mAP": float(0.3 + 0.02 * epoch)},
            }
        )
    return rows

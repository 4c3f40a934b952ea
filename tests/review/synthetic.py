"""Small folders as ``satl complete`` writes them, made from a seed: what a review reads."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from satl.labels import LabelTable, write_table

HEADER = ("image", "label", "value", "score", "threshold", "band", "source", "precision_lower_bound")
BINS = 64
BANDS = ("accepted", "review", "left")


class Completed(NamedTuple):
    """A completed folder: where it is, the table before completion, and the rows of ``changes.csv``."""

    out: Path
    table: LabelTable
    rows: list[tuple[str, ...]]


def draw_table(
    images: Sequence[str], classes: Sequence[str], seed: int = 0, known: float = 0.3
) -> LabelTable:
    """A table of which about ``known`` cells are known, a quarter of them present."""
    random = np.random.default_rng(seed)
    shape = (len(images), len(classes))
    truth = np.where(random.random(shape) < 0.25, 1, -1)
    return LabelTable(
        tuple(images), tuple(classes), np.where(random.random(shape) < known, truth, 0), encoding="signed"
    )


def draw_scores(table: LabelTable, seed: int = 0) -> np.ndarray:
    """Scores (N, C) with six decimals, high where the table says present and low where it says absent.

    One known cell in twenty is contradicted.
    """
    random = np.random.default_rng([seed, 1])
    seen = np.where(random.random(table.cells.shape) < 0.05, -table.cells, table.cells)
    centre = np.select([seen == 1, seen == -1], [0.8, 0.15], random.random(table.cells.shape))
    return np.round(np.clip(centre + random.normal(0, 0.12, table.cells.shape), 0.001, 0.999), 6)


def proposals(table: LabelTable, scores: np.ndarray) -> Iterator[tuple[str, ...]]:
    """Rows of ``changes.csv``: every unknown cell, and known cells that the score contradicts."""
    for column, label in enumerate(table.classes):
        present_at, absent_at = 0.75 + 0.02 * (column % 5), 0.06 + 0.01 * (column % 4)
        entries = []
        for row, image in enumerate(table.images):
            score, cell = float(scores[row, column]), int(table.cells[row, column])
            value = 1 if score >= 0.5 else -1
            threshold = present_at if value == 1 else absent_at
            if cell == value or (cell != 0 and abs(score - 0.5) < 0.2):
                continue
            passed = score >= present_at if value == 1 else score <= absent_at
            band = "review" if cell or 0.3 < score < present_at else "accepted" if passed else "left"
            source = "label-error" if cell else "certificate" if band == "accepted" else "model"
            bound = "0.953000" if band == "accepted" else ""
            line = (image, label, str(value), f"{score:.6f}", f"{threshold:.6f}", band, source, bound)
            entries.append((BANDS.index(band), -abs(score - 0.5), line))
        yield from (line for _, _, line in sorted(entries))


def class_report(table: LabelTable, scores: np.ndarray, column: int) -> dict[str, Any]:
    """What ``report.json`` says about one class."""
    edges = np.linspace(0, 1, BINS + 1)
    cells = table.cells[:, column]
    counts = {
        name: np.histogram(scores[cells == sign, column], edges)[0].tolist()
        for name, sign in (("positive", 1), ("negative", -1), ("unknown", 0))
    }
    return {
        "name": table.classes[column],
        "known_positives": int((cells == 1).sum()),
        "known_negatives": int((cells == -1).sum()),
        "unknown": int((cells == 0).sum()),
        "prevalence_unknown": 0.25,
        "shift": {"code": "fits", "verdict": "Unknown cells look like the known ones.", "p_value": 0.4},
        "present": {
            "threshold": 0.75 + 0.02 * (column % 5),
            "precision_lower_bound": 0.953,
            "accepted": 1,
            "reason": "",
        },
        "absent": {
            "threshold": 0.06 + 0.01 * (column % 4),
            "precision_lower_bound": 0.961,
            "accepted": 1,
            "reason": "",
        },
        "histogram": {"edges": edges.tolist(), **counts},
    }


def write_changes(path: Path, rows: Sequence[Sequence[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerows(rows)


def write_folder(
    out: Path,
    table: LabelTable,
    scores: np.ndarray | None = None,
    *,
    rows: Sequence[tuple[str, ...]] | None = None,
    images: str | None = None,
) -> Completed:
    """Write ``changes.csv``, ``report.json`` and ``labels.npz`` of a completion of ``table``."""
    out.mkdir(parents=True, exist_ok=True)
    scores = draw_scores(table) if scores is None else scores
    lines = list(proposals(table, scores) if rows is None else rows)
    write_changes(out / "changes.csv", lines)
    report = {
        "format": 1,
        "satl": "0.1.0",
        "target_precision": 0.95,
        "confidence": 0.95,
        "images": images,
        "source": {"scores": "drawn"},
        "statement": "With confidence 95 %, at least 95 % of the accepted cells of each class are right.",
        "classes": [class_report(table, scores, column) for column in range(table.num_classes)],
    }
    (out / "report.json").write_text(json.dumps(report), encoding="utf-8")
    write_table(table, out / "labels.npz")
    return Completed(out, table, lines)


def small_folder(out: Path, images: int = 40, seed: int = 0, folder: str | None = None) -> Completed:
    """A folder with a few dozen suggestions; names with a comma, quotes, white space and other alphabets."""
    names = [f'shots/{i:03d} ünï,"q".png' if i % 7 == 3 else f"scene-{i:05d}.png" for i in range(images)]
    table = draw_table(names, ["boat", "traffic light", "猫, cat"], seed)
    return write_folder(out, table, images=folder)

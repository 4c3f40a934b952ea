"""Tables with scores, drawn from a seed: what a completion starts from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from satl.labels import LabelTable, write_table

CLASSES = ("boat", "traffic light", "猫, cat", "rare")
PREVALENCE = (0.5, 0.3, 0.2, 0.01)


class Drawn:
    """A complete truth, the part of it that is known, and the scores of a model (N, C)."""

    def __init__(
        self,
        images: int = 1500,
        classes: Sequence[str] = CLASSES,
        *,
        known: float = 0.4,
        separation: float = 4.0,
        seed: int = 0,
        prevalence: Sequence[float] | None = None,
    ) -> None:
        random = np.random.default_rng(seed)
        shares = np.resize(PREVALENCE if prevalence is None else prevalence, len(classes))
        shape = (images, len(classes))
        self.truth = np.where(random.random(shape) < shares, 1, -1).astype(np.int8)
        logits = random.normal(size=shape) + separation * (self.truth > 0) - separation / 2
        self.scores = (1 / (1 + np.exp(-logits))).astype(np.float32)
        cells = np.where(random.random(shape) < known, self.truth, 0).astype(np.int8)
        names = tuple(f"shots/{i:05d}.jpg" for i in range(images))
        self.table = LabelTable(names, tuple(classes), cells, encoding="signed")

    def write(
        self, folder: Path, labels: str = "labels.csv", scores: str = "scores.csv"
    ) -> tuple[Path, Path]:
        """Write both files and return their paths: labels, scores."""
        write_table(self.table, folder / labels)
        write_scores(folder / scores, self.table, self.scores)
        return folder / labels, folder / scores


def write_scores(path: Path, table: LabelTable, scores: np.ndarray, **arrays: np.ndarray) -> Path:
    """Write scores as the extension says; ``arrays`` go into an ``.npz`` file as well."""
    if path.suffix == ".npz":
        names = {"images": np.array(table.images), "names": np.array(table.classes)}
        np.savez(path, scores=scores, **names, **arrays)
    elif path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet

        columns = {"image": list(table.images), **dict(zip(table.classes, scores.T, strict=True))}
        pyarrow.parquet.write_table(pa.table(columns), path)
    else:
        import csv

        with path.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(["image", *table.classes])
            for image, row in zip(table.images, scores.tolist(), strict=True):
                writer.writerow([image, *row])
    return path

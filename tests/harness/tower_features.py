"""Features that a tower could have made: pictures close to the prompts of the classes that they show."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from satl.labels import LabelTable, write_table
from satl.models.class_prompts import TextSource

CLASSES = ("traffic_light", "dog", "bicycle", "tree")


def write_pictures(
    folder: Path, tower: str, images: int = 300, known: float = 0.5, noise: float = 0.15, seed: int = 0
) -> tuple[Path, Path]:
    """Write ``labels.csv``, in which some cells are known, and ``features.npz``; return both."""
    random = np.random.default_rng(seed)
    prompts = TextSource(tower).load().class_vectors(CLASSES)
    prompts /= np.linalg.norm(prompts, axis=1, keepdims=True)
    present = random.random((images, len(CLASSES))) < 0.3
    # Prompts resemble each other: what a class adds is close to its own prompt only, and what pictures have in common,
    # the last direction, is close to none.
    common = np.linalg.svd(prompts)[2][-1]
    vectors = 20.0 * common + present @ np.linalg.pinv(prompts).T
    vectors += noise * random.standard_normal(vectors.shape)
    cells = np.where(random.random(present.shape) < known, np.where(present, 1, -1), 0).astype(np.int8)
    ids = tuple(f"{number:04}.jpg" for number in range(images))
    np.savez(folder / "features.npz", images=ids, features=vectors.astype(np.float16))
    np.save(folder / "present.npy", present)
    write_table(LabelTable(ids, CLASSES, cells, encoding="signed"), folder / "labels.csv")
    return folder / "labels.csv", folder / "features.npz"

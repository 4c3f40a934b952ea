"""Scores of features against prompts about the classes, without any training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from satl.errors import ConfigError
from satl.features import FeatureTable
from satl.files import atomic_path
from satl.models.class_prompts import TextEncoder, TextSource, is_tower
from satl.scoring.text import text_scores, text_statistics

_BYTES_AT_ONCE = 32 << 20


class ClassPrompts(NamedTuple):
    """Prompts about the classes, and how close pictures usually are to them."""

    vectors: Tensor
    """``(C, D)`` of the prompts."""
    mean: Tensor
    """``(C,)`` of the cosines of pictures and prompt."""
    deviation: Tensor
    """``(C,)`` of the same."""


def fit_prompts(
    source: TextSource, classes: Sequence[str], features: FeatureTable, pictures: Iterable[Tensor]
) -> ClassPrompts:
    """Return the prompts about the classes for features that the image side of the same tower made.

    Args:
        source: makes the vectors of the prompts.
        classes: class names.
        features: where the pictures come from.
        pictures: vectors ``(B, D)``, batch by batch, over which similarities are standardised.

    Raises:
        ConfigError: the text model cannot be loaded, or the features are not of the same tower.
    """
    encoder = source.load()
    vectors = torch.from_numpy(encoder.class_vectors(classes)).float()
    _require_one_space(encoder, vectors.shape[1], features)
    return ClassPrompts(vectors, *text_statistics(pictures, vectors))


def zero_shot_scores(
    source: TextSource, classes: Sequence[str], features: FeatureTable
) -> NDArray[np.float32]:
    """Return scores of all pictures, (N, C) in (0, 1), by their similarity to prompts about the classes.

    Similarities are standardised over all pictures (:func:`satl.functional.text_scores`), so a score says how much more
    than the others a picture resembles the prompt. It is no probability, and 0.5 where it means nothing: for a class
    whose prompt is equally close to all pictures. Several views of a picture are averaged.

    Raises:
        ConfigError: the text model cannot be loaded, or the features are not of the same tower.
    """
    rows = np.arange(len(features))
    prompts = fit_prompts(source, classes, features, mean_views(features, rows))
    scores = np.empty((len(features), len(classes)), dtype=np.float32)
    begin = 0
    for vectors in mean_views(features, rows):
        scores[begin : begin + len(vectors)] = text_scores(vectors, *prompts)[0].numpy()
        begin += len(vectors)
    return scores


def write_zero_shot(
    path: Path, images: Sequence[str], classes: Sequence[str], scores: NDArray[np.float32]
) -> None:
    """Write scores as an ``.npz`` file that says that no label was looked at: every known cell can be a test.

    Args:
        path: the file; see :func:`satl.scores.read_scores` for what reads it.
        images: N ids.
        classes: C names.
        scores: (N, C).
    """
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(
            file,
            images=list(images),
            classes=list(classes),
            scores=scores,
            held_out=np.ones(len(images), bool),
        )


def each_view(features: FeatureTable, rows: NDArray[np.int64]) -> Iterator[Tensor]:
    """Yield the vectors ``(B, D)``, float32, of some pictures: every view is one."""
    for block in _blocks(features, rows):
        yield block.flatten(0, 1)


def mean_views(features: FeatureTable, rows: NDArray[np.int64]) -> Iterator[Tensor]:
    """Yield the vectors ``(B, D)``, float32, of some pictures: the mean over the views of each."""
    for block in _blocks(features, rows):
        yield block.mean(dim=1)


def _blocks(features: FeatureTable, rows: NDArray[np.int64]) -> Iterator[Tensor]:
    at_once = max(1, _BYTES_AT_ONCE // (features.views * features.dim * 4))
    for begin in range(0, len(rows), at_once):
        yield torch.from_numpy(features.take(rows[begin : begin + at_once])).float()


def _require_one_space(encoder: TextEncoder, dim: int, features: FeatureTable) -> None:
    """Refuse features that cannot be compared with the prompts."""
    remedy = f"give features that the image side of {encoder.model} made"
    made_by = features.made_by.get("backbone")
    if isinstance(made_by, str) and is_tower(encoder.model) and not is_tower(made_by):
        raise ConfigError(
            f"its prompts cannot be compared with features of {made_by} ({features.path})",
            where=encoder.model,
            remedy=remedy,
        )
    if dim != features.dim:
        raise ConfigError(
            f"its prompts have {dim} numbers, and the features of {features.path} have {features.dim}",
            where=encoder.model,
            remedy=remedy,
        )
    weights = features.made_by.get("weights_sha256")
    if weights is not None and is_tower(encoder.model) and weights != encoder.digest():
        raise ConfigError(
            f"the features of {features.path} were made with other weights of the tower",
            where=encoder.model,
            remedy=remedy + " with the same weights",
        )

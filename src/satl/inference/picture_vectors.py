"""Vectors of new pictures for a run that was trained on features, made as those were.

A run on features knows which network made them, how it sees a picture and a digest of its weights. So it can predict
from pictures as well: they pass through the same network first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from satl.errors import Argument, ConfigError, RunError, Sentence
from satl.features import FeatureTable
from satl.features.half_arrays import as_half, first_not_finite, not_finite
from satl.images.source import available_cores
from satl.inference.embedder import Embedder, Embedding
from satl.inference.embedding import EmbeddingPart, decoded_batches
from satl.models.allowed_arguments import require_local_network
from satl.models.class_prompts import PREFIX, is_folder_name, is_tower
from satl.models.model_config import ModelConfig
from satl.runs.run_folder import RunFolder

BATCH_SIZE = 32
"""Pictures that a network which makes vectors sees at a time."""


def embedder_of(run: Path | str, weights: Path | None = None, device: str | None = None) -> Embedder:
    """Return the network that made the features which a run was trained on.

    Args:
        run: folder of a run on features.
        weights: file of its weights; None: timm's published ones, which are fetched once.
        device: where to compute; None takes a GPU if there is one.

    Raises:
        ConfigError: the features came from elsewhere, the weights are others or cannot be fetched.
        RunError: what the run says of its features is not what ``satl embed`` writes.
    """
    folder = RunFolder.open(run)
    facts = folder.read_features()
    assert facts is not None
    made_by = facts.get("made_by") or {}
    if "weights_sha256" not in made_by:
        raise ConfigError(
            "was trained on features that came without a word on the network that made them, so that pictures cannot "
            "be turned into such",
            where=folder.path,
            remedy="give features of the new pictures, made as those of its training",
        )
    embedder = Embedder(_embedding(folder, facts["views"], made_by, weights), device)
    found = json.loads(json.dumps(embedder.made_by()))
    if found == made_by:
        return embedder
    if {**found, "weights_sha256": ""} == {**made_by, "weights_sha256": ""}:
        raise ConfigError(
            f"are other weights of {made_by['backbone']} than those that made the features of its training"
            if weights is not None
            else f"was trained on features of other weights of {made_by['backbone']} than timm fetches",
            where=folder.path if weights is None else Argument("weights", weights),
            remedy=Sentence(
                "give the file that they were made with: {weights}", weights=Argument("weights", "FILE")
            ),
        )
    other = next((key for key in found if found[key] != made_by.get(key)), "backbone")
    raise ConfigError(
        f"was trained on features of {made_by['backbone']} with another {other} than this version of timm has",
        where=folder.path,
        remedy="make features of the new pictures where those of the training were made",
    )


def _embedding(folder: RunFolder, views: int, made_by: Mapping[str, Any], weights: Path | None) -> Embedding:
    """Return what made the features of a run, after a look at what a run of somebody else may ask for."""
    try:
        name, kwargs = str(made_by["backbone"]), dict(made_by["kwargs"])
        pool, size = made_by["pool"], int(made_by["size"])
        plain = pool in ("mean", "token") and 1 <= size <= 16_384
    except (KeyError, TypeError, ValueError, OverflowError):
        plain = False
    if not plain:
        raise RunError(
            "does not say how its features were made as satl writes it",
            where=folder.data,
            remedy="restore it from a copy of the run",
        )
    if is_tower(name):
        tower = name.removeprefix(PREFIX)
        if ":" in tower or is_folder_name(tower):
            raise RunError(
                f"names the tower {name[:80]!r}, which is not the name of an architecture, and a run is used without "
                "asking anyone for it",
                where=folder.data,
                remedy="make features of the new pictures yourself",
            )
    else:
        require_local_network(ModelConfig(backbone=name, backbone_kwargs=kwargs), folder.data)
    stride = made_by.get("stride_in_1x1") is True
    return Embedding(name, weights, size, pool, views, kwargs, stride, made_by.get("bfloat16") is True)


def embed_pictures(
    embedder: Embedder,
    ids: Sequence[str],
    files: Sequence[Path | str],
    threads: int = 0,
    progress: Callable[[int, int], Any] | None = None,
) -> tuple[FeatureTable, list[tuple[str, str]]]:
    """Return the vectors of pictures, in memory, and the pictures that cannot be read, with their reasons.

    Args:
        embedder: the network.
        ids: of the pictures.
        files: their paths.
        threads: that decode pictures; 0 takes one for every core.
        progress: called as ``progress(done, total)``.

    Raises:
        TableError: a vector has a number that is not finite in half precision.
    """
    part = EmbeddingPart(0, tuple(ids), tuple(map(str, files)))
    vectors = [np.empty((0, embedder.embedding.views, embedder.dim), dtype=np.float16)]
    read: list[str] = []
    broken: list[tuple[str, str]] = []
    done = 0
    for batch in decoded_batches(embedder, [part], BATCH_SIZE, threads or available_cores()):
        found = batch.vectors(embedder)
        half = as_half(found)
        good = [name for name, why in zip(batch.ids, batch.reasons, strict=True) if why is None]
        wrong = first_not_finite(half)
        if wrong is not None:
            raise not_finite(Path("pictures"), good[wrong], len(read) + wrong, found[wrong])
        vectors.append(half)
        read += good
        broken += [(name, why) for name, why in zip(batch.ids, batch.reasons, strict=True) if why is not None]
        done += len(batch.ids)
        if progress is not None:
            progress(done, len(ids))
    return FeatureTable(Path("pictures"), tuple(read), [np.concatenate(vectors)], None, ""), broken

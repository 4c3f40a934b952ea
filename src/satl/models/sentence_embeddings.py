"""Vectors of the class names from a model of sentences, for users of the extra ``text``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from satl.errors import ConfigError
from satl.models.embeddings import VECTOR_NORM


def embed_class_names(model: str, classes: Sequence[str]) -> NDArray[np.float32]:
    """One vector per class name, (C, E) float32, with a mean norm of 6, as GloVe vectors have.

    Args:
        model: name or folder of a sentence-transformers model.
        classes: the class names; an underscore is read as a space.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise ConfigError(
            "model.text_model: needs the package sentence-transformers; run `pip install 'satl[text]'`, or give "
            "model.word_vectors instead."
        ) from error
    try:
        encoder = SentenceTransformer(model, device="cpu")
    except Exception as error:  # whatever a missing folder, name or network raises there
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"model.text_model: '{model}' cannot be loaded ({reason}); give the name or the folder of a "
            "sentence-transformers model."
        ) from error
    names = [name.replace("_", " ") for name in classes]
    vectors = np.asarray(encoder.encode(names, show_progress_bar=False), dtype=np.float64)
    norm = np.linalg.norm(vectors, axis=1).mean()
    if not np.isfinite(norm) or norm == 0:
        raise ConfigError(f"model.text_model: '{model}' gives no usable vectors; choose another model.")
    # Often they have the norm 1, which the attention would hardly tell apart.
    return (vectors * (VECTOR_NORM / norm)).astype(np.float32)

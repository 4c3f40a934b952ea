"""Vectors of texts from a model of sentences, for users of the extra ``text``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from satl.errors import ConfigError


def sentence_encoder(model: str) -> Callable[[Sequence[str]], NDArray[np.float64]]:
    """Return a function that gives the vectors (T, E) of texts.

    Args:
        model: name or folder of a sentence-transformers model.
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
            "sentence-transformers model, or a tower such as open_clip:ViT-B-32."
        ) from error
    return lambda texts: np.asarray(encoder.encode(list(texts), show_progress_bar=False), dtype=np.float64)

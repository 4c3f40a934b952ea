"""Class names as prompts: a vector for each class from the text side of a tower, or from a model of sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from satl.errors import ConfigError
from satl.models.embeddings import VECTOR_NORM

PLACE = "{}"
"""Where the name of a class stands in a prompt."""
TOWER_PROMPTS = ("a photo of a {}.",)
"""For towers of images and texts, which were trained on captions."""
SENTENCE_PROMPTS = (PLACE,)
"""For models of sentences: the name alone."""
PREFIX = "open_clip:"
"""Begins the name of a tower."""


def is_tower(name: str) -> bool:
    """Whether a name is that of a tower.

    >>> is_tower("open_clip:ViT-B-32"), is_tower("resnet50")
    (True, False)
    """
    return name.startswith(PREFIX)


def is_folder_name(name: str) -> bool:
    """Whether a name, without ``open_clip:``, is a path: it begins as one.

    >>> is_folder_name("./clip"), is_folder_name("ViT-B-32/openai")
    (True, False)
    """
    return name.startswith((".", "~", "/"))


@dataclass(frozen=True)
class TextSource:
    """Where the vectors of class names come from: the keys ``text_model``, ``text_weights``, ``text_prompts``.

    Attributes:
        model: a tower (see :mod:`satl.models.image_text_tower`), or name or folder of a sentence-transformers model.
        weights: weight file of a tower.
        prompts: texts with ``{}`` in the place of the name, averaged; None: what fits the model.
    """

    model: str
    weights: Path | None = None
    prompts: tuple[str, ...] | None = None

    def load(self) -> TextEncoder:
        """Load the model.

        Raises:
            ConfigError: it cannot be loaded.
        """
        if not is_tower(self.model):
            from satl.models.sentence_embeddings import sentence_encoder

            return TextEncoder(self.model, sentence_encoder(self.model), self.prompts or SENTENCE_PROMPTS)
        from satl.models.image_text_tower import ImageTextTower

        try:
            tower = ImageTextTower.load(self.model, self.weights)
        except ConfigError as error:
            raise error.with_arguments({"weights": "text_weights"}) from None
        return TextEncoder(
            self.model, tower.encode_texts, self.prompts or TOWER_PROMPTS, lambda: tower.digest
        )


@dataclass(frozen=True)
class TextEncoder:
    """A model of texts, ready to make vectors of class names.

    Attributes:
        model: what the user calls it.
        encode: gives the vectors (T, E) of texts.
        prompts: texts with ``{}`` in the place of the name.
        digest: gives what tells a tower's weights from others.
    """

    model: str
    encode: Callable[[Sequence[str]], NDArray[np.floating]]
    prompts: tuple[str, ...]
    digest: Callable[[], str | None] = lambda: None

    def class_vectors(self, classes: Sequence[str]) -> NDArray[np.float64]:
        """Return one vector per class name, (C, E).

        With several prompts it is the mean of their vectors of length 1, so that none counts more than another.

        Raises:
            ConfigError: the model gives vectors that are zero or not finite.
        """
        texts = [text for name in classes for text in prompts_of(name, self.prompts)]
        vectors = np.asarray(self.encode(texts), dtype=np.float64).reshape(
            len(classes), len(self.prompts), -1
        )
        lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
        if not np.isfinite(lengths).all() or not lengths.any():
            raise ConfigError(
                f"model.text_model: '{self.model}' gives no usable vectors; choose another model."
            )
        if len(self.prompts) == 1:
            return vectors[:, 0]
        return (vectors / np.where(lengths > 0, lengths, 1.0)).mean(axis=1)


def embed_class_names(source: TextSource, classes: Sequence[str]) -> NDArray[np.float32]:
    """Return one vector per class name, (C, E) float32, with a mean norm of 6, as GloVe vectors have."""
    vectors = source.load().class_vectors(classes)
    # Often they have the norm 1, which the attention would hardly tell apart.
    return (vectors * (VECTOR_NORM / np.linalg.norm(vectors, axis=1).mean())).astype(np.float32)


def problem_of_prompts(prompts: Sequence[str]) -> str | None:
    """Say what is wrong with prompts, or nothing.

    >>> problem_of_prompts(["a photo"]), problem_of_prompts(["a photo of a {}."])
    ("the prompt 'a photo' has no {} for the name of the class", None)
    """
    wrong = next((prompt for prompt in prompts if PLACE not in prompt), None)
    if wrong is not None:
        return f"the prompt {wrong!r} has no {PLACE} for the name of the class"
    return None if prompts else "there is no prompt"


def prompts_of(name: str, prompts: Sequence[str]) -> list[str]:
    """Return the prompts about a class; an underscore in its name is read as a space.

    >>> prompts_of("traffic_light", ["a photo of a {}.", "a {} in a street."])
    ['a photo of a traffic light.', 'a traffic light in a street.']
    """
    return [prompt.replace(PLACE, name.replace("_", " ")) for prompt in prompts]

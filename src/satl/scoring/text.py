"""Zero-shot generator: cells whose picture resembles a prompt about the class, in a space that both share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from satl.errors import ArrayError
from satl.scoring.generator import Generator, GeneratorInputs, GeneratorScores

SMALLEST_DEVIATION = 1e-6
"""Cosines of a class that differ by less differ by rounding only."""


def text_similarity(vectors: Tensor, prompts: Tensor) -> Tensor:
    """Return the cosines ``(B, C)``, float32, of pictures ``(B, D)`` and of prompts ``(C, D)``; 0 for a zero vector.

    >>> text_similarity(torch.tensor([[3.0, 4.0]]), torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000, 0.0000]])
    """
    if vectors.ndim != 2 or prompts.ndim != 2 or vectors.shape[1] != prompts.shape[1]:
        raise ArrayError(
            f"pictures (B, D) and prompts (C, D) must have vectors of one size, got {tuple(vectors.shape)} and "
            f"{tuple(prompts.shape)}."
        )
    with torch.autocast(vectors.device.type, enabled=False):
        cosines = (
            F.normalize(vectors.float(), dim=-1, eps=1e-9)
            @ F.normalize(prompts.float(), dim=-1, eps=1e-9).t()
        )
    return cosines.clamp(-1.0, 1.0)


def text_scores(vectors: Tensor, prompts: Tensor, mean: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
    """Score each class by how much closer a picture is to its prompt than pictures usually are.

    The cosine of picture and prompt is standardised by its mean and deviation over the training pictures, since
    prompts of some classes are closer to all pictures than those of others, and squashed by the logistic function.

    Args:
        vectors: ``(B, D)`` of the pictures, of any floating type.
        prompts: ``(C, D)`` of the classes.
        mean: ``(C,)`` of the cosines of a class; see :func:`text_statistics`.
        deviation: ``(C,)`` of the cosines of a class.

    Returns:
        ``(B, C)`` float32 scores in (0, 1) and ``(B, C)`` booleans, false (score 0.5) for a class whose cosines do not
        differ between pictures, and for a picture whose vector is zero.

    >>> prompts = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> scores, informative = text_scores(torch.tensor([[0.6, 0.8]]), prompts, torch.tensor([0.5, 0.8]),
    ...                                   torch.tensor([0.05, 0.0]))
    >>> scores, informative
    (tensor([[0.8808, 0.5000]]), tensor([[ True, False]]))
    """
    cosines = text_similarity(vectors, prompts)
    informative = (deviation > SMALLEST_DEVIATION) & vectors.ne(0).any(1, keepdim=True)
    standardised = (cosines - mean) / deviation.clamp(min=SMALLEST_DEVIATION)
    return torch.where(informative, standardised, 0.0).sigmoid(), informative


@torch.no_grad()
def text_statistics(batches: Iterable[Tensor], prompts: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and deviation ``(C,)``, float32, of the cosines of pictures and prompts.

    Args:
        batches: vectors ``(B, D)`` of pictures, batch by batch; zero vectors do not count.
        prompts: ``(C, D)``.

    >>> text_statistics([torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.zeros(1, 2)], torch.tensor([[1.0, 0.0]]))
    (tensor([0.5000]), tensor([0.5000]))
    """
    # In double precision, in which squares of cosines can be added up without harm.
    total = torch.zeros(len(prompts), dtype=torch.float64, device=prompts.device)
    squares, count = torch.zeros_like(total), 0
    for vectors in batches:
        counted = vectors[vectors.ne(0).any(1)]
        cosines = text_similarity(counted, prompts).double()
        total += cosines.sum(0)
        squares += cosines.square().sum(0)
        count += len(counted)
    mean = total / max(1, count)
    variance = squares / max(1, count) - mean.square()
    return mean.float(), variance.clamp(min=0.0).sqrt().float()


class TextGenerator(Generator):
    """Score by the similarity of a picture's vector and the vector of a prompt about the class.

    For runs on features that the image side of a tower made whose text side made the prompts; see
    :func:`text_scores`. Empty until :meth:`keep` is called. All it knows is in buffers, so a trained run needs neither
    the tower nor its weights.

    Args:
        num_classes: C.
    """

    prompts: Tensor
    mean: Tensor
    deviation: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.register_buffer("prompts", torch.zeros(num_classes, 0))
        self.register_buffer("mean", torch.zeros(num_classes))
        self.register_buffer("deviation", torch.zeros(num_classes))

    @property
    def empty(self) -> bool:
        """Whether it has no prompts yet."""
        return self.prompts.shape[1] == 0

    def keep(self, prompts: Tensor, mean: Tensor, deviation: Tensor) -> None:
        """Keep the prompts ``(C, D)``, and mean and deviation ``(C,)`` of their cosines with the training pictures."""
        self.prompts = F.normalize(prompts.float(), dim=-1, eps=1e-9).to(self.prompts)
        self.mean.copy_(mean)
        self.deviation.copy_(deviation)

    def forward(self, inputs: GeneratorInputs) -> GeneratorScores:
        """Score a batch; no gradient flows."""
        if inputs.vectors is None or self.empty:
            raise ValueError(
                "the text generator needs the vectors of the pictures and prompts to compare them with."
            )
        return GeneratorScores(*text_scores(inputs.vectors, self.prompts, self.mean, self.deviation))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        saved = state_dict.get(prefix + "prompts")
        if saved is not None:  # of any size
            self.prompts = self.prompts.new_zeros(len(self.prompts), saved.shape[1])
        super()._load_from_state_dict(state_dict, prefix, *rest)

"""Intra-image generator: classes that occur together with the known positives of the image."""

from __future__ import annotations

from satl.scoring.functional import intra_image_scores
from satl.scoring.generator import Generator, GeneratorInputs, GeneratorScores


class IntraImageGenerator(Generator):
    """Score by learned co-occurrence; see :func:`satl.functional.intra_image_scores`."""

    def __init__(self, leave_one_out: bool = True) -> None:
        super().__init__()
        self.leave_one_out = leave_one_out

    def forward(self, inputs: GeneratorInputs) -> GeneratorScores:
        """Score a batch from its pair probabilities."""
        if inputs.pair_probabilities is None:
            raise ValueError("the intra-image generator needs a network with a pair branch.")
        return GeneratorScores(
            *intra_image_scores(inputs.pair_probabilities, inputs.labels, self.leave_one_out)
        )

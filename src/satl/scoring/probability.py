"""Probability generator: the network's own class probability."""

from __future__ import annotations

import torch

from satl.scoring.generator import Generator, GeneratorInputs, GeneratorScores


class ProbabilityGenerator(Generator):
    """Score by the class probability of the network that is being trained.

    The network has been fitted to its known cells, so they score more extremely than unknown cells of the same
    kind; thresholds that are estimated from known cells are the more optimistic the longer it has been trained.
    """

    probability = True

    def forward(self, inputs: GeneratorInputs) -> GeneratorScores:
        """Return the probabilities of the batch."""
        if inputs.logits is None:
            raise ValueError("the probability generator needs the logits of the class head.")
        probabilities = inputs.logits.float().sigmoid()
        return GeneratorScores(probabilities, torch.ones_like(inputs.labels, dtype=torch.bool))

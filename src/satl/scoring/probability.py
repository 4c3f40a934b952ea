"""Probability generator: what the network itself says of a cell."""

from __future__ import annotations

import torch

from satl.scoring.generator import Evidence, Generator, Scores


class ProbabilityGenerator(Generator):
    """Score by the class probability of the network that is being trained.

    The network has been fitted to its known cells, so they score more extremely than unknown cells of the same
    kind; thresholds that are estimated from known cells are the more optimistic the longer it has been trained.
    """

    probability = True

    def forward(self, evidence: Evidence) -> Scores:
        """Return the probabilities of the batch."""
        if evidence.logits is None:
            raise ValueError("the probability generator needs the logits of the class head.")
        probabilities = evidence.logits.float().sigmoid()
        return Scores(probabilities, torch.ones_like(evidence.labels, dtype=torch.bool))

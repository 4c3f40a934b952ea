"""Teacher generator: the class probability of an average of past weights, on a view without augmentation."""

from __future__ import annotations

import torch

from satl.scoring.generator import Evidence, Generator, Scores


class TeacherGenerator(Generator):
    """Score by the teacher's class probability; no gradient flows."""

    probability = True

    def forward(self, evidence: Evidence) -> Scores:
        """Return the probabilities of the batch."""
        if evidence.teacher is None:
            raise ValueError("the teacher generator needs the probabilities of a teacher.")
        return Scores(evidence.teacher, torch.ones_like(evidence.labels, dtype=torch.bool))

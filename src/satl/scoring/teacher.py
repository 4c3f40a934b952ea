"""Teacher generator: the class probability of an average of past weights, on a view without augmentation."""

from __future__ import annotations

import torch

from satl.scoring.generator import Generator, GeneratorInputs, GeneratorScores


class TeacherGenerator(Generator):
    """Score by the teacher's class probability; no gradient flows."""

    probability = True

    def forward(self, inputs: GeneratorInputs) -> GeneratorScores:
        """Return the probabilities of the batch."""
        if inputs.teacher is None:
            raise ValueError("the teacher generator needs the probabilities of a teacher.")
        return GeneratorScores(inputs.teacher, torch.ones_like(inputs.labels, dtype=torch.bool))

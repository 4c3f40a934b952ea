"""Gated propagation over a graph of classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class GatedGraph(nn.Module):
    """Gated graph network: states (B, C, D), graph (C, C) -> states (B, C, D) after ``steps`` steps.

    One step, with A the graph and m = [A h ; A^T h]:
    z = sigmoid(Wz m + Uz h), r = sigmoid(Wr m + Ur h), h~ = tanh(Wh m + Uh (r h)), h <- (1 - z) h + z h~.

    >>> GatedGraph(8, steps=3)(torch.randn(2, 5, 8), torch.eye(5)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, dim: int, steps: int = 3) -> None:
        super().__init__()
        self.steps = steps
        self.update_message, self.update_state = nn.Linear(2 * dim, dim), nn.Linear(dim, dim)
        self.reset_message, self.reset_state = nn.Linear(2 * dim, dim), nn.Linear(dim, dim)
        self.candidate_message, self.candidate_state = nn.Linear(2 * dim, dim), nn.Linear(dim, dim)

    def forward(self, states: Tensor, graph: Tensor) -> Tensor:
        """States (..., C, D), graph (C, C) -> states (..., C, D)."""
        for _ in range(self.steps):
            message = torch.cat([torch.matmul(graph, states), torch.matmul(graph.T, states)], dim=-1)
            update = torch.sigmoid(self.update_message(message) + self.update_state(states))
            reset = torch.sigmoid(self.reset_message(message) + self.reset_state(states))
            candidate = torch.tanh(self.candidate_message(message) + self.candidate_state(reset * states))
            states = torch.lerp(states.to(candidate.dtype), candidate, update)
        return states

"""Graphs of classes, and propagation over them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from satl.models.functional import cooccurrence_counts


class GatedGraph(nn.Module):
    """Gated graph network: states (B, C, D), graph (C, C) -> states (B, C, D) after ``steps`` steps.

    One step, with A the graph and m = [A h ; A^T h]:
    z = sigmoid(Wz m + Uz h), r = sigmoid(Wr m + Ur h), h~ = tanh(Wh m + Uh (r h)), h <- (1 - z) h + z h~.

    Args:
        dim: D.
        steps: steps of propagation.
        tie_gates: use Uz for the reset gate as well, as the published SSGRL code does; there is no Ur then.
        zero_gates: start all weights and biases at zero, so that a step first only halves the states.

    >>> GatedGraph(8, steps=3)(torch.randn(2, 5, 8), torch.eye(5)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, dim: int, steps: int = 3, tie_gates: bool = False, zero_gates: bool = False) -> None:
        super().__init__()
        self.steps = steps
        self.update_message, self.update_state = nn.Linear(2 * dim, dim), nn.Linear(dim, dim)
        self.reset_message = nn.Linear(2 * dim, dim)
        # A second name for the same layer would be stored twice, and a layer without use has no gradient.
        self.reset_state = None if tie_gates else nn.Linear(dim, dim)
        self.candidate_message, self.candidate_state = nn.Linear(2 * dim, dim), nn.Linear(dim, dim)
        if zero_gates:
            for parameter in self.parameters():
                nn.init.zeros_(parameter)

    def forward(self, states: Tensor, graph: Tensor) -> Tensor:
        """States (..., C, D), graph (C, C) -> states (..., C, D)."""
        # Layers with the same input are one product of matrices: three narrow ones leave a GPU half idle.
        messages = (self.update_message, self.reset_message, self.candidate_message)
        gates = (self.update_state,) if self.reset_state is None else (self.update_state, self.reset_state)
        message_weight, message_bias = _joined(messages)
        gate_weight, gate_bias = _joined(gates)
        for _ in range(self.steps):
            message = torch.cat([torch.matmul(graph, states), torch.matmul(graph.T, states)], dim=-1)
            for_update, for_reset, for_candidate = F.linear(message, message_weight, message_bias).chunk(
                3, -1
            )
            of_state = F.linear(states, gate_weight, gate_bias).chunk(len(gates), -1)
            update = torch.sigmoid(for_update + of_state[0])
            reset = torch.sigmoid(for_reset + of_state[-1])
            candidate = torch.tanh(for_candidate + self.candidate_state(reset * states))
            states = torch.lerp(states.to(candidate.dtype), candidate, update)
        return states


def _joined(layers: tuple[nn.Linear, ...]) -> tuple[Tensor, Tensor]:
    """Weight and bias of the layer whose output is the outputs of all layers, one after the other."""
    return torch.cat([layer.weight for layer in layers]), torch.cat([layer.bias for layer in layers])


def convolution_graph(
    labels: Tensor | NDArray[np.generic],
    threshold: float = 0.4,
    weight: float = 0.25,
    *,
    encoding: str | None = None,
) -> Tensor:
    """Normalised graph of ML-GCN: which class an image with another class is likely to show, as a matrix (C, C).

    With P[i, j] = P(j present | i present) among known positives and P[i, i] = 0: B = [P >= ``threshold``],
    A = ``weight`` B / (column sums of B) + I, and the result is D A^T D with D = diag(row sums of A)^(-1/2).

    Args:
        labels: (N, C) with +1 present, -1 absent, 0 unknown.
        threshold: the conditional frequency from which a class is a neighbour.
        weight: what the neighbours of a class weigh together.
        encoding: how ``labels`` are written, if not +1, -1, 0. Labels with 0 and without -1 are refused unless one is
            named.

    Returns:
        (C, C) float32; a class without a known positive is connected to itself only.

    >>> convolution_graph(np.array([[1, 1, 0], [1, -1, 0], [1, -1, 0]], dtype=np.int8)).tolist()
    [[1.0, 0.22..., 0.0], [0.0, 0.80..., 0.0], [0.0, 0.0, 1.0]]
    """
    counts = cooccurrence_counts(labels, encoding=encoding)
    # Double precision: two of five images are exactly the threshold 0.4.
    conditional = (counts / counts.diagonal().clamp(min=1)[:, None]).fill_diagonal_(0.0)
    linked = (conditional >= threshold).double()
    graph = weight * linked / (linked.sum(0) + 1e-6) + torch.eye(len(counts), device=counts.device)
    scale = graph.sum(1).rsqrt()
    return (scale[:, None] * graph.T * scale).float()

"""Semantic decoupling: one feature vector per class, by attention over the locations of the map."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from satl.models.functional import semantic_attention


class SemanticDecoupling(nn.Module):
    """Low-rank bilinear attention: feature map (B, D, h, w), embeddings (C, E) -> class features (B, C, D).

    With q[l,c] = tanh((U f_l) * (V x_c)), the published attention logit is w4 . (W3 q + b3) + b4. No
    non-linearity stands between W3 and w4, so the logit is (W3^T w4) . q plus a constant, and the softmax
    over the locations removes the constant. The parameters are the published ones; the product W3^T w4 is
    taken in every forward pass, so that gradients and the optimiser's path are those of the unfolded form.

    >>> decoupling = SemanticDecoupling(feature_dim=8, embedding_dim=5, attention_dim=4)
    >>> decoupling(torch.randn(2, 8, 3, 3), torch.randn(6, 5)).shape
    torch.Size([2, 6, 8])
    """

    def __init__(self, feature_dim: int, embedding_dim: int, attention_dim: int) -> None:
        super().__init__()
        self.feature_projection = nn.Linear(feature_dim, attention_dim, bias=False)
        self.class_projection = nn.Linear(embedding_dim, attention_dim, bias=False)
        self.hidden = nn.Linear(attention_dim, attention_dim)
        self.output = nn.Linear(attention_dim, 1)

    def attention(self, locations: Tensor, embeddings: Tensor) -> Tensor:
        """Features of the locations (B, L, D), embeddings (C, E) -> weights (B, C, L) that sum to 1."""
        folded = (self.output.weight.T * self.hidden.weight).sum(0)
        logits = semantic_attention(
            self.feature_projection(locations), self.class_projection(embeddings), folded
        )
        # The biases cancel in the softmax. Their gradient is exactly zero, not absent: weight decay and
        # distributed training then treat them as in the unfolded form.
        constant = (self.output.weight * self.hidden.bias).sum() + self.output.bias
        return torch.softmax(logits + 0.0 * constant, dim=-1)

    def forward(self, feature_map: Tensor, embeddings: Tensor) -> Tensor:
        """Feature map (B, D, h, w), embeddings (C, E) -> class features (B, C, D)."""
        locations = feature_map.flatten(2).transpose(1, 2)
        weights = self.attention(locations, embeddings)
        return torch.matmul(weights.to(locations.dtype), locations)

"""Heads on class features: one classifier per class, one co-occurrence score per pair of classes."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from satl.models.functional import pair_indices, pair_scores


class ElementWiseLinear(nn.Module):
    """A linear output of its own for every item: features (B, N, D) -> (B, N), w_n . x_n + b_n.

    >>> ElementWiseLinear(3, 8)(torch.randn(2, 3, 8)).shape
    torch.Size([2, 3])
    """

    def __init__(self, items: int, dim: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(dim)
        self.weight = nn.Parameter(torch.empty(items, dim).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(items).uniform_(-bound, bound))

    @torch.no_grad()
    def set_prior(self, probabilities: Tensor) -> None:
        """Set the biases so that a zero feature gives these probabilities (N,)."""
        self.bias.copy_(torch.logit(probabilities))

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, N, D) -> (B, N)."""
        return (features * self.weight).sum(-1) + self.bias


class ClassHead(nn.Module):
    """Logit of every class from its propagated state h and its feature f.

    o_c = tanh(Wo [h_c ; f_c] + bo), z_c = w_c . o_c + b_c with own w_c and b_c for every class.

    >>> ClassHead(3, 8)(torch.randn(2, 3, 8), torch.randn(2, 3, 8)).shape
    torch.Size([2, 3])
    """

    def __init__(self, num_classes: int, dim: int) -> None:
        super().__init__()
        self.output = nn.Linear(2 * dim, dim)
        self.classifier = ElementWiseLinear(num_classes, dim)

    def forward(self, states: Tensor, features: Tensor) -> Tensor:
        """States and features (B, C, D) -> logits (B, C)."""
        joined = torch.cat([states, features.to(states.dtype)], dim=-1)
        logits: Tensor = self.classifier(torch.tanh(self.output(joined)))
        return logits


class PairHead(nn.Module):
    """Co-occurrence logit of every pair of classes: features (B, C, D) -> (B, Q), Q = C (C - 1) / 2.

    Published form, for i < j: g_c = W1 f_c + b1; h_ij = relu(W2 [g_i ; g_j] + b2); v_ij = W3 h_ij + b3;
    e_ij = u_ij . v_ij + c_ij. Evaluated exactly without a vector per image and pair: W2 is split into the
    parts of i and of j, and W3 is folded into u_ij once for the whole batch. The parameters are the published
    ones.

    >>> PairHead(4, feature_dim=8, pair_dim=6, pair_hidden=7)(torch.randn(2, 4, 8)).shape
    torch.Size([2, 6])
    """

    def __init__(self, num_classes: int, feature_dim: int, pair_dim: int, pair_hidden: int) -> None:
        super().__init__()
        self.reduce = nn.Linear(feature_dim, pair_dim)
        self.join = nn.Linear(2 * pair_dim, pair_hidden)
        self.hidden = nn.Linear(pair_hidden, pair_hidden)
        self.classifier = ElementWiseLinear(num_classes * (num_classes - 1) // 2, pair_hidden)

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, C, D) -> pair logits (B, Q), row-major upper triangle."""
        reduced = self.reduce(features)
        first, second = self.join.weight.chunk(2, dim=1)
        left, right = F.linear(reduced, first, self.join.bias), F.linear(reduced, second)
        vectors = self.classifier.weight @ self.hidden.weight
        constants = self.classifier.weight @ self.hidden.bias + self.classifier.bias
        return pair_scores(left, right, vectors) + constants


class FactorisedPairHead(nn.Module):
    """Co-occurrence logit of every pair of classes, for many classes: features (B, C, D) -> (B, Q).

    The full head keeps a vector of its own for every pair, C^2 D / 2 numbers: 2 GB for 1,000 classes, and as much
    again for each state of the optimiser. Here every class has two vectors, x_c and y_c, and that of a pair is
    their product: g_c = W1 f_c + b1; l_c = relu(Wl g_c + bl) x_c; r_c = relu(Wr g_c + br) y_c;
    e_ij = l_i . r_j + c_ij. The two features meet in a product instead of a sum, so that all pairs of an image are
    one product of matrices (C, H) (H, C); memory grows with C, apart from one number a pair (its logit and c_ij).

    >>> FactorisedPairHead(4, feature_dim=8, pair_dim=6, pair_hidden=7)(torch.randn(2, 4, 8)).shape
    torch.Size([2, 6])
    """

    places: Tensor

    def __init__(self, num_classes: int, feature_dim: int, pair_dim: int, pair_hidden: int) -> None:
        super().__init__()
        self.reduce = nn.Linear(feature_dim, pair_dim)
        self.join = nn.Linear(pair_dim, 2 * pair_hidden)
        # The product of two such numbers is as large as an entry of the full head's vectors.
        bound = pair_hidden**-0.25
        self.weight = nn.Parameter(torch.empty(num_classes, 2 * pair_hidden).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(num_classes * (num_classes - 1) // 2))
        first, second = pair_indices(num_classes)
        self.register_buffer("places", first * num_classes + second, persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, C, D) -> pair logits (B, Q), row-major upper triangle."""
        left, right = (self.join(self.reduce(features)).relu() * self.weight).chunk(2, dim=-1)
        every = torch.matmul(left, right.transpose(1, 2)).flatten(1)
        return every.index_select(1, self.places) + self.bias


PAIR_HEADS: dict[str, type[nn.Module]] = {"full": PairHead, "factorised": FactorisedPairHead}

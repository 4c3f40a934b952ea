"""The published training step of SST, written plainly: the peer of ``benchmarks/step.py``.

A re-implementation from the description of the published code, with what makes that code slow and nothing beyond
it: float32, eager, Adam as torch gives it without a word, and

* nothing folded: both last linear layers of the attention run on every location and class, the pair network runs
  on every pair of every image;
* everything materialised: B x L x C x D in the decoupling, B x Q x D in the pair branch, the features of the
  unknown cells repeated for every stored one, the features of both images of every batch pair;
* loops: the bank is filled class by class, the pair matrix row by row;
* host copies: targets of pairs and pseudo-labels are made on the host, random choices are drawn there, and six
  losses are read after every step.

The parameters are those of :class:`satl.models.SemanticTransferNetwork` under the same names, so that weights pass from
one to the other by ``load_state_dict``; ``tests/benchmarks/test_plain_sst.py`` compares the two. Where the
description leaves a choice, the cheaper one is taken: scores are computed without gradients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PlainOutput(NamedTuple):
    """What the network says about a batch."""

    logits: Tensor
    """(B, C)"""
    pair_logits: Tensor
    """(B, Q), pairs i < j row by row"""
    features: Tensor
    """(B, C, D)"""


class PlainBackbone(nn.Module):
    """A ResNet of timm of which only the last stage is trained: images (B, 3, H, W) -> (B, channels, h, w)."""

    def __init__(self, name: str = "resnet101", kwargs: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        import timm

        self.network = timm.create_model(name, num_classes=0, global_pool="", **(kwargs or {}))
        self.channels = int(self.network.num_features)
        self.network.requires_grad_(False)
        self.network.layer4.requires_grad_(True)
        self.pool = nn.AvgPool2d(2, 2)

    def train(self, mode: bool = True) -> PlainBackbone:
        """Keep everything but the last stage in eval mode."""
        super().train(mode)
        self.network.eval()
        self.network.layer4.train(mode)
        return self

    def forward(self, images: Tensor) -> Tensor:
        """Return the pooled last map."""
        return self.pool(self.network.forward_features(images))


class PlainDecoupling(nn.Module):
    """Attention of every class over the locations, every tensor written out."""

    def __init__(self, feature_dim: int, embedding_dim: int, attention_dim: int) -> None:
        super().__init__()
        self.feature_projection = nn.Linear(feature_dim, attention_dim, bias=False)
        self.class_projection = nn.Linear(embedding_dim, attention_dim, bias=False)
        self.hidden = nn.Linear(attention_dim, attention_dim)
        self.output = nn.Linear(attention_dim, 1)

    def forward(self, feature_map: Tensor, embeddings: Tensor) -> Tensor:
        """Feature map (B, D, h, w), embeddings (C, E) -> class features (B, C, D)."""
        batch, classes = len(feature_map), len(embeddings)
        locations = feature_map.flatten(2).transpose(1, 2).contiguous()  # (B, L, D)
        count = locations.shape[1]
        of_locations = self.feature_projection(locations).unsqueeze(2).repeat(1, 1, classes, 1)
        of_classes = self.class_projection(embeddings).repeat(batch, count, 1, 1)
        gates = torch.tanh(of_locations * of_classes)  # (B, L, C, A)
        weights = torch.softmax(self.output(self.hidden(gates)), dim=1)  # (B, L, C, 1)
        repeated = locations.unsqueeze(2).repeat(1, 1, classes, 1)  # (B, L, C, D)
        return (repeated * weights).sum(1)


class PlainGraph(nn.Module):
    """Gated propagation of class states over the graph."""

    def __init__(self, dim: int, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.update_message, self.update_state = nn.Linear(2 * dim, dim), nn.Linear(dim, dim)
        self.reset_message, self.reset_state = nn.Linear(2 * dim, dim), nn.Linear(dim, dim)
        self.candidate_message, self.candidate_state = nn.Linear(2 * dim, dim), nn.Linear(dim, dim)

    def forward(self, states: Tensor, graph: Tensor) -> Tensor:
        """States (B, C, D), graph (C, C) -> states (B, C, D)."""
        for _ in range(self.steps):
            message = torch.cat([graph @ states, graph.T @ states], dim=-1)
            update = torch.sigmoid(self.update_message(message) + self.update_state(states))
            reset = torch.sigmoid(self.reset_message(message) + self.reset_state(states))
            candidate = torch.tanh(self.candidate_message(message) + self.candidate_state(reset * states))
            states = (1 - update) * states + update * candidate
        return states


class PlainElementWise(nn.Module):
    """An own linear output of every item: (B, N, D) -> (B, N)."""

    def __init__(self, items: int, dim: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(dim)
        self.weight = nn.Parameter(torch.empty(items, dim).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(items).uniform_(-bound, bound))

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, N, D) -> (B, N)."""
        return (features * self.weight).sum(-1) + self.bias


class PlainClassHead(nn.Module):
    """Logits from propagated states and features."""

    def __init__(self, classes: int, dim: int) -> None:
        super().__init__()
        self.output = nn.Linear(2 * dim, dim)
        self.classifier = PlainElementWise(classes, dim)

    def forward(self, states: Tensor, features: Tensor) -> Tensor:
        """States and features (B, C, D) -> logits (B, C)."""
        return self.classifier(torch.tanh(self.output(torch.cat([states, features], dim=-1))))


class PlainPairHead(nn.Module):
    """Every pair of every image through the whole pair network."""

    def __init__(self, classes: int, feature_dim: int, pair_dim: int, pair_hidden: int) -> None:
        super().__init__()
        self.reduce = nn.Linear(feature_dim, pair_dim)
        self.join = nn.Linear(2 * pair_dim, pair_hidden)
        self.hidden = nn.Linear(pair_hidden, pair_hidden)
        self.classifier = PlainElementWise(classes * (classes - 1) // 2, pair_hidden)

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, C, D) -> pair logits (B, Q)."""
        first, second = torch.triu_indices(features.shape[1], features.shape[1], 1, device=features.device)
        reduced = self.reduce(features)
        joined = torch.cat([reduced[:, first], reduced[:, second]], dim=-1)  # (B, Q, 2 pair_dim)
        return self.classifier(self.hidden(torch.relu(self.join(joined))))


class PlainSST(nn.Module):
    """The network of SST as published, with its feature bank.

    Args:
        num_classes: C.
        backbone: gives maps (B, ``backbone.channels``, h, w).
        graph: (C, C), not trained.
        embeddings: (C, E) word vectors, not trained, unless they come as a parameter.
        feature_dim: D.
        attention_dim: size of the attention space.
        steps: steps over the graph.
        pair_dim: size of a class feature in the pair branch.
        pair_hidden: hidden size of the pair branch.
        bank_size: E, stored features of each class.
    """

    def __init__(
        self,
        num_classes: int,
        backbone: nn.Module,
        graph: Tensor,
        embeddings: Tensor,
        feature_dim: int = 1024,
        attention_dim: int = 512,
        steps: int = 3,
        pair_dim: int = 512,
        pair_hidden: int = 1024,
        bank_size: int = 100,
    ) -> None:
        super().__init__()
        self.num_classes, self.feature_dim = num_classes, feature_dim
        self.backbone = backbone
        self.register_buffer("graph", graph.detach().clone())
        if isinstance(embeddings, nn.Parameter):
            self.embeddings = nn.Parameter(embeddings.detach().clone())
        else:
            self.register_buffer("embeddings", embeddings.detach().clone())
        self.reduction = nn.Sequential(
            nn.Conv2d(int(backbone.channels), feature_dim, 1, bias=False), nn.BatchNorm2d(feature_dim)
        )
        self.decoupling = PlainDecoupling(feature_dim, embeddings.shape[1], attention_dim)
        self.propagation = PlainGraph(feature_dim, steps)
        self.class_head = PlainClassHead(num_classes, feature_dim)
        self.pair_head = PlainPairHead(num_classes, feature_dim, pair_dim, pair_hidden)
        # As published no buffer: a checkpoint does not hold it.
        self.bank = torch.zeros(num_classes, bank_size, feature_dim)

    def class_features(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) -> class features (B, C, D)."""
        return self.decoupling(self.reduction(self.backbone(images)), self.embeddings)

    def forward(self, images: Tensor) -> PlainOutput:
        """Images (B, 3, H, W) -> logits, pair logits and class features."""
        features = self.class_features(images)
        logits = self.class_head(self.propagation(features, self.graph), features)
        return PlainOutput(logits, self.pair_head(features), features)

    @torch.no_grad()
    def fill_bank(self, features: Tensor, labels: Tensor) -> None:
        """Put the features (B, C, D) of the known positives in front, class by class."""
        self.bank = self.bank.to(features)
        size = self.bank.shape[1]
        for c in range(self.num_classes):
            present = features[labels[:, c] == 1, c]
            self.bank[c] = torch.cat([present, self.bank[c]])[:size]


@torch.no_grad()
def intra_scores(pair_logits: Tensor, labels: Tensor) -> Tensor:
    """Mean co-occurrence of every class with the known positives of its image: (B, C).

    Args:
        pair_logits: (B, Q).
        labels: (B, C) with +1, -1, 0.
    """
    batch, classes = labels.shape
    pairs = torch.sigmoid(pair_logits)
    matrix = torch.ones(batch, classes, classes).to(pairs)
    start = 0
    for row in range(classes - 1):
        values = pairs[:, start : start + classes - 1 - row]
        matrix[:, row, row + 1 :] = values
        matrix[:, row + 1 :, row] = values
        start += classes - 1 - row
    present = (labels == 1).to(pairs)
    total = (matrix * present.unsqueeze(1)).sum(-1)
    return total / present.sum(1, keepdim=True).clamp(min=1)


@torch.no_grad()
def cross_scores(features: Tensor, labels: Tensor, bank: Tensor) -> Tensor:
    """Mean cosine of the unknown cells to the bank of their class: (B, C), 0 for known cells.

    Args:
        features: (B, C, D).
        labels: (B, C) with +1, -1, 0.
        bank: (C, E, D); a slot that is not filled is zero and adds 0.
    """
    image, label = torch.nonzero(labels == 0, as_tuple=True)
    repeated = features[image, label].unsqueeze(1).repeat(1, bank.shape[1], 1)  # (unknown, E, D)
    cosine = F.cosine_similarity(repeated, bank[label], dim=-1, eps=1e-9)
    scores = torch.zeros(labels.shape).to(features)
    scores[image, label] = cosine.mean(1)
    return scores


def fill_unknown(scores: Tensor, labels: Tensor, threshold: float) -> Tensor:
    """Labels (B, C) in which an unknown cell is 1 where its score reaches the threshold, made on the host."""
    values, filled = scores.detach().cpu().numpy(), labels.detach().cpu().numpy().copy()
    filled[(filled == 0) & (values >= threshold)] = 1
    return torch.from_numpy(filled).to(labels.device)


def known_bce(logits: Tensor, labels: Tensor) -> Tensor:
    """Binary cross-entropy over the known cells: logits and labels (B, C) -> scalar."""
    positive = (labels == 1).to(logits)
    negative = (labels == -1).to(logits)
    cost = positive * F.softplus(-logits) + negative * F.softplus(logits)
    return cost.sum() / (positive + negative).sum().clamp(min=1)


def pair_loss(pair_logits: Tensor, labels: Tensor) -> Tensor:
    """Asymmetric loss over all pairs; the targets are made on the host: (B, Q), (B, C) -> scalar."""
    import numpy as np

    present = labels.detach().cpu().numpy() == 1
    first, second = np.triu_indices(present.shape[1], 1)
    target = torch.from_numpy((present[:, first] & present[:, second]).astype(np.float64)).to(pair_logits)
    together = torch.sigmoid(pair_logits)
    apart = (1 - together + 0.05).clamp(max=1)
    cost = target * torch.log(together.clamp(min=1e-8)) * (1 - together)
    cost = cost + (1 - target) * torch.log(apart.clamp(min=1e-8)) * (1 - apart) ** 2
    return -cost.mean()


def contrast_loss(features: Tensor, labels: Tensor) -> Tensor:
    """Cosines of the class features of every batch pair, both sides copied: (B, C, D), (B, C) -> scalar."""
    first, second = torch.triu_indices(len(features), len(features), 1, device=features.device)
    cosine = F.cosine_similarity(features[first], features[second], dim=-1, eps=1e-9)  # (B (B - 1) / 2, C)
    left, right = labels[first], labels[second]
    positive = 1 - cosine[(left == 1) & (right == 1)]
    mixed = 1 + cosine[left * right == -1]
    negative = 1 + cosine[(left == -1) & (right == -1)]
    chosen = [positive]
    for costs in (mixed, negative):
        if len(positive) == 0:
            chosen.append(costs)
            continue
        at_random = torch.randperm(len(costs))[: 2 * len(positive)].to(costs.device)
        chosen += [costs[at_random], costs.sort(descending=True).values[: len(positive)]]
    entries = torch.cat(chosen)
    return entries.mean() if len(entries) else entries.sum()


def plain_losses(
    model: PlainSST,
    images: Tensor,
    labels: Tensor,
    stage: int = 2,
    threshold: float = 0.95,
    ramp: float = 1.0,
) -> dict[str, Tensor]:
    """Weighted terms of the loss of one batch by name.

    Args:
        model: its bank takes in the batch before it is scored.
        images: (B, 3, H, W) pixels.
        labels: (B, C) with +1, -1, 0.
        stage: 1 or 2; pseudo-labels belong to stage 2.
        threshold: of both generators.
        ramp: weight in [0, 1] of the terms that grow in the first epoch.
    """
    output = model(images)
    model.fill_bank(output.features.detach(), labels)
    terms = {"classification": known_bce(output.logits, labels)}
    if stage == 2:
        intra = fill_unknown(intra_scores(output.pair_logits, labels), labels, threshold)
        cross = fill_unknown(cross_scores(output.features, labels, model.bank), labels, threshold)
        terms["intra"] = known_bce(output.logits, intra)
        terms["cross"] = known_bce(output.logits, cross)
    terms["cooccurrence"] = 10.0 * ramp * pair_loss(output.pair_logits, labels)
    terms["contrast"] = 0.05 * ramp * contrast_loss(output.features, labels)
    return terms


def plain_optimiser(model: nn.Module, lr: float = 1e-5, weight_decay: float = 5e-4) -> torch.optim.Optimizer:
    """Adam over the trained parameters, not fused."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.Adam(trained, lr=lr, weight_decay=weight_decay)


def plain_step(
    model: PlainSST,
    optimiser: torch.optim.Optimizer,
    images: Tensor,
    labels: Tensor,
    stage: int = 2,
    threshold: float = 0.95,
    ramp: float = 1.0,
) -> dict[str, float]:
    """Do one training step and read its losses: images (B, 3, H, W), labels (B, C) -> terms and total by name."""
    terms = plain_losses(model, images, labels, stage, threshold, ramp)
    total = torch.stack(list(terms.values())).sum()
    optimiser.zero_grad()
    total.backward()
    optimiser.step()
    return {name: term.item() for name, term in (terms | {"total": total}).items()}

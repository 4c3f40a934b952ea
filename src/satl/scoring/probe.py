"""A linear probe: logistic regression of each class on fixed features of the images, from its known cells alone.

With few known labels a probe of pretrained features ranks images about as well as a network that was trained on those
labels, and makes other mistakes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from satl.checks.tensor_checks import as_signed, known_cells
from satl.errors import ArrayError

PENALTIES = (3e-5, 1e-4, 3e-4, 1e-3)
FOLDS = 3
_ITERATIONS = 50


class ProbeLogits(nn.Module):
    """The logits ``(N, C)`` of a probe for the images of a table, by row, kept with a run.

    Empty until :meth:`keep` is called, and then as large as the table it is for.
    """

    logits: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.register_buffer("logits", torch.zeros(0, num_classes))

    def keep(self, rows: Tensor, logits: Tensor, num_images: int) -> None:
        """Keep the logits ``(R, C)`` of the rows ``(R,)`` of a table of ``num_images``."""
        whole = logits.new_zeros(num_images, logits.shape[1])
        self.logits = whole.index_copy_(0, rows, logits).to(self.logits)

    def keep_all(self, logits: Tensor) -> None:
        """Keep the logits ``(N, C)`` of all images of a table, without a copy of them."""
        self.logits = logits.to(self.logits)

    def probabilities(self, rows: Tensor) -> Tensor:
        """Return the probe's probabilities ``(B, C)`` of the images of ``rows``."""
        return self.logits.index_select(0, rows).sigmoid()

    def blend(self, probabilities: Tensor, rows: Tensor, weight: float) -> Tensor:
        """Move probabilities ``(B, C)`` of the images of ``rows`` towards the probe's, in log-odds.

        >>> probe = ProbeLogits(num_classes=1)
        >>> probe.keep(torch.tensor([2]), torch.tensor([[4.0]]), num_images=3)
        >>> probe.blend(torch.tensor([[0.5]]), torch.tensor([2]), weight=0.5)  # log-odds of 0 and 4 make 2
        tensor([[0.8808]])
        """
        # Beyond this a probability of 32 bits is 0 or 1, and its log-odds are infinite.
        odds = probabilities.clamp(1e-6, 1 - 1e-6).logit()
        return torch.lerp(odds, self.logits.index_select(0, rows), weight).sigmoid()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        saved = state_dict.get(prefix + "logits")
        if saved is not None:  # for a table of any length
            self.logits = self.logits.new_zeros(len(saved), self.logits.shape[1])
        super()._load_from_state_dict(state_dict, prefix, *rest)


class LinearProbe(nn.Module):
    """Logistic regression on features that are standardised by the mean and spread of the images to learn from.

    Args:
        features: ``(N, D)`` of the images to learn from; features that hardly differ between them are left out.
        num_classes: C.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, features: Tensor, num_classes: int) -> None:
        super().__init__()
        mean = features.mean(0)
        spread = (features - mean).square().mean(0).sqrt()
        differs = spread > 1e-6 * spread.amax()
        size = features.shape[1]
        self.register_buffer("mean", mean)
        self.register_buffer("scale", torch.where(differs, 1 / spread, 0.0) / size**0.5)
        self.linear = nn.Linear(size, num_classes, device=features.device)

    def forward(self, features: Tensor) -> Tensor:
        """Features ``(N, D)`` -> logits ``(N, C)``."""
        logits: Tensor = self.linear(self.scaled(features))
        return logits

    def scaled(self, features: Tensor) -> Tensor:
        """Return the features as the regression sees them; their squares sum to about 1."""
        return (features.float() - self.mean) * self.scale

    def fit(self, features: Tensor, labels: Tensor, penalty: float) -> LinearProbe:
        """Fit all classes at once, each to its known cells: their costs have no coefficient in common.

        Beside its known cells each class has half a positive and half a negative of an average image, which keeps the
        bias of a class with cells of one kind finite.

        Args:
            features: ``(N, D)``.
            labels: ``(N, C)`` with +1, -1, 0.
            penalty: of a coefficient's square, beside the mean cost of a class's known cells.
        """
        inputs, known, present = self.scaled(features), known_cells(labels).float(), (labels > 0).float()
        count = known.sum(0) + 1.0
        weight, bias = self.linear.weight, self.linear.bias
        with torch.no_grad():
            weight.zero_()
            bias.copy_(torch.logit((present.sum(0) + 0.5) / count))
        optimiser = torch.optim.LBFGS([weight, bias], max_iter=_ITERATIONS, line_search_fn="strong_wolfe")

        def cost() -> Tensor:
            optimiser.zero_grad()
            costs = F.binary_cross_entropy_with_logits(
                self.linear(inputs), present, weight=known, reduction="none"
            )
            average = (F.softplus(bias) + F.softplus(-bias)) / 2
            total = ((costs.sum(0) + average) / count).sum() + penalty * weight.square().sum()
            total.backward()
            return total

        with torch.enable_grad():
            optimiser.step(cost)
        return self


@torch.no_grad()
def fit_probe(
    features: Tensor,
    labels: Tensor,
    penalties: Sequence[float] = PENALTIES,
    folds: int = FOLDS,
    *,
    encoding: str | None = None,
) -> tuple[LinearProbe, Tensor]:
    """Fit a probe, with the penalty that fits the known cells of left-out folds best.

    Args:
        features: ``(N, D)``.
        labels: ``(N, C)`` with +1, -1, 0.
        penalties: to choose from; see :meth:`LinearProbe.fit`.
        folds: the images n, n + folds, ... are a fold.
        encoding: how ``labels`` are written, if not +1, -1, 0. Labels with 0 and without -1 are refused unless one is
            named.

    Returns:
        The probe, fitted to all known cells, and logits ``(N, C)`` of fits to the other folds.
    """
    labels = as_signed(labels, encoding)
    if features.ndim != 2 or labels.ndim != 2 or features.shape[0] != labels.shape[0]:
        raise ArrayError(
            f"features (N, D) and labels (N, C) must be of the same images, got {tuple(features.shape)} and "
            f"{tuple(labels.shape)}."
        )
    features = features.float()
    known, present = known_cells(labels).float(), (labels > 0).float()
    probe = LinearProbe(features, labels.shape[1])
    fold = torch.arange(len(features), device=features.device) % folds
    best, best_cost, best_penalty = torch.zeros_like(known), float("inf"), penalties[0]
    for penalty in penalties:
        found = torch.zeros_like(known)
        for number in range(folds):
            left_out = (fold == number)[:, None]
            probe.fit(features, torch.where(left_out, 0, labels), penalty)
            found = torch.where(left_out, probe(features), found)
        cost = float(F.binary_cross_entropy_with_logits(found, present, weight=known, reduction="sum"))
        if cost < best_cost:
            best, best_cost, best_penalty = found, cost, penalty
    return probe.fit(features, labels, best_penalty), best


@torch.no_grad()
def probe_logits(
    features: Tensor,
    labels: Tensor,
    penalties: Sequence[float] = PENALTIES,
    folds: int = FOLDS,
    *,
    encoding: str | None = None,
) -> Tensor:
    """Return the logits ``(N, C)`` of a probe, each from a fit that did not see the cell.

    Classes are fitted apart from each other, so that no fit of a class has seen its unknown cells: they get the fit
    to all known ones. A known cell gets that to the known cells of the other folds. A class without known cells gets
    zeros, one with known cells of one kind gets logits of that sign.

    Args:
        features: ``(N, D)``.
        labels: ``(N, C)`` with +1, -1, 0.
        penalties: to choose from; see :meth:`LinearProbe.fit`.
        folds: the images n, n + folds, ... are a fold.
        encoding: as in :func:`fit_probe`.
    """
    labels = as_signed(labels, encoding)
    probe, left_out = fit_probe(features, labels, penalties, folds, encoding="signed")
    return torch.where(known_cells(labels), left_out, probe(features))

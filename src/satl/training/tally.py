"""Sums of an epoch on the device: loss terms and the quality of pseudo-labels."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from satl.distributed import sum_across, world_size
from satl.evaluation.pseudo_quality import UNION, PseudoLabelQuality
from satl.methods import StepResult


class EpochTally:
    """Sums over the steps of one epoch, read by the host only when they are asked for.

    Args:
        generators: names of the generators.
        num_classes: C.
        device: where to add up.
    """

    def __init__(self, generators: tuple[str, ...], num_classes: int, device: torch.device) -> None:
        self.names = (*generators, UNION) if generators else ()
        self.steps = 0
        self.losses: dict[str, Tensor] = {}
        self.first: dict[str, Tensor] = {}
        self.skipped = torch.zeros((), dtype=torch.int64, device=device)
        # Per generator and class: pseudo-labels emitted, and of those with known truth the right, the wrong,
        # and the positives that were missed.
        self.counts = torch.zeros(len(self.names), 4, num_classes, dtype=torch.int64, device=device)

    def reset(self) -> None:
        """Begin another epoch of the same stage; the sums stay where they are, for a captured step adds to them."""
        self.steps = 0
        for total in (*self.losses.values(), self.counts, self.skipped):
            total.zero_()

    @torch.no_grad()
    def add(
        self, result: StepResult, labels: Tensor, truth: Tensor | None, may_overflow: bool = False
    ) -> None:
        """Add one step; no host synchronisation.

        Args:
            result: of the step.
            labels: of its images.
            truth: of the same cells, where it is known.
            may_overflow: whether a loss that is not finite means a step that was skipped, which is left out of the
                means.
        """
        self.steps += 1
        parts = result.parts
        if may_overflow:
            finite = torch.stack([*parts.values()]).isfinite().all()
            parts = {name: torch.where(finite, part, 0.0) for name, part in parts.items()}
            self.skipped += ~finite
        if not self.first:  # a graph is captured only after some steps, so this copy is not part of it
            self.first = {name: part.detach().double().clone() for name, part in parts.items()}
        for name, part in parts.items():
            if name not in self.losses:
                self.losses[name] = torch.zeros((), dtype=torch.float64, device=part.device)
            self.losses[name] += part
        if not result.pseudo:
            return
        unknown = labels == 0
        emitted = [unknown & (filled > 0) for filled in result.pseudo.values()]
        each = torch.stack([*emitted, torch.stack(emitted).any(0)])  # (G + 1, B, C)
        counts = [each.sum(1)]
        if truth is not None:
            present, absent = unknown & (truth > 0), unknown & (truth < 0)
            counts += [(each & present).sum(1), (each & absent).sum(1), (~each & present).sum(1)]
        else:
            counts += [torch.zeros_like(counts[0])] * 3
        self.counts += torch.stack(counts, dim=1)

    def mean_losses(self) -> dict[str, float]:
        """Return the mean of each loss term over steps and processes, and their sum as ``total``."""
        if not self.losses:
            return {}
        sums = sum_across(torch.stack([*self.losses.values()]))
        steps = sum_across((self.steps - self.skipped).double())
        means = dict(zip(self.losses, (sums / steps).tolist(), strict=True))
        return {"total": sum(means.values()), **means}

    def first_losses(self) -> dict[str, float]:
        """Return each loss term of the first step that was added, over all processes, and their sum as ``total``."""
        if not self.first:
            return {}
        means = sum_across(torch.stack([*self.first.values()])) / world_size()
        first = dict(zip(self.first, means.tolist(), strict=True))
        return {"total": sum(first.values()), **first}

    def own_mean_losses(self) -> dict[str, float]:
        """Return the same for this process alone, which any process may ask for at any time."""
        steps = self.steps - int(self.skipped)
        means = {name: float(value) / steps if steps else math.nan for name, value in self.losses.items()}
        return {"total": sum(means.values()), **means} if means else {}

    def pseudo_labels(self, with_truth: bool, expected: float) -> dict[str, dict[str, Any]]:
        """Return counts and, where truth is known, precision and recall per generator and their union.

        Args:
            with_truth: whether truth was given.
            expected: how many unknown cells are to be expected positive; written beside the union.
        """
        counts = sum_across(self.counts).cpu().numpy()
        table: dict[str, dict[str, Any]] = {}
        for name, (emitted, right, wrong, missed) in zip(self.names, counts, strict=True):
            table[name] = {"emitted": int(emitted.sum())}
            if with_truth:
                quality = PseudoLabelQuality.from_counts(right, wrong, missed)
                table[name] |= {key: value for key, value in quality.summary().items() if key != "emitted"}
        if table:
            table[UNION]["expected"] = round(expected, 1)
        return table

    def state_dict(self) -> dict[str, Any]:
        """Return everything, for a checkpoint within an epoch."""
        losses, first = (
            {name: value.cpu() for name, value in terms.items()} for terms in (self.losses, self.first)
        )
        counts = {"counts": self.counts.cpu(), "skipped": self.skipped.cpu()}
        return {"steps": self.steps, "losses": losses, "first": first, **counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        self.steps = state["steps"]
        device = self.counts.device
        self.losses = {name: value.to(device) for name, value in state["losses"].items()}
        # A checkpoint of an earlier version does not have it.
        self.first = {name: value.to(device) for name, value in state.get("first", {}).items()}
        self.skipped.copy_(state.get("skipped", torch.zeros(())))
        self.counts.copy_(state["counts"])

"""The losses in plain Python loops over float64 cells; torch only so that gradients can be compared."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor


def _zero(tensor: Tensor) -> Tensor:
    return (
        tensor.double().sum() * 0.0 if bool(tensor.isfinite().all()) else torch.zeros((), dtype=torch.float64)
    )


def binary_cross_entropy(logit: Tensor, label: int) -> Tensor:
    """One known cell: -log p if present, -log (1 - p) if absent."""
    sign = 1.0 if label == 1 else -1.0
    return -torch.log(torch.sigmoid(sign * logit.double()))


def partial_bce(logits: Tensor, labels: Tensor, reduction: str) -> Tensor:
    """Mean over known cells, or mean of the means of the images that have any."""
    images = []
    for n in range(labels.shape[0]):
        costs = []
        for c in range(labels.shape[1]):
            if int(labels[n, c]) != 0:
                costs.append(binary_cross_entropy(logits[n, c], int(labels[n, c])))
        images.append(costs)
    if reduction == "known":
        values = [cost for costs in images for cost in costs]
    else:
        values = [sum(costs) / len(costs) for costs in images if costs]
    return sum(values) / len(values) if values else _zero(logits)


def differential_ranking(
    scores: Tensor, labels: Tensor, thresholds: list[float], clamp: bool, reduction: str
) -> Tensor:
    """1 - d for a known positive, 1 + d for a known negative."""
    total, known = _zero(scores), 0
    for n in range(labels.shape[0]):
        for c in range(labels.shape[1]):
            label = int(labels[n, c])
            if label == 0:
                continue
            difference = scores[n, c].double() - thresholds[c]
            if clamp and float(difference.detach()) <= 0:
                difference = difference * 0.0
            total = total + (1 - difference if label == 1 else 1 + difference)
            known += 1
    return total / {"batch": labels.shape[0], "sum": 1, "known": max(known, 1)}[reduction]


def cooccurrence(pair_logits: Tensor, labels: Tensor) -> Tensor:
    """Asymmetric loss over the pairs of classes of every image."""
    costs = []
    for n in range(labels.shape[0]):
        for q, (i, j) in enumerate(itertools.combinations(range(labels.shape[1]), 2)):
            together = torch.sigmoid(pair_logits[n, q].double())
            if int(labels[n, i]) == 1 and int(labels[n, j]) == 1:
                costs.append(-torch.log(together.clamp(min=1e-8)) * (1 - together))
            else:
                apart = 1 - together + 0.05
                if float(apart.detach()) > 1:
                    apart = apart * 0.0 + 1.0
                costs.append(-torch.log(apart) * (1 - apart) ** 2)
    return sum(costs) / len(costs) if costs else _zero(pair_logits)


def contrast_entries(
    features: Tensor, labels: Tensor
) -> dict[str, list[tuple[tuple[int, int, int], Tensor]]]:
    """Costs of all usable (class, image, image) entries, by kind."""
    found: dict[str, list[tuple[tuple[int, int, int], Tensor]]] = {
        "positive": [],
        "mixed": [],
        "negative": [],
    }
    for c in range(labels.shape[1]):
        for i, j in itertools.combinations(range(labels.shape[0]), 2):
            left, right = features[i, c].double(), features[j, c].double()
            cosine = (left / left.norm().clamp(min=1e-9)) @ (right / right.norm().clamp(min=1e-9))
            kinds = {int(labels[i, c]), int(labels[j, c])}
            if 0 in kinds:
                continue
            if kinds == {1}:
                found["positive"].append(((c, i, j), 1 - cosine))
            elif kinds == {-1}:
                found["negative"].append(((c, i, j), 1 + cosine))
            else:
                found["mixed"].append(((c, i, j), 1 + cosine))
    return found


def contrastive(features: Tensor, labels: Tensor, noise: Tensor) -> Tensor:
    """SST's contrast; ``noise`` (C, pairs) decides which entries are taken at random: those of least noise."""
    found = contrast_entries(features, labels)
    pairs = list(itertools.combinations(range(labels.shape[0]), 2))
    num_positive = len(found["positive"])
    chosen = [cost for _, cost in found["positive"]]
    for kind in ("mixed", "negative"):
        entries = found[kind]
        if num_positive == 0:
            chosen += [cost for _, cost in entries]
            continue
        by_noise = sorted(entries, key=lambda e: float(noise[e[0][0], pairs.index(e[0][1:])]))
        by_cost = sorted(entries, key=lambda e: -float(e[1].detach()))
        chosen += [cost for _, cost in by_noise[: 2 * num_positive]]
        chosen += [cost for _, cost in by_cost[:num_positive]]
    return sum(chosen) / len(chosen) if chosen else _zero(features)


def _mean(costs: list[Tensor], zero: Tensor) -> Tensor:
    return sum(costs) / len(costs) if costs else _zero(zero)


def asymmetric(
    logits: Tensor, labels: Tensor, gammas: tuple[float, float], margin: float, reduction: str
) -> Tensor:
    """ASL over known cells: positives discounted by (1 - p)^g, negatives by the shifted p^g."""
    images = []
    for n in range(labels.shape[0]):
        costs = []
        for c in range(labels.shape[1]):
            p = torch.sigmoid(logits[n, c].double())
            if int(labels[n, c]) == 1:
                costs.append(-torch.log(p) * (1 - p) ** gammas[0])
            elif int(labels[n, c]) == -1:
                q = p - margin
                if margin > 0 and float(q.detach()) <= 0:
                    q = q * 0.0
                costs.append(-torch.log(1 - q) * q ** gammas[1])
        images.append(costs)
    if reduction == "known":
        return _mean([cost for costs in images for cost in costs], logits)
    return _mean([sum(costs) / len(costs) for costs in images if costs], logits)


def self_paced(logits: Tensor, labels: Tensor, corrected: Tensor, margin: float, gamma: float) -> Tensor:
    """SPLC: a focal loss over all cells; known positives have a margin, and what is not positive is negative."""
    costs = []
    for n in range(labels.shape[0]):
        for c in range(labels.shape[1]):
            logit = logits[n, c].double()
            if int(labels[n, c]) == 1:
                p = torch.sigmoid(logit - margin)
                costs.append(-torch.log(p) * (1 - p) ** gamma)
            elif int(corrected[n, c]) == 1:
                p = torch.sigmoid(logit)
                costs.append(-torch.log(p) * (1 - p) ** gamma)
            else:
                p = torch.sigmoid(logit)
                costs.append(-torch.log(1 - p) * p**gamma)
    return _mean(costs, logits)


def large_loss(logits: Tensor, labels: Tensor, chosen: Tensor, variant: str) -> Tensor:
    """Cross-entropy over all cells, unknown as negative; of the chosen ones none, or as positive."""
    costs = []
    for n in range(labels.shape[0]):
        for c in range(labels.shape[1]):
            label = int(labels[n, c])
            if label == 0 and int(chosen[n, c]) == 1:
                if variant == "rejection":
                    costs.append(logits[n, c].double() * 0.0)
                    continue
                label = 1
            costs.append(binary_cross_entropy(logits[n, c], 1 if label == 1 else -1))
    return _mean(costs, logits)


def threshold_learning(scores: Tensor, labels: Tensor, thresholds: Tensor) -> Tensor:
    """Cross-entropy of the clipped difference to the threshold, taken for a logit; clip has a gradient at its ends."""
    costs = []
    for n in range(labels.shape[0]):
        for c in range(labels.shape[1]):
            if int(labels[n, c]) == 0 or bool(scores[n, c].isnan()):
                continue
            difference = scores[n, c].double() - thresholds[c].double()
            if float(difference.detach()) < 0:
                difference = difference * 0.0
            elif float(difference.detach()) > 1:
                difference = difference * 0.0 + 1.0
            costs.append(binary_cross_entropy(difference, int(labels[n, c])))
    return sum(costs) / len(costs) if costs else _zero(thresholds)


def prototype_contrast(scores: Tensor, labels: Tensor, sign: str) -> Tensor:
    """1 - y s of every cell (published: 1 + y s), which is 1 for an unknown one."""
    costs = []
    for n in range(labels.shape[0]):
        for c in range(labels.shape[1]):
            label = int(labels[n, c])
            if label == 0:
                costs.append(torch.ones((), dtype=torch.float64))
            else:
                direction = -label if sign == "fixed" else label
                costs.append(1 + direction * scores[n, c].double())
    return sum(costs) / len(costs) if costs else _zero(scores)


def mixed(logits: Tensor, labels: Tensor, teacher: Tensor, shares: Tensor, certainty: float = 0.0) -> Tensor:
    """Mean over all cells of mixed images: known labels, else the teacher's word, of an image and its neighbour.

    Either counts by its share and, with ``certainty``, by how far it is from even odds.
    """
    images, classes = labels.shape

    def present(n: int, c: int) -> float:
        label = int(labels[n, c])
        return float(teacher[n, c]) if label == 0 else float(label == 1)

    total = _zero(logits)
    for n in range(images):
        neighbour = n + 1 if n % 2 == 0 else n - 1
        if neighbour == images:
            neighbour = n
        for c in range(classes):
            for image, share in ((n, float(shares[n])), (neighbour, 1 - float(shares[n]))):
                target = present(image, c)
                counts = share * abs(2 * target - 1) ** certainty
                for label, weight in ((1, target), (-1, 1 - target)):
                    total = total + counts * weight * binary_cross_entropy(logits[n, c], label)
    return total / (images * classes)


def mixed_known(logits: Tensor, labels: Tensor, shares: Tensor) -> Tensor:
    """Sum over mixed images: what is known of an image and of its neighbour, by their shares; per known cell."""
    images, classes = labels.shape
    total, known = _zero(logits), 0
    for n in range(images):
        neighbour = n + 1 if n % 2 == 0 else n - 1
        if neighbour == images:
            neighbour = n
        share = float(shares[n])
        for c in range(classes):
            known += int(labels[n, c]) != 0
            for row, weight in ((n, share), (neighbour, 1 - share)):
                if int(labels[row, c]) != 0:
                    total = total + weight * binary_cross_entropy(logits[n, c], int(labels[row, c]))
    return total / max(known, 1)


def fused_loss(logits: Tensor, labels: Tensor, filled: list[Tensor]) -> Tensor:
    """Mean over known cells and over unknown ones that at least one generator calls positive (equations 11, 12)."""
    costs = []
    for n in range(labels.shape[0]):
        for c in range(labels.shape[1]):
            if int(labels[n, c]) != 0:
                costs.append(binary_cross_entropy(logits[n, c], int(labels[n, c])))
            elif any(int(one[n, c]) == 1 for one in filled):
                costs.append(binary_cross_entropy(logits[n, c], 1))
    return sum(costs) / len(costs) if costs else _zero(logits)

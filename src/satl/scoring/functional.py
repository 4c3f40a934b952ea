"""Pure functions of the pseudo-label generators."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from satl.checks.tensor_checks import check_signed
from satl.errors import ArrayError


def intra_image_scores(
    pair_probabilities: Tensor, labels: Tensor, leave_one_out: bool = True
) -> tuple[Tensor, Tensor]:
    """Score each class by its co-occurrence with the known positives of the same image (SST's IST).

    For a cell that is not a known positive the score is the mean of ``P[c, j]`` over the known positives j of
    the image. For a known positive the mean leaves the class itself out, so that known and unknown positives
    are scored alike.

    Args:
        pair_probabilities: ``(B, C, C)`` symmetric; the diagonal is ignored.
        labels: ``(B, C)`` with +1, -1, 0.
        leave_one_out: ``False`` gives the published score, in which a known positive counts itself with
            probability 1 and every cell counts as informative.

    Returns:
        ``(B, C)`` float32 scores in [0, 1] and ``(B, C)`` booleans that say where the score means anything:
        images without a known positive, and a lone known positive itself, have score 0 and no information.

    >>> pairs = torch.tensor([[[1.0, 0.8, 0.2], [0.8, 1.0, 0.4], [0.2, 0.4, 1.0]]])
    >>> scores, informative = intra_image_scores(pairs, torch.tensor([[1, 1, 0]]))
    >>> scores
    tensor([[0.8000, 0.8000, 0.3000]])
    """
    check_signed(labels)
    if labels.ndim != 2 or pair_probabilities.shape != (*labels.shape, labels.shape[1]):
        raise ArrayError(
            f"pair_probabilities must be (B, C, C) for labels (B, C), got {tuple(pair_probabilities.shape)} and "
            f"{tuple(labels.shape)}; satl.models.functional.symmetric_pairs makes them of one value a pair."
        )
    present = (labels > 0).float()
    diagonal = torch.eye(labels.shape[1], device=labels.device, dtype=torch.bool)
    with torch.autocast(labels.device.type, enabled=False):
        others = pair_probabilities.float().masked_fill(diagonal, 0.0)
        total = torch.bmm(others, present.unsqueeze(-1)).squeeze(-1)
    count = present.sum(1, keepdim=True)
    if not leave_one_out:
        return (total + present) / count.clamp(min=1.0), torch.ones_like(labels, dtype=torch.bool)
    count = count - present
    return total / count.clamp(min=1.0), count > 0


def cross_image_scores(
    features: Tensor, bank: Tensor, usable: Tensor, owners: Tensor | None = None, images: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Score each class by its mean cosine to stored features of known positives (SST's CST).

    Args:
        features: ``(B, C, D)`` class features of the batch.
        bank: ``(C, E, D)`` stored features of unit length.
        usable: ``(C, E)`` booleans, false for empty slots; their content does not matter.
        owners: ``(C, E)`` index of the image each stored feature came from.
        images: ``(B,)`` index of each image of the batch. With ``owners`` given, the slots that an image filled
            itself are left out of its own score.

    Returns:
        ``(B, C)`` float32 scores in [-1, 1] and ``(B, C)`` booleans, false where no slot could be used (score 0).
    """
    with torch.autocast(features.device.type, enabled=False):
        unit = F.normalize(features.float(), dim=-1, eps=1e-9).transpose(0, 1)  # (C, B, D)
        cosine = torch.bmm(unit, bank.float().transpose(1, 2))  # (C, B, E)
    counted = usable.unsqueeze(1).expand_as(cosine)
    if owners is not None and images is not None:
        counted = counted & (owners.unsqueeze(1) != images.view(1, -1, 1))
    count = counted.sum(-1)
    # Rounding may carry the cosine of equal vectors past 1, above a threshold that must emit nothing.
    scores = (torch.where(counted, cosine, 0.0).sum(-1) / count.clamp(min=1)).clamp(-1.0, 1.0)
    return scores.t(), (count > 0).t()


def shared_cross_image_scores(
    vectors: Tensor, bank: Tensor, usable: Tensor, owners: Tensor | None = None, images: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Do what :func:`cross_image_scores` does where all classes of an image have one and the same feature.

    The mean cosine to a class's stored features is then one product with their mean: the work grows with B C D and with
    C E D, not with B C E D. What an image stored itself is taken out again.

    Args:
        vectors: ``(B, D)`` features of the images.
        bank: ``(C, E, D)`` stored features of unit length.
        usable: ``(C, E)`` booleans, false for empty slots.
        owners: ``(C, E)`` index of the image each stored feature came from.
        images: ``(B,)`` index of each image of the batch, each once.

    Returns:
        ``(B, C)`` float32 scores in [-1, 1] and ``(B, C)`` booleans, false where no slot could be used (score 0).
    """
    classes, slots, _ = bank.shape
    with torch.autocast(vectors.device.type, enabled=False):
        unit = F.normalize(vectors.float(), dim=-1, eps=1e-9)
        stored = torch.where(usable.unsqueeze(-1), bank.float(), 0.0)
        total = unit @ stored.sum(1).t()
        count = usable.sum(1).expand(len(unit), -1)
        if owners is not None and images is not None:
            ascending, order = images.sort()
            at = torch.searchsorted(ascending, owners.flatten()).clamp(max=len(images) - 1)
            own = (ascending[at] == owners.flatten()) & usable.flatten()
            row = order[at]
            cosine = (unit.index_select(0, row) * stored.flatten(0, 1)).sum(-1)
            place = row * classes + torch.arange(classes, device=row.device).repeat_interleave(slots)
            total = total - total.new_zeros(total.numel()).index_add(
                0, place, torch.where(own, cosine, 0.0)
            ).view_as(total)
            count = count - count.new_zeros(total.numel()).index_add(0, place, own.long()).view_as(count)
    # The difference of two sums leaves a little where nothing is left.
    scores = torch.where(count > 0, total / count.clamp(min=1), 0.0).clamp(-1.0, 1.0)
    return scores, count > 0


_CANDIDATES = 32  # for the start of each cluster; the best one is kept, which makes further attempts needless
_ITERATIONS = 100


@torch.no_grad()
def kmeans(points: Tensor, filled: Tensor, num_clusters: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Cluster the points of every class by itself, all classes at once: Euclidean k-means, in float32.

    Clusters start at points drawn far from each other (greedy k-means++); then points and centres move until no
    point changes its cluster. Random numbers come from the seed alone, whatever the device. Nothing is added in
    an order that could change, so the same points give the same clusters.

    Args:
        points: ``(C, M, D)``, finite.
        filled: ``(C, M)`` booleans: which slots of a class hold a point.
        num_clusters: K. A class with fewer points has a cluster for each of them, one without points none.
        seed: of the starts.

    Returns:
        ``(C, K, D)`` centres, zero where there is no cluster, and ``(C, M)`` the cluster of each point, -1 where
        there is no point. Clusters can also be fewer than K where points are equal.

    >>> points = torch.tensor([[[0.0], [1.0], [9.0], [10.0]]])
    >>> centres, members = kmeans(points, torch.ones(1, 4, dtype=torch.bool), num_clusters=2)
    >>> sorted(centres.flatten().tolist())
    [0.5, 9.5]
    """
    num_classes, num_points, size = points.shape
    if num_points == 0:
        return points.new_zeros(num_classes, num_clusters, size, dtype=torch.float32), filled.long()
    with torch.autocast(points.device.type, enabled=False):
        weight = filled.unsqueeze(-1).float()
        points = points.float()
        # Distances lose fewer digits near the origin.
        middle = weight.mT @ points / weight.sum(1, keepdim=True).clamp(min=1.0)
        points = (points - middle).mul_(weight)
        centres, exists = _distant_points(points, filled, num_clusters, seed)
        members = filled.new_full(filled.shape, -1, dtype=torch.int64)
        number = torch.arange(num_clusters, device=points.device)
        for _ in range(_ITERATIONS):
            distance = centres.square().sum(-1).unsqueeze(1) - points @ (2.0 * centres).mT
            nearest = (
                distance.masked_fill(~exists.unsqueeze(1), torch.inf).argmin(-1).masked_fill(~filled, -1)
            )
            if torch.equal(nearest, members):
                break
            members = nearest
            belongs = (members.unsqueeze(1) == number.view(1, -1, 1)).float()  # (C, K, M)
            count = belongs.sum(-1, keepdim=True)
            centres = torch.where(count > 0, belongs @ points / count.clamp(min=1.0), centres)
        alive = (members.unsqueeze(1) == number.view(1, -1, 1)).any(-1, keepdim=True)
        return torch.where(alive, centres + middle, 0.0), members


def _distant_points(points: Tensor, filled: Tensor, num: int, seed: int) -> tuple[Tensor, Tensor]:
    """Choose ``num`` points per class, each with a chance that grows with the square of its distance to the others.

    Returns ``(C, num, D)`` points and ``(C, num)`` booleans, false once a class has no further point.
    """
    classes, device = points.shape[0], points.device
    noise = torch.rand(num, classes, _CANDIDATES, generator=torch.Generator().manual_seed(seed)).to(device)
    square = torch.linalg.vector_norm(points, dim=-1).square()
    chance = filled.double()
    closest = torch.full_like(square, torch.inf)
    chosen, exists = [], []
    for draw in noise:
        cumulated = chance.cumsum(1)
        total = cumulated[:, -1:]
        candidates = torch.searchsorted(cumulated, draw * total, right=True).clamp(max=points.shape[1] - 1)
        places = points.gather(1, candidates.unsqueeze(-1).expand(-1, -1, points.shape[2]))
        distance = square.unsqueeze(1) + places.square().sum(-1, keepdim=True) - (2.0 * places) @ points.mT
        remaining = torch.minimum(closest.unsqueeze(1), distance.clamp(min=0.0))  # (C, candidates, M)
        best = (remaining * filled.unsqueeze(1)).sum(-1).argmin(1).view(-1, 1, 1)
        closest = remaining.gather(1, best.expand(-1, -1, points.shape[1])).squeeze(1)
        # A point is never taken twice, whatever rounding leaves of its distance to itself.
        closest.scatter_(1, candidates.gather(1, best.squeeze(-1)), 0.0)
        chosen.append(places.gather(1, best.expand(-1, -1, points.shape[2])).squeeze(1))
        exists.append(total.squeeze(1) > 0)
        chance = (closest * filled).double()
    return torch.stack(chosen, 1), torch.stack(exists, 1)

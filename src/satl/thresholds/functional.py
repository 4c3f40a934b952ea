"""Pure functions of the threshold rules, first those of Semantic-Aware Threshold Estimation (SATE).

The paper writes the thresholds as tau, the quantile levels as kappa and the rate as gamma. Its section on
implementation calls the level of the negatives kappa^- (0.999) and that of the positives kappa^+ (0.1); its
section on analysis swaps the two names. Here they are ``negative_quantile`` and ``positive_quantile``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from satl.checks.tensor_checks import as_thresholds, check_cells, known_cells


def score_histogram(scores: Tensor, labels: Tensor, bins: int) -> Tensor:
    """Count the scores of known cells per sign, class and bin.

    Scores are clipped to [0, 1] and sorted into ``bins`` equal bins. Unknown cells and scores that are not
    numbers are left out. The call does not synchronise with the host.

    Args:
        scores: ``(B, C)`` generator scores.
        labels: ``(B, C)`` with +1 present, -1 absent, 0 unknown.
        bins: number of bins on [0, 1].

    Returns:
        ``(2, C, bins)`` int64 counts: row 0 for known negatives, row 1 for known positives.

    >>> labels = torch.tensor([[1, -1], [1, 0]])
    >>> score_histogram(torch.tensor([[0.9, 0.2], [1.0, 0.3]]), labels, bins=2)
    tensor([[[0, 0], [1, 0]],
            [[0, 2], [0, 0]]])
    """
    counts = torch.zeros(2, scores.shape[1], bins, dtype=torch.int64, device=scores.device)
    return add_to_histogram(counts, scores, labels)


def add_to_histogram(counts: Tensor, scores: Tensor, labels: Tensor) -> Tensor:
    """Add a batch to the counts ``(2, C, bins)`` of :func:`score_histogram`, in place, and return them.

    Counts ``(3, C, bins)`` have a third row, for the unknown cells. The cost depends on the batch, not on the
    number of bins.
    """
    check_cells(scores, labels, "scores")
    rows, num_classes, bins = counts.shape
    scores = scores.detach().float()
    counted = ~scores.isnan()
    row = (labels > 0).long()
    known = known_cells(labels)
    if rows == 3:
        row = torch.where(known, row, 2)
    else:
        counted = counted & known
    bin_index = (scores.nan_to_num(0.0).clamp(0.0, 1.0) * bins).long().clamp(max=bins - 1)
    class_index = torch.arange(num_classes, device=scores.device)
    cell = (row * num_classes + class_index) * bins + bin_index
    counts.view(-1).scatter_add_(0, cell.reshape(-1), counted.long().reshape(-1))
    return counts


def histogram_quantile(counts: Tensor, level: float | Tensor) -> Tensor:
    """Invert histograms on [0, 1]: the upper edge of the first bin at which the CDF reaches ``level``.

    This is the order statistic ``ceil(level * n)`` ("inverted CDF"), rounded up to the next bin edge, so at
    least a share ``level`` of the counted scores is not above the result. Empty histograms give NaN.

    Args:
        counts: ``(..., bins)`` integer counts.
        level: quantile level in [0, 1], one for all or ``(...)``.

    Returns:
        ``(...)`` float64 quantiles.

    >>> histogram_quantile(torch.tensor([[0, 3, 0, 1], [0, 0, 0, 0]]), 0.5)
    tensor([0.5000,    nan], dtype=torch.float64)
    """
    bins = counts.shape[-1]
    total = counts.sum(-1)
    # The small constant keeps ceil(0.1 * 30) at 3 whatever the rounding of the product.
    rank = (total.double() * level - 1e-9).ceil()
    edge = (_bin_of_rank(counts, rank).double() + 1.0) / bins
    return torch.where(total > 0, edge, torch.nan)


def passing_quantile(counts: Tensor, level: float) -> Tensor:
    """Invert histograms on [0, 1] for a threshold that a share ``1 - level`` of the counted scores is to pass.

    Strictly above the order statistic of :func:`histogram_quantile` lie n less its rank scores. The result is the
    edge of its bin above which nearest to that many lie; the upper one of two that are as near. So a distribution
    that fits into a single bin, as the probabilities of a class that is learned well do, passes, though no bin is
    fine enough to tell its scores apart. Empty histograms give NaN.

    Args:
        counts: ``(..., bins)`` integer counts.
        level: quantile level in [0, 1].

    Returns:
        ``(...)`` float64.

    >>> passing_quantile(torch.tensor([[0, 0, 1, 9], [0, 0, 0, 20], [0, 0, 0, 0]]), 0.1)
    tensor([0.7500, 0.7500,    nan], dtype=torch.float64)
    """
    bins = counts.shape[-1]
    total = counts.sum(-1)
    rank = (total.double() * level - 1e-9).ceil().clamp(min=1)
    place = _bin_of_rank(counts, rank).clamp(max=bins - 1)
    inside = counts.gather(-1, place.unsqueeze(-1)).squeeze(-1)
    up_to = counts.cumsum(-1).gather(-1, place.unsqueeze(-1)).squeeze(-1)
    lost, gained = up_to - rank, rank - (up_to - inside)
    edge = (place.double() + torch.where(gained < lost, 0.0, 1.0)) / bins
    return torch.where(total > 0, edge, torch.nan)


def _bin_of_rank(counts: Tensor, rank: Tensor) -> Tensor:
    """Return the bin ``(...)`` that holds the score of a rank, counted from 1, in histograms ``(..., bins)``."""
    return (counts.cumsum(-1) < rank.clamp(min=1).unsqueeze(-1)).sum(-1)


def ideal_thresholds(
    counts: Tensor,
    negative_quantile: float = 0.999,
    positive_quantile: float = 0.1,
    min_count: int = 1,
    negatives_per_positive: float = 0.0,
    floor: float = 0.0,
) -> Tensor:
    """Compute the ideal threshold of every class, the paper's tau*.

    The threshold is the larger of the ``negative_quantile`` of the known negatives' scores and the
    ``positive_quantile`` of the known positives' scores. Separated classes thus get the foot of the positive
    distribution, mixed classes the far tail of the negative one. A class without known positives takes the
    negative quantile, one without known negatives the positive quantile, and one with fewer than
    ``min_count`` known cells (both signs together) has no ideal threshold: NaN.

    Args:
        counts: ``(2, C, bins)`` from :func:`score_histogram`.
        negative_quantile: level on the known negatives.
        positive_quantile: level on the known positives.
        min_count: least number of known cells.
        negatives_per_positive: known negatives that may lie above the first of the two, for each known positive,
            where that is more than the level lets pass; not in the paper. One negative in a thousand is what a
            rare class can bear; in a class that most images show, a single odd negative would decide.
        floor: the lowest threshold; not in the paper.

    Returns:
        ``(C,)`` float64.

    >>> labels = torch.tensor([[1]] * 40 + [[-1]] * 10)
    >>> scores = torch.cat([torch.full((40, 1), 0.65), torch.full((9, 1), 0.15), torch.full((1, 1), 0.95)])
    >>> counts = score_histogram(scores, labels, bins=10)
    >>> ideal_thresholds(counts), ideal_thresholds(counts, negatives_per_positive=0.025)
    (tensor([1.], dtype=torch.float64), tensor([0.6000], dtype=torch.float64))
    """
    negatives, positives = counts[0].sum(-1).double(), counts[1].sum(-1).double()
    spared = 1.0 - negatives_per_positive * positives / negatives.clamp(min=1.0)
    negative = histogram_quantile(counts[0], spared.clamp(min=0.0, max=negative_quantile))
    positive = passing_quantile(counts[1], positive_quantile)
    ideal = torch.fmax(negative, positive).clamp(min=floor)
    return torch.where(counts.sum(dim=(0, 2)) >= min_count, ideal, torch.nan)


def proportion_thresholds(counts: Tensor, min_count: int = 1) -> Tensor:
    """Compute the thresholds above which unknown cells lie as often as known cells are positive (CAP).

    With ``p`` positives among ``k`` known cells and ``u`` unknown ones, at most ``p / k * u`` unknown scores lie
    above the threshold, and no bin more would fit. A class without known positives, without known negatives,
    without unknown cells or with fewer than ``min_count`` known cells has no such threshold: NaN.

    Args:
        counts: ``(3, C, bins)``: known negatives, known positives and unknown cells of
            :func:`add_to_histogram`.
        min_count: least number of known cells.

    Returns:
        ``(C,)`` float64.

    >>> labels = torch.tensor([[1], [-1], [-1], [-1], [0], [0], [0], [0]])
    >>> scores = torch.tensor([[0.9], [0.1], [0.2], [0.3], [0.15], [0.25], [0.65], [0.95]])
    >>> counts = add_to_histogram(torch.zeros(3, 1, 10, dtype=torch.int64), scores, labels)
    >>> proportion_thresholds(counts)
    tensor([0.7000], dtype=torch.float64)
    """
    negatives, positives, unknown = counts.sum(-1)
    known = negatives + positives
    wanted = positives * unknown // known.clamp(min=1)
    last_rejected = _bin_of_rank(counts[2], unknown - wanted)
    usable = (positives > 0) & (negatives > 0) & (unknown > 0) & (known >= min_count)
    return torch.where(usable, below_bin(last_rejected + 1, counts.shape[-1]), torch.nan)


def metric_thresholds(counts: Tensor, beta: float = 1.0, min_count: int = 1) -> Tensor:
    """Compute the thresholds of the best F-beta on the known cells (MAT), the highest where several are best.

    Candidates are the edges between bins; to accept every cell is none of them. A class without known
    positives, without known negatives, with fewer than ``min_count`` known cells, or whose positives all lie
    in the lowest bin has no such threshold: NaN.

    Args:
        counts: ``(2, C, bins)`` or more rows; known negatives and known positives are the first two.
        beta: what recall weighs beside precision; 1 is the F1 score.
        min_count: least number of known cells.

    Returns:
        ``(C,)`` float64.

    >>> labels = torch.tensor([[1], [1], [-1], [-1]])
    >>> metric_thresholds(score_histogram(torch.tensor([[0.9], [0.55], [0.4], [0.1]]), labels, bins=10))
    tensor([0.5000], dtype=torch.float64)
    """
    bins = counts.shape[-1]
    wrong, right = accepted_from(counts)
    negatives, positives = wrong[:, 0], right[:, 0]
    weight = beta * beta
    score = (1.0 + weight) * right / (weight * positives.unsqueeze(-1) + right + wrong).clamp(min=1e-12)
    score[:, 0] = 0.0
    best = score.amax(-1)
    position = torch.arange(bins, device=counts.device)
    highest = torch.where(score == best.unsqueeze(-1), position, 0).amax(-1)
    usable = (positives > 0) & (negatives > 0) & (positives + negatives >= min_count) & (best > 0)
    return torch.where(usable, below_bin(highest, bins), torch.nan)


def precision_thresholds(counts: Tensor, precision: float = 0.97, min_count: int = 1) -> Tensor:
    """Compute the lowest thresholds above which the known cells are positive often enough.

    Candidates are the bins that hold a known positive: below the lowest accepted one nothing speaks for a cell.
    A class in which that is the case nowhere gets 1.0. One without known positives, without known negatives or with
    fewer than ``min_count`` known cells has no such threshold: NaN.

    Args:
        counts: ``(2, C, bins)`` or more rows; known negatives and known positives are the first two.
        precision: wanted share of positives.
        min_count: least number of known cells.

    Returns:
        ``(C,)`` float64.

    >>> labels = torch.tensor([[1], [-1], [1], [-1]])
    >>> counts = score_histogram(torch.tensor([[0.95], [0.75], [0.65], [0.15]]), labels, bins=10)
    >>> precision_thresholds(counts, precision=0.6), precision_thresholds(counts, precision=0.7)
    (tensor([0.6000], dtype=torch.float64), tensor([0.9000], dtype=torch.float64))
    """
    bins = counts.shape[-1]
    wrong, right = accepted_from(counts)
    # The small constant keeps 9 of 10 at 0.9 whatever the rounding of the product.
    enough = (counts[1] > 0) & (right >= precision * (right + wrong) - 1e-9)
    position = torch.arange(bins, device=counts.device)
    lowest = torch.where(enough, position, bins).amin(-1)
    negatives, positives = wrong[:, 0], right[:, 0]
    usable = (positives > 0) & (negatives > 0) & (positives + negatives >= min_count)
    return torch.where(usable, below_bin(lowest, bins), torch.nan)


def accepted_from(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many known negatives and positives ``(C, bins)`` are accepted if the bins from each one on are."""
    negatives, positives = counts[:2].flip(-1).cumsum(-1).flip(-1)
    return negatives, positives


def share_threshold(counts: Tensor, share: Tensor | float) -> Tensor:
    """Compute the threshold above which at most a share of all cells lies, counting unknown cells only.

    Args:
        counts: ``(3, bins)``: known negatives, known positives and unknown cells.
        share: of all counted cells, known and unknown.

    Returns:
        A float64 scalar; NaN if there are no unknown cells.
    """
    unknown = counts[2].sum()
    wanted = (share * counts.sum().double() + 1e-9).floor().long()
    last_rejected = _bin_of_rank(counts[2], unknown - wanted)
    return torch.where(unknown > 0, below_bin(last_rejected + 1, counts.shape[-1]), torch.nan)


def below_bin(bin_index: Tensor, bins: int) -> Tensor:
    """Return the largest float32 below a bin's lower edge, so that exactly this bin and those above pass.

    Beyond the last bin that is 1.0, above which no score lies.
    """
    edge = (bin_index.double() / bins).float()
    below = torch.nextafter(edge, torch.zeros_like(edge))
    return torch.where(bin_index < bins, below, 1.0).double()


def flexible_thresholds(counts: Tensor, confidence: float = 0.95, floor: float = 0.5) -> Tensor:
    """Compute FlexMatch's thresholds: lower for classes of which less has been learned.

    The learning status of a class is the number of its unknown cells above ``confidence``; divided by the
    largest status of all classes, or by the number of positives still expected among the unknown cells while
    that is larger (the warm-up), it is beta. The threshold is ``confidence * beta / (2 - beta)``, and at least
    ``floor``. A class without known positives or without unknown cells has none: NaN.

    Args:
        counts: ``(4, C)``: unknown cells above the confidence, all unknown cells, known positives, known
            negatives.
        confidence: the threshold of the class that is learned best.
        floor: the lowest threshold.

    Returns:
        ``(C,)`` float64.

    >>> counts = torch.tensor([[40, 20, 0], [200, 200, 200], [5, 5, 5], [20, 20, 20]])
    >>> flexible_thresholds(counts, confidence=0.9, floor=0.1)
    tensor([0.4500, 0.1800, 0.1000], dtype=torch.float64)
    """
    above, unknown, positives, negatives = counts.double()
    expected = unknown * positives / (positives + negatives).clamp(min=1.0)
    remaining = expected.sum() - above.sum()
    status = above / torch.maximum(above.amax(), remaining).clamp(min=1.0)
    thresholds = (confidence * status / (2.0 - status)).clamp(min=floor)
    return torch.where((positives > 0) & (unknown > 0), thresholds, torch.nan)


def move_thresholds(value: Tensor, ideal: Tensor, rate: float) -> Tensor:
    """Move thresholds towards the ideal ones; classes whose ideal is NaN stay where they are.

    >>> move_thresholds(torch.tensor([1.0, 1.0]), torch.tensor([0.5, torch.nan]), rate=0.5)
    tensor([0.7500, 1.0000])
    """
    target = ideal.to(value.dtype)
    # lerp is exact where both agree: a threshold whose ideal is 1.0 stays at 1.0 and emits nothing.
    return torch.where(target.isnan(), value, torch.lerp(value, target, rate))


def pseudo_labels(scores: Tensor, labels: Tensor, thresholds: Tensor | float) -> Tensor:
    """Turn unknown cells whose score lies strictly above the threshold of their class into positives.

    Known cells are never changed, other unknown cells stay unknown, and no gradient flows.

    Args:
        scores: ``(B, C)``.
        labels: ``(B, C)`` with +1, -1, 0.
        thresholds: ``(C,)``, or one number for all classes.

    Returns:
        ``(B, C)`` labels of the same type as ``labels``.

    >>> labels = torch.tensor([[0, 0, -1]])
    >>> pseudo_labels(torch.tensor([[0.9, 0.5, 0.9]]), labels, torch.tensor([0.5, 0.5, 0.5]))
    tensor([[ 1,  0, -1]])
    """
    check_cells(scores, labels, "scores")
    thresholds = as_thresholds(scores, thresholds)
    confident = ~known_cells(labels) & (scores.detach().float() > thresholds.detach().float())
    return torch.where(confident, torch.ones_like(labels), labels)


def negative_labels(scores: Tensor, labels: Tensor, thresholds: Tensor | float) -> Tensor:
    """Turn unknown cells as far below as positives are above into negatives (Durand's score threshold).

    A negative is an unknown cell with a score strictly below ``1 - threshold`` that is not above the threshold
    either. In log-odds, that and a score above the threshold are the same distance from zero on either side.
    Known cells are never changed and no gradient flows.

    Args:
        scores: ``(B, C)`` probabilities; NaN makes no negative.
        labels: ``(B, C)`` with +1, -1, 0; usually those of :func:`pseudo_labels`.
        thresholds: ``(C,)``, or one number for all classes.

    Returns:
        ``(B, C)`` labels of the same type as ``labels``.

    >>> labels = torch.tensor([[0, 0, 1]])
    >>> negative_labels(torch.tensor([[0.5, 0.1, 0.1]]), labels, torch.tensor([0.8, 0.8, 0.8]))
    tensor([[ 0, -1,  1]])
    """
    check_cells(scores, labels, "scores")
    thresholds = as_thresholds(scores, thresholds)
    scores, thresholds = scores.detach().float(), thresholds.detach().float()
    absent = ~known_cells(labels) & (scores < 1.0 - thresholds) & (scores <= thresholds)
    return torch.where(absent, -torch.ones_like(labels), labels)


def fused_labels(filled: Sequence[Tensor]) -> Tensor:
    """Fuse the labels that several generators filled: known cells, and 1 where at least one of them says so.

    Args:
        filled: ``(B, C)`` each, the same known cells in all, with +1, -1, and 0 where a generator says nothing.

    >>> fused_labels([torch.tensor([[-1, 0, 1, 0]]), torch.tensor([[-1, 0, 1, 1]])])
    tensor([[-1,  0,  1,  1]])
    """
    together = torch.stack(tuple(filled))
    # Generators emit positives only, so that a cell is negative for all of them or for none.
    return torch.where((together > 0).any(0), 1, together[0]).to(together.dtype)


def largest_cells(scores: Tensor, candidates: Tensor, count: Tensor | int) -> Tensor:
    """Choose the ``count`` candidates with the largest scores, fewer if there are fewer; earlier ones of equals.

    Args:
        scores: ``(B, C)``; a candidate that is NaN is none.
        candidates: ``(B, C)`` booleans.
        count: how many, a number or a scalar tensor on the device.

    Returns:
        ``(B, C)`` booleans.

    >>> largest_cells(torch.tensor([[0.9, 0.2, 0.7]]), torch.tensor([[False, True, True]]), 1)
    tensor([[False, False,  True]])
    """
    scores = scores.detach().float()
    candidates = candidates & ~scores.isnan()
    order = torch.where(candidates, scores, -torch.inf).flatten().argsort(descending=True, stable=True)
    rank = torch.empty_like(order)
    rank.scatter_(0, order, torch.arange(order.numel(), device=order.device))
    return candidates & (rank.view_as(scores) < count)

"""Metrics written down the slow, plain way: one cell, one threshold, one class at a time."""

from __future__ import annotations

import itertools
import math


def average_precision(scores, labels, interpolated=True):
    """AP of one class: lists of scores and labels in {-1, 0, +1}; NaN without a known positive."""
    known = [(score, label) for score, label in zip(scores, labels, strict=True) if label != 0]
    positives = sum(1 for _, label in known if label == 1)
    if positives == 0:
        return math.nan
    curve = [(0.0, 0.0)]  # (recall, precision), from the strictest threshold to the loosest
    for threshold in sorted({score for score, _ in known}, reverse=True):
        accepted = [label for score, label in known if score >= threshold]
        hits = sum(1 for label in accepted if label == 1)
        curve.append((hits / positives, hits / len(accepted)))
    area = 0.0
    for index in range(1, len(curve)):
        recall, precision = curve[index]
        if interpolated:
            precision = max(later for _, later in curve[index:])
        area += (recall - curve[index - 1][0]) * precision
    return area


def count_metrics(scores, labels, thresholds, top=None):
    """OP, OR, OF1, CP, CR, CF1 from nested lists; thresholds is a list, one per class."""
    num_classes = len(thresholds)
    correct, predicted, present = [0] * num_classes, [0] * num_classes, [0] * num_classes
    for row_scores, row_labels in zip(scores, labels, strict=True):
        by_rank = sorted(range(num_classes), key=lambda c: (-row_scores[c], c))
        allowed = by_rank if top is None else by_rank[:top]
        for c in range(num_classes):
            if row_labels[c] == 0:
                continue
            accepted = row_scores[c] >= thresholds[c] and c in allowed
            predicted[c] += accepted
            present[c] += row_labels[c] == 1
            correct[c] += accepted and row_labels[c] == 1
    measurable = [c for c in range(num_classes) if present[c] > 0]
    if not measurable:
        return dict.fromkeys(("OP", "OR", "OF1", "CP", "CR", "CF1"), math.nan)

    def divide(x, y):
        return x / y if y else 0.0

    def f1(p, r):
        return divide(2 * p * r, p + r)

    op, orr = divide(sum(correct), sum(predicted)), divide(sum(correct), sum(present))
    cp = sum(divide(correct[c], predicted[c]) for c in measurable) / len(measurable)
    cr = sum(divide(correct[c], present[c]) for c in measurable) / len(measurable)
    return {"OP": op, "OR": orr, "OF1": f1(op, orr), "CP": cp, "CR": cr, "CF1": f1(cp, cr)}


def pseudo_label_counts(pseudo, labels, truth):
    """(TP, FP, FN) lists of one entry per class, over unknown cells with a known truth."""
    num_classes = len(labels[0])
    tp, fp, fn = [0] * num_classes, [0] * num_classes, [0] * num_classes
    for row_pseudo, row_labels, row_truth in zip(pseudo, labels, truth, strict=True):
        for c in range(num_classes):
            if row_labels[c] != 0:
                continue
            emitted = row_pseudo[c] == 1
            tp[c] += emitted and row_truth[c] == 1
            fp[c] += emitted and row_truth[c] == -1
            fn[c] += (not emitted) and row_truth[c] == 1
    return tp, fp, fn


def wilcoxon_exact_p(differences):
    """Two-sided signed-rank p-value by trying every sign; for distinct non-zero sizes only."""
    order = sorted(range(len(differences)), key=lambda i: abs(differences[i]))
    rank = {index: position + 1 for position, index in enumerate(order)}
    observed = sum(rank[i] for i, value in enumerate(differences) if value > 0)
    sums = [
        sum(r for r, sign in zip(range(1, len(differences) + 1), signs, strict=True) if sign)
        for signs in itertools.product((False, True), repeat=len(differences))
    ]
    low = sum(s <= observed for s in sums) / len(sums)
    high = sum(s >= observed for s in sums) / len(sums)
    return min(1.0, 2 * min(low, high))

"""Generators in plain Python loops over float64 numbers, the bank as queues, the probe class by class."""

from __future__ import annotations

import math
from collections import deque

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor


def intra_image(pairs: Tensor, labels: Tensor, leave_one_out: bool) -> tuple[Tensor, Tensor]:
    """Mean co-occurrence with the known positives of the image, and where there are any."""
    scores = torch.zeros(labels.shape, dtype=torch.float64)
    informative = torch.zeros(labels.shape, dtype=torch.bool)
    for n in range(labels.shape[0]):
        for c in range(labels.shape[1]):
            values = []
            for j in range(labels.shape[1]):
                if int(labels[n, j]) == 1:
                    if j != c:
                        values.append(float(pairs[n, c, j]))
                    elif not leave_one_out:
                        values.append(1.0)
            scores[n, c] = sum(values) / max(1, len(values))
            informative[n, c] = bool(values) or not leave_one_out
    return scores, informative


def cosine(left: Tensor, right: Tensor) -> float:
    """Cosine with a norm of at least 1e-9."""
    left, right = left.double(), right.double()
    return float(left @ right / (left.norm().clamp(min=1e-9) * right.norm().clamp(min=1e-9)))


class Bank:
    """Per class a queue of (image, feature) of the latest known positives."""

    def __init__(self, num_classes: int, size: int, leave_one_out: bool = True) -> None:
        self.queues: list[deque[tuple[int, Tensor]]] = [deque(maxlen=size) for _ in range(num_classes)]
        self.leave_one_out = leave_one_out

    def remember(self, features: Tensor, labels: Tensor, images: Tensor) -> None:
        """Append the known positives of a batch, image by image."""
        for n in range(labels.shape[0]):
            for c, queue in enumerate(self.queues):
                if int(labels[n, c]) == 1:
                    queue.append((int(images[n]), features[n, c].detach().double()))

    def scores(self, features: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        """Mean cosine to the queue of each class, without the image's own entries."""
        scores = torch.zeros(features.shape[:2], dtype=torch.float64)
        informative = torch.zeros(features.shape[:2], dtype=torch.bool)
        for n in range(features.shape[0]):
            for c, queue in enumerate(self.queues):
                values = [
                    cosine(features[n, c], stored)
                    for owner, stored in queue
                    if not (self.leave_one_out and owner == int(images[n]))
                ]
                scores[n, c] = sum(values) / max(1, len(values))
                informative[n, c] = bool(values)
        return scores, informative


Cluster = list[tuple[int, Tensor]]
"""Members of a cluster: image and feature."""


def prototype_scores(
    features: Tensor, images: Tensor, clusters: list[list[Cluster]], leave_one_out: bool
) -> tuple[Tensor, Tensor]:
    """Mean cosine to the mean of each cluster of the class, without clusters that are the image itself."""
    scores = torch.zeros(features.shape[:2], dtype=torch.float64)
    informative = torch.zeros(features.shape[:2], dtype=torch.bool)
    for n in range(features.shape[0]):
        for c, of_class in enumerate(clusters):
            values = []
            for members in of_class:
                if leave_one_out and [image for image, _ in members] == [int(images[n])]:
                    continue
                mean = sum(feature.double() for _, feature in members) / len(members)
                values.append(cosine(features[n, c].detach(), mean))
            scores[n, c] = sum(values) / max(1, len(values))
            informative[n, c] = bool(values)
    return scores, informative


def probe(features: Tensor, labels: Tensor, penalty: float, folds: int) -> Tensor:
    """Logits of a probe of one penalty: class by class, cell by cell, each from a fit without the cell."""
    rows = features.double().numpy()
    scale = math.sqrt(rows.shape[1])
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0) / scale
    logits = torch.zeros(labels.shape, dtype=torch.float64)
    for c in range(labels.shape[1]):
        for n in range(labels.shape[0]):
            seen = [
                (rows[m], int(labels[m, c]))
                for m in range(labels.shape[0])
                if int(labels[m, c]) != 0 and (int(labels[n, c]) == 0 or m % folds != n % folds)
            ]

            def cost(values: np.ndarray, seen: list[tuple[np.ndarray, int]] = seen) -> float:
                total = 0.5 * math.log1p(math.exp(values[0])) + 0.5 * math.log1p(math.exp(-values[0]))
                for row, label in seen:
                    total += math.log1p(math.exp(-label * float(row @ values[1:] + values[0])))
                return total / (len(seen) + 1) + penalty * float(values[1:] @ values[1:])

            found = minimize(cost, np.zeros(rows.shape[1] + 1), method="BFGS", tol=1e-9).x
            logits[n, c] = float(rows[n] @ found[1:] + found[0])
    return logits


def text_scores(pictures: Tensor, training: Tensor, prompts: Tensor) -> tuple[Tensor, Tensor]:
    """Logistic function of the standardised cosine of picture and prompt, and where both mean anything."""
    scores = torch.full((len(pictures), len(prompts)), 0.5, dtype=torch.float64)
    informative = torch.zeros(scores.shape, dtype=torch.bool)
    for c, prompt in enumerate(prompts):
        usual = [cosine(picture, prompt) for picture in training if float(picture.norm()) > 0]
        mean = sum(usual) / len(usual)
        deviation = math.sqrt(sum((value - mean) ** 2 for value in usual) / len(usual))
        for n, picture in enumerate(pictures):
            if deviation > 1e-6 and float(picture.norm()) > 0:
                scores[n, c] = 1 / (1 + math.exp(-(cosine(picture, prompt) - mean) / deviation))
                informative[n, c] = True
    return scores, informative

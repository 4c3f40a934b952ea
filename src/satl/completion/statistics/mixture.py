"""The scores of unknown cells as a mixture of those of known positives and known negatives, in bins.

Counts of known positives a, known negatives b and unknown cells u per bin are three multinomial samples with
the probabilities f, g and pi f + (1 - pi) g. Everything is estimated together by maximum likelihood, so the
sampling error of f and g is part of the model, however many unknown cells there are. All functions take arrays
(..., B) of counts and treat the leading axes (classes, bootstrap draws) at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit, ndtri, xlogy

from satl.evaluation.confidence_bounds import FloatArray

# Half the width of the searched interval on the logit scale: prevalences from 1e-7 to 1 - 1e-7.
_LOGIT_RANGE = 16.0


@dataclass(frozen=True)
class Mixture:
    """The most likely mixture.

    Attributes:
        prevalence: (...) share pi of positives among the unknown cells.
        positive, negative: (..., B) bin probabilities f and g.
        log_likelihood: (...) of the three samples, without the constant multinomial coefficients.
        misfit: (...) likelihood-ratio statistic against three unrelated samples; about chi-squared with B - 2
            degrees of freedom if the mixture is true and the bins are well filled.
    """

    prevalence: FloatArray
    positive: FloatArray
    negative: FloatArray
    log_likelihood: FloatArray
    misfit: FloatArray

    @property
    def unknown(self) -> FloatArray:
        """(..., B) bin probabilities of unknown cells, pi f + (1 - pi) g."""
        share = self.prevalence[..., np.newaxis]
        return np.asarray(share * self.positive + (1 - share) * self.negative)


def fit_mixture(
    positive: npt.ArrayLike, negative: npt.ArrayLike, unknown: npt.ArrayLike, steps: int = 40
) -> Mixture:
    """Estimate the prevalence and both distributions.

    At the maximum the number of positives among the unknown is pi U, and the share r of positives in each bin
    solves a quadratic equation whose coefficients depend on pi alone. So one bisection over pi replaces the
    usual EM iterations (M. Saerens, P. Latinne and C. Decaestecker, Neural Computation 14, 2002, for the
    case of known f and g).

    Args:
        positive, negative, unknown: (..., B) counts; every one of the three needs at least one cell.
        steps: halvings of the logit interval of the prevalence.

    >>> fit = fit_mixture([10, 30, 60], [60, 30, 10], [350, 300, 350])
    >>> round(float(fit.prevalence), 4), round(float(fit.misfit), 4)
    (0.5, 0.0)
    >>> round(float(fit_mixture([10, 30, 60], [60, 30, 10], [100, 800, 100]).misfit), 1)
    133.4
    """
    a, b, u = (np.asarray(x, dtype=np.float64) for x in (positive, negative, unknown))
    p, n, total = (x.sum(axis=-1, keepdims=True) for x in (a, b, u))
    low = np.full(total.shape, -_LOGIT_RANGE)
    high = -low
    for _ in range(steps):
        middle = (low + high) / 2
        share = expit(middle)
        r = _share_of_positives(a, b, u, share, p + share * total, n + (1 - share) * total)
        more = (u * r).sum(axis=-1, keepdims=True) > share * total
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    share = expit((low + high) / 2)
    weight_f, weight_g = p + share * total, n + (1 - share) * total
    r = _share_of_positives(a, b, u, share, weight_f, weight_g)
    f, g = (a + u * r) / weight_f, (b + u * (1 - r)) / weight_g
    f, g = f / f.sum(axis=-1, keepdims=True), g / g.sum(axis=-1, keepdims=True)
    likelihood = _log_likelihood(a, b, u, share, f, g)
    saturated = sum(xlogy(x, x / x.sum(axis=-1, keepdims=True)).sum(axis=-1) for x in (a, b, u))
    return Mixture(share[..., 0], f, g, likelihood, np.maximum(2 * (saturated - likelihood), 0.0))


def prevalence_interval(
    positive: npt.ArrayLike, negative: npt.ArrayLike, unknown: npt.ArrayLike, confidence: float = 0.95
) -> tuple[FloatArray, FloatArray]:
    """Interval of the prevalence among unknown cells, from the profile likelihood.

    Assumption: the mixture holds (see :func:`fit_mixture`). Guarantee: coverage of about ``confidence``, by
    Wilks' theorem; it counts the sampling error of f and g, reaches 0 or 1 where the data cannot exclude
    them, and becomes wide where positives and negatives score alike.

    >>> low, high = prevalence_interval([10, 30, 60], [60, 30, 10], [350, 300, 350])
    >>> round(float(low), 3), round(float(high), 3)
    (0.39, 0.61)
    """
    a, b, u = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (positive, negative, unknown)))
    best = fit_mixture(a, b, u)
    limit = best.log_likelihood - ndtri(0.5 + confidence / 2) ** 2 / 2
    far = np.stack((np.zeros(limit.shape), np.ones(limit.shape)))  # low end, high end
    near = np.broadcast_to(best.prevalence, far.shape)
    open_ended = _profile(a, b, u, far) >= limit
    outside, inside = far, near
    for _ in range(24):
        middle = (outside + inside) / 2
        possible = _profile(a, b, u, middle) >= limit
        outside, inside = np.where(possible, outside, middle), np.where(possible, middle, inside)
    low, high = np.where(open_ended, far, outside)
    return np.asarray(low), np.asarray(high)


def _profile(a: FloatArray, b: FloatArray, u: FloatArray, prevalence: FloatArray) -> FloatArray:
    """Highest log-likelihood for given prevalences (..., without the axis of bins).

    For a fixed prevalence the problem is concave; its Lagrange multipliers add up to the number of all cells,
    and the one of f is found by bisection.
    """
    share = prevalence[..., np.newaxis]
    p, n, total = (x.sum(axis=-1, keepdims=True) for x in (a, b, u))
    low = np.broadcast_to(p, share.shape)
    high = low + total
    for _ in range(24):
        middle = (low + high) / 2
        r = _share_of_positives(a, b, u, share, middle, p + n + total - middle)
        more = (a + u * r).sum(axis=-1, keepdims=True) > middle
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    middle = (low + high) / 2
    r = _share_of_positives(a, b, u, share, middle, p + n + total - middle)
    f, g = a + u * r, b + u * (1 - r)
    f, g = f / f.sum(axis=-1, keepdims=True), g / g.sum(axis=-1, keepdims=True)
    return _log_likelihood(a, b, u, share, f, g)


def _share_of_positives(
    a: FloatArray, b: FloatArray, u: FloatArray, share: FloatArray, weight_f: FloatArray, weight_g: FloatArray
) -> FloatArray:
    """Share r of positives among the unknown cells of each bin at the maximum over f and g.

    With f = (a + u r) / weight_f and g = (b + u (1 - r)) / weight_g, r = pi f / (pi f + (1 - pi) g) is the
    quadratic equation u (A - B) r^2 + (A a + B (b + u) - A u) r - A a = 0 with A = pi / weight_f and
    B = (1 - pi) / weight_g; its larger root in [0, 1] is the maximum.
    """
    A, B = share / weight_f, (1 - share) / weight_g
    square, linear, constant = u * (A - B), A * a + B * (b + u) - A * u, A * a
    root = np.sqrt(np.maximum(linear * linear + 4 * square * constant, 0.0))
    falling = linear < 0  # then A > B, so the square term is positive
    numerator = np.where(falling, root - linear, 2 * constant)
    denominator = np.where(falling, 2 * square, linear + root)
    r = np.divide(numerator, denominator, out=np.zeros(numerator.shape), where=denominator > 0)
    return np.asarray(np.clip(r, 0.0, 1.0))


def _log_likelihood(
    a: FloatArray, b: FloatArray, u: FloatArray, share: FloatArray, f: FloatArray, g: FloatArray
) -> FloatArray:
    return np.asarray((xlogy(a, f) + xlogy(b, g) + xlogy(u, share * f + (1 - share) * g)).sum(axis=-1))

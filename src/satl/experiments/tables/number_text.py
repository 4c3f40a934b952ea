"""Numbers, proportions and names of methods as tables print them."""

from __future__ import annotations

import math

from satl.drawing.style import method_style
from satl.experiments.results import Estimate

DASH = "\u2013"
MINUS = "\u2212"
TIMES = "\u00d7"
MISSING = "A dash: not run, failed, or nothing to measure."


def title_of(method: str) -> str:
    """Return how a method is called in a table."""
    return method_style(method).title


def share(proportion: float) -> str:
    """Write a proportion as a heading.

    >>> share(0.05), share(0.125)
    ('5 %', '12.5 %')
    """
    return f"{100 * proportion:.6g} %"


def number(value: float | None, digits: int = 1) -> str:
    """Write a number, or a dash where there is none.

    >>> number(71.26), number(None), number(float("nan")), number(float("-inf")), number(-0.04)
    ('71.3', '–', '–', '−∞', '0.0')
    """
    if value is None or math.isnan(value):
        return DASH
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", MINUS)


def spread(estimate: Estimate, seeds: int, digits: int = 1) -> str:
    """Write mean and deviation; fewer runs than planned are said.

    >>> spread(Estimate(71.26, 0.34, 3), 3), spread(Estimate(71.26, 0.34, 2), 3), spread(Estimate(None, None, 0), 3)
    ('71.3 ± 0.3', '71.3 ± 0.3 (n = 2)', '–')
    """
    if estimate.mean is None:
        return DASH
    text = number(estimate.mean, digits)
    if estimate.deviation is not None:
        text += f" ± {number(estimate.deviation, digits)}"
    return text if estimate.n >= seeds else f"{text} (n = {estimate.n})"


def p_value(value: float) -> str:
    """Write a probability.

    >>> p_value(0.0123), p_value(1e-9), p_value(float("nan"))
    ('0.0123', '< 0.0001', '–')
    """
    if math.isnan(value):
        return DASH
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}"

"""Why a class has a threshold or none, as a code and as a sentence."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from satl.completion.statistics.fixed_sequence import starting_points
from satl.evaluation.confidence_bounds import labels_needed_at

if TYPE_CHECKING:
    from satl.completion.statistics.certificates import Certificate

_WORD = {1: "present", -1: "absent"}


class Reason(IntEnum):
    """Why a class has a threshold in one direction, or none.

    TOO_FEW: what there is looks precise enough, but there is too little of it (or hardly anything at all);
    TOO_LOW: what there is does not look precise enough.
    """

    CERTIFIED = 0
    NOTHING_UNKNOWN = 1
    NONE_OF_VALUE = 2
    NONE_OF_OTHER = 3
    TOO_FEW_OF_OTHER = 4
    PREVALENCE_OPEN = 5
    TOO_FEW = 6
    TOO_LOW = 7
    LETS_TOO_MUCH_THROUGH = 8
    OVERLAP = 9


def explain_certificate(certificate: Certificate, names: tuple[str, ...]) -> list[str]:
    """One sentence per class; see :meth:`satl.completion.Certificate.explain`."""
    alone = certificate.lower_bound >= certificate.target
    starts, _ = starting_points(certificate.tested, certificate.target, certificate.level)
    return [
        _sentence(certificate, row, name, bool(alone[row]), starts[row, 0]) for row, name in enumerate(names)
    ]


def _sentence(certificate: Certificate, row: int, name: str, alone: bool, start: float) -> str:
    """Return the sentence of a class.

    ``alone``: the cells shown would be enough if their threshold were the only one; ``start``: how many cells the
    first threshold has that is tried.
    """
    word, opposite = _WORD[certificate.value], _WORD[-certificate.value]
    reason = Reason(int(certificate.reason[row]))
    cells, errors = int(certificate.cells[row]), int(certificate.errors[row])
    if reason is Reason.CERTIFIED:
        side = "at least" if certificate.value > 0 else "at most"
        return (
            f"'{name}' is accepted as {word} for a score of {side} {certificate.threshold[row]:.4g}: "
            f"{cells - errors} of {_number(cells, 'tested cell')} there are right."
        )
    tested = _number(int(certificate.tested[row]), "tested cell")
    are = "is" if cells == 1 else "are"
    if reason is Reason.TOO_FEW and alone:
        why = f"{cells - errors} of {_number(cells, 'tested cell')} beyond a threshold {are} right, but " + (
            f"the strictest threshold that is tried has at least {start:,.0f}, of which too many were wrong"
            if cells < start
            else "thresholds are tried from the strictest on, and at a stricter one too many were wrong to go on"
        )
        return f"'{name}' has no threshold for {word}: {why}{_remedy(certificate, row, reason)}."
    if reason is Reason.NONE_OF_VALUE and not certificate.tested[row]:
        # With too few labels of one value, a class holds none out of training, though it may have many of the other.
        return (
            f"'{name}' has no threshold for {word}: none of its cells is tested, since too few are known to be present "
            "or absent; label more of its cells, above all those of the rarer value."
        )
    why = {
        Reason.NOTHING_UNKNOWN: "no unknown cell has a score",
        Reason.NONE_OF_VALUE: f"no tested cell is known to be {word}",
        Reason.NONE_OF_OTHER: f"no tested cell is known to be {opposite}, so nothing could contradict it",
        Reason.TOO_FEW_OF_OTHER: f"too few tested cells are known to be {opposite} to say how many would pass",
        Reason.PREVALENCE_OPEN: "there are too few cells to estimate how many unknown cells are present",
        Reason.TOO_FEW: (
            f"of its {tested}, {cells - errors} of {cells:,} beyond a threshold {are} right, "
            f"too few to show {certificate.target[row]:.4g}"
        ),
        Reason.TOO_LOW: (
            f"at best {cells - errors} of {_number(cells, 'tested cell')} beyond a threshold {are} right, "
            f"{'too few to' if _open(certificate, row) else 'which does not'} show {certificate.target[row]:.4g}"
        ),
        Reason.LETS_TOO_MUCH_THROUGH: f"every precise threshold would also take in too many that are {opposite}",
        Reason.OVERLAP: f"its thresholds would accept the same cells as those for {opposite}",
    }[reason]
    return f"'{name}' has no threshold for {word}: {why}{_remedy(certificate, row, reason)}."


def _remedy(certificate: Certificate, row: int, reason: Reason) -> str:
    if reason in {Reason.NOTHING_UNKNOWN, Reason.OVERLAP, Reason.LETS_TOO_MUCH_THROUGH}:
        return ""
    if reason is Reason.NONE_OF_OTHER or reason is Reason.NONE_OF_VALUE:
        missing = certificate.value if reason is Reason.NONE_OF_VALUE else -certificate.value
        return f"; label more of its cells, some that are {_WORD[missing]}"
    at_random, in_zone = certificate.needed.at_random[row], certificate.needed.in_zone[row]
    if not np.isfinite(at_random) and reason is Reason.PREVALENCE_OPEN:
        return "; more labels of random cells may do"
    if not np.isfinite(in_zone):
        if reason is Reason.TOO_LOW and _open(certificate, row):
            return f"; label more of its cells, some that are {_WORD[certificate.value]}, to see how many it takes"
        return "; more labels alone are not expected to help, a better model may"
    there = f"among the {'highest' if certificate.value > 0 else 'lowest'} scores"
    if not np.isfinite(at_random):
        labels = _number(round(in_zone), "label")
        return f"; about {labels} {there}, chosen by a label plan as a test of their own, may do"
    random = _number(round(at_random), "more label")
    return f"; about {random} of random cells, or {in_zone:,.0f} {there}, may do"


def _open(certificate: Certificate, row: int) -> bool:
    """Whether what was tested says nothing against the model: no error, and fewer cells of the value than it takes."""
    fewest = labels_needed_at(certificate.target[row], certificate.level[row])
    return not certificate.errors[row] and bool(certificate.same[row] < fewest)


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"

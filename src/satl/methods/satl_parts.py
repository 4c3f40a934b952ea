"""What SATL adds to a method that makes pseudo-labels: thresholds per class (SATE) and a ranking loss (DRL)."""

from __future__ import annotations

from dataclasses import replace

from satl.methods.method import Method
from satl.methods.registry import register_method

_REFERENCE = "SATL, arXiv 2507.23263."


def register_with_satl(base: Method, usual_thresholds: str) -> None:
    """Register ``BASE+sate``, ``BASE+drl`` and ``BASE+satl``.

    Args:
        base: a registered method with generators.
        usual_thresholds: the thresholds of the base in words, for the summary of the method that keeps them.
    """
    title = base.name.upper()
    sate = replace(
        base,
        name=f"{base.name}+sate",
        summary=f"{title} with one threshold per class, estimated from the scores of the known cells.",
        reference=_REFERENCE,
        rule="semantic",
        base=base.name,
        adds=("sate",),
    )
    drl = replace(
        base,
        name=f"{base.name}+drl",
        summary=f"{title} with {usual_thresholds} and the differential ranking loss.",
        reference=_REFERENCE,
        stage2=(*base.stage2, "ranking"),
        base=base.name,
        adds=("drl",),
    )
    both = replace(
        drl,
        name=f"{base.name}+satl",
        summary=f"{title} with semantic-aware thresholds and the differential ranking loss.",
        rule=sate.rule,
        adds=("sate", "drl"),
    )
    for method in (sate, drl, both):
        register_method(method)

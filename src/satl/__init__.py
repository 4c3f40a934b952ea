"""satl: multi-label image recognition when most labels are missing.

The names below, and the modules of the package, are loaded when they are first used, so that ``import satl`` costs
nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from satl.evaluation import evaluate_scores
    from satl.inference.recogniser import Recogniser
    from satl.labels import LabelTable, mask_table, read_dataset, read_table, write_table
    from satl.losses import DifferentialRankingLoss, PartialBCELoss
    from satl.thresholds import LinearDecayThreshold, SemanticAwareThreshold

__version__ = "0.1.0"

__all__ = [
    "DifferentialRankingLoss",
    "LabelTable",
    "LinearDecayThreshold",
    "PartialBCELoss",
    "Recogniser",
    "SemanticAwareThreshold",
    "evaluate_scores",
    "mask_table",
    "read_dataset",
    "read_table",
    "write_table",
]

_HOME = {
    "DifferentialRankingLoss": "losses",
    "LabelTable": "labels",
    "LinearDecayThreshold": "thresholds",
    "PartialBCELoss": "losses",
    "Recogniser": "inference.recogniser",
    "SemanticAwareThreshold": "thresholds",
    "evaluate_scores": "evaluation",
    "mask_table": "labels",
    "read_dataset": "labels",
    "read_table": "labels",
    "write_table": "labels",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    if name in _public_modules():
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_public_modules()})


def _public_modules() -> set[str]:
    from pkgutil import iter_modules  # here, because it costs more than all of the above

    return {module.name for module in iter_modules(__path__) if not module.name.startswith("_")}

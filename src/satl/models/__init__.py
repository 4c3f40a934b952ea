"""Networks: backbone adapter, semantic decoupling, gated graph, class and pair heads.

Names are loaded on first use, so that importing the room does not import timm.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from satl.models.backbone import Backbone
    from satl.models.decoupling import SemanticDecoupling
    from satl.models.embeddings import load_word_vectors
    from satl.models.functional import (
        cooccurrence_graph,
        pair_indices,
        pair_scores,
        semantic_attention,
        symmetric_pairs,
    )
    from satl.models.graph import GatedGraph
    from satl.models.heads import ClassHead, ElementWiseLinear, PairHead
    from satl.models.transfer import NetworkOutput, TransferNetwork

_HOME = {
    "Backbone": "backbone",
    "ClassHead": "heads",
    "ElementWiseLinear": "heads",
    "GatedGraph": "graph",
    "NetworkOutput": "transfer",
    "PairHead": "heads",
    "SemanticDecoupling": "decoupling",
    "TransferNetwork": "transfer",
    "cooccurrence_graph": "functional",
    "load_word_vectors": "embeddings",
    "pair_indices": "functional",
    "pair_scores": "functional",
    "semantic_attention": "functional",
    "symmetric_pairs": "functional",
}

__all__ = [
    "Backbone",
    "ClassHead",
    "ElementWiseLinear",
    "GatedGraph",
    "NetworkOutput",
    "PairHead",
    "SemanticDecoupling",
    "TransferNetwork",
    "cooccurrence_graph",
    "load_word_vectors",
    "pair_indices",
    "pair_scores",
    "semantic_attention",
    "symmetric_pairs",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)

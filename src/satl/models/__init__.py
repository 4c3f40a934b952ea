"""Networks: backbone adapter, semantic decoupling, graphs of classes, class and pair heads.

Names are loaded on first use, so that importing the room does not import timm.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from satl.models.backbone import Backbone
    from satl.models.class_network import ClassNetwork, NetworkOutput, SemanticNetwork
    from satl.models.decoupling import SemanticDecoupling
    from satl.models.embeddings import load_word_vectors
    from satl.models.functional import (
        cooccurrence_counts,
        cooccurrence_graph,
        pair_indices,
        pair_scores,
        semantic_attention,
        symmetric_pairs,
    )
    from satl.models.graph import GatedGraph, convolution_graph
    from satl.models.heads import ClassHead, ElementWiseLinear, FactorisedPairHead, PairHead
    from satl.models.kggr import KGGRNetwork, WeightPropagationHead
    from satl.models.ml_gcn import GraphConvolution, MLGCNNetwork
    from satl.models.ssgrl import SSGRLNetwork
    from satl.models.transfer import TransferNetwork

_HOME = {
    "Backbone": "backbone",
    "ClassHead": "heads",
    "ClassNetwork": "class_network",
    "ElementWiseLinear": "heads",
    "FactorisedPairHead": "heads",
    "GatedGraph": "graph",
    "GraphConvolution": "ml_gcn",
    "KGGRNetwork": "kggr",
    "MLGCNNetwork": "ml_gcn",
    "NetworkOutput": "class_network",
    "PairHead": "heads",
    "SSGRLNetwork": "ssgrl",
    "SemanticDecoupling": "decoupling",
    "SemanticNetwork": "class_network",
    "TransferNetwork": "transfer",
    "WeightPropagationHead": "kggr",
    "convolution_graph": "graph",
    "cooccurrence_counts": "functional",
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
    "ClassNetwork",
    "ElementWiseLinear",
    "FactorisedPairHead",
    "GatedGraph",
    "GraphConvolution",
    "KGGRNetwork",
    "MLGCNNetwork",
    "NetworkOutput",
    "PairHead",
    "SSGRLNetwork",
    "SemanticDecoupling",
    "SemanticNetwork",
    "TransferNetwork",
    "WeightPropagationHead",
    "convolution_graph",
    "cooccurrence_counts",
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

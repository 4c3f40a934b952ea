"""ML-GCN on the known cells."""

from __future__ import annotations

from pydantic import Field
from torch import nn

from satl.methods.method import Method
from satl.methods.method_parts import NETWORKS
from satl.methods.networks import NetworkContext
from satl.methods.parameters import Parameters
from satl.methods.registry import register_method
from satl.models.graph import convolution_graph
from satl.models.ml_gcn import MLGCNNetwork


class MLGCNParameters(Parameters):
    """ML-GCN: classifiers that graph convolutions make from word vectors."""

    adjacency_threshold: float = Field(
        0.4, gt=0, le=1, description="Conditional frequency from which a class is a neighbour of another."
    )
    adjacency_weight: float = Field(
        0.25, ge=0, description="What the neighbours of a class weigh together; the class itself weighs 1."
    )


@NETWORKS.register("ml-gcn", MLGCNParameters)
def _ml_gcn(context: NetworkContext, parameters: MLGCNParameters) -> nn.Module:
    return context.build(
        MLGCNNetwork,
        ("embedding_dim",),
        lambda labels: convolution_graph(
            labels, parameters.adjacency_threshold, parameters.adjacency_weight, encoding="signed"
        ),
        hidden_dim=wanted if isinstance(wanted := context.model.feature_dim, int) else 1024,
        # The published network has no biases; only a start at the prior asks for them.
        bias=context.model.prior_bias,
    )


register_method(
    Method(
        name="ml-gcn",
        summary="Classifiers that graph convolutions make from word vectors; unknown cells are ignored.",
        reference="Chen et al., Multi-label image recognition with graph convolutional networks, 2019.",
        network="ml-gcn",
        stage1=("classification",),
        stage2=("classification",),
    )
)

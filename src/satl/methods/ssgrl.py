"""SSGRL on the known cells."""

from __future__ import annotations

from pydantic import Field
from torch import nn

from satl.methods.method import Method
from satl.methods.method_parts import NETWORKS
from satl.methods.networks import NetworkContext
from satl.methods.parameters import Parameters
from satl.methods.registry import register_method
from satl.models.ssgrl import SSGRLNetwork


class SSGRLParameters(Parameters):
    """SSGRL: class features that exchange messages over the co-occurrence graph."""

    tie_gates: bool = Field(
        False,
        description="Share a matrix between the two gates of the graph network, as the published code does.",
    )


@NETWORKS.register("ssgrl", SSGRLParameters, needs=["map"])
def _ssgrl(context: NetworkContext, parameters: SSGRLParameters) -> nn.Module:
    sizes = ("feature_dim", "attention_dim", "embedding_dim", "steps")
    return context.build(SSGRLNetwork, sizes, tie_gates=parameters.tie_gates)


register_method(
    Method(
        name="ssgrl",
        summary="Class features that exchange messages over the co-occurrence graph; unknown cells are ignored.",
        reference="Chen et al., Learning semantic-specific graph representation for multi-label image recognition, "
        "2019.",
        network="ssgrl",
        stage1=("classification",),
        stage2=("classification",),
    )
)

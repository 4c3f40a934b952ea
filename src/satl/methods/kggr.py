"""KGGR on the known cells."""

from __future__ import annotations

from pydantic import Field
from torch import nn

from satl.methods.method import Method
from satl.methods.method_parts import NETWORKS
from satl.methods.networks import NetworkContext
from satl.methods.parameters import Parameters
from satl.methods.registry import register_method
from satl.models.kggr import KGGRNetwork


class KGGRParameters(Parameters):
    """KGGR: class features and class weights, both propagated over the co-occurrence graph."""

    zero_gates: bool = Field(
        False, description="Start the propagation of class weights at zero; for training that is unstable."
    )


@NETWORKS.register("kggr", KGGRParameters, needs=["map"])
def _kggr(context: NetworkContext, parameters: KGGRParameters) -> nn.Module:
    sizes = ("feature_dim", "attention_dim", "embedding_dim", "steps")
    return context.build(KGGRNetwork, sizes, zero_gates=parameters.zero_gates)


register_method(
    Method(
        name="kggr",
        summary="Class features and class weights, both propagated over the co-occurrence graph; unknown cells are "
        "ignored.",
        reference="Chen et al., Knowledge-guided multi-label few-shot learning for general image recognition, 2022.",
        network="kggr",
        stage1=("classification",),
        stage2=("classification",),
    )
)

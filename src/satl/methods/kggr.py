"""KGGR on the known cells."""

from __future__ import annotations

from pydantic import Field
from torch import nn

from satl.methods.declaration import NETWORKS, Method, Parameters
from satl.methods.networks import NetworkSetting
from satl.methods.registration import register_method
from satl.models.kggr import KGGRNetwork


class KGGRParameters(Parameters):
    """Parameters of KGGR's network."""

    zero_gates: bool = Field(
        False, description="Start the propagation of class weights at zero; for training that is unstable."
    )


@NETWORKS.register("kggr", KGGRParameters)
def _kggr(setting: NetworkSetting) -> nn.Module:
    network = KGGRNetwork(
        num_classes=len(setting.classes),
        backbone=setting.backbone(),
        graph=setting.graph(),
        embeddings=setting.embeddings(),
        zero_gates=setting.parameters.zero_gates,
        **setting.given("feature_dim", "attention_dim", "embedding_dim", "steps"),
    )
    return setting.started(network)


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

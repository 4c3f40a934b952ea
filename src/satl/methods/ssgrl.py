"""SSGRL on the known cells."""

from __future__ import annotations

from pydantic import Field
from torch import nn

from satl.methods.declaration import NETWORKS, Method, Parameters
from satl.methods.networks import NetworkSetting
from satl.methods.registration import register_method
from satl.models.ssgrl import SSGRLNetwork


class SSGRLParameters(Parameters):
    """Parameters of SSGRL's network."""

    tie_gates: bool = Field(
        False,
        description="Share a matrix between the two gates of the graph network, as the published code does.",
    )


@NETWORKS.register("ssgrl", SSGRLParameters)
def _ssgrl(setting: NetworkSetting) -> nn.Module:
    network = SSGRLNetwork(
        num_classes=len(setting.classes),
        backbone=setting.backbone(),
        graph=setting.graph(),
        embeddings=setting.embeddings(),
        tie_gates=setting.parameters.tie_gates,
        **setting.given("feature_dim", "attention_dim", "embedding_dim", "steps"),
    )
    return setting.started(network)


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

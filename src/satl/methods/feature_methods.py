"""Which methods can be trained on features, one vector a picture, and as what."""

from __future__ import annotations

from dataclasses import replace

from satl.errors import ConfigError
from satl.methods.method import Method
from satl.methods.method_parts import NETWORKS
from satl.methods.registry import METHODS

VECTOR_NETWORK = "vector"
"""The network on features of methods that say nothing about theirs."""


def on_features(method: Method) -> Method:
    """Return a method as it is trained on features.

    That is what the method declares (``Method.on_features``), or the method itself where its network needs no feature
    map, or else the method with a linear classifier of the vector in the place of the network that most methods share.

    Raises:
        ConfigError: it makes no sense without a feature map: attention over one position is no attention, and class
            features that are all the same say nothing about which classes occur together.

    >>> from satl.methods import get_method
    >>> on_features(get_method("ignore")).network, on_features(get_method("ml-gcn")).network
    ('vector', 'ml-gcn')
    >>> on_features(get_method("ssgrl"))
    Traceback (most recent call last):
    satl.errors.ConfigError: method.name: 'ssgrl' attends to the positions of a feature map, and features have one...
    """
    found = _variant(method)
    if found is None:
        able = ", ".join(name for name, other in METHODS.items() if _variant(other) is not None)
        raise ConfigError(
            f"'{method.name}' attends to the positions of a feature map, and features have one position only",
            where="method.name",
            remedy=f"use one of {able}, or images",
        )
    return found


def _variant(method: Method) -> Method | None:
    if method.on_features is not None:
        return method.on_features
    if "map" not in NETWORKS[method.network].needs:
        return method
    if method.network == Method.network and not method.needs("pairs"):
        return replace(method, network=VECTOR_NETWORK)
    return None

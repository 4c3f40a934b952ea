"""What a configuration leaves to its backbone, written out, so that a run does not depend on a version of timm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satl.images.input_format import IMAGENET_MEAN, IMAGENET_STD
from satl.models.timm_models import model_facts
from satl.runs.config import RunConfig
from satl.runs.feature_runs import uses_features

_BEFORE: dict[str, dict[str, Any]] = {
    "images": {"mean": list(IMAGENET_MEAN), "std": list(IMAGENET_STD), "interpolation": "bicubic"},
    "model": {"final_layers": False},
}
"""What runs did before their configuration said so."""


def settled(config: RunConfig) -> RunConfig:
    """Return a configuration with size, normalisation and interpolation of its images written out.

    What is not given is taken from timm's data configuration of the backbone. A backbone that is made for one size is
    made for the size of the images.

    Raises:
        ConfigError: timm does not know the backbone.
    """
    images, model = config.images, config.model
    if config.on_features or None not in (
        images.size,
        images.mean,
        images.std,
        images.interpolation,
        model.final_layers,
    ):
        return config  # has no backbone; or is of a run, which must not depend on what timm says today
    facts = model_facts(model.backbone, model.backbone_kwargs)
    taken, kwargs = facts.input, dict(model.backbone_kwargs)
    size = images.size or _given_size(kwargs) or taken.size
    if facts.fixed_size and not {"img_size", "dynamic_img_size"} & set(kwargs):
        kwargs["img_size"] = size
    return config.model_copy(
        update={
            "images": images.model_copy(
                update={
                    "size": size,
                    "mean": images.mean or taken.mean,
                    "std": images.std or taken.std,
                    "interpolation": images.interpolation or taken.interpolation,
                }
            ),
            "model": model.model_copy(
                update={
                    "backbone_kwargs": kwargs,
                    "final_layers": facts.final_layers and model.final_layers is not False,
                }
            ),
        }
    )


def with_settled_keys(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a run, plain data, with the keys that runs of earlier versions did not write.

    >>> old = with_settled_keys({"images": {"size": 448}, "model": {"backbone": "resnet50"}})
    >>> old["images"]["interpolation"], old["model"]["final_layers"]
    ('bicubic', False)
    """
    result = dict(content)
    if uses_features(result):  # has neither
        return result
    for section, before in _BEFORE.items():
        given = result.get(section)
        if isinstance(given, Mapping):
            result[section] = {
                **given,
                **{key: value for key, value in before.items() if given.get(key) is None},
            }
    return result


def _given_size(kwargs: Mapping[str, Any]) -> int | None:
    """Return the size that the arguments for timm build the backbone for."""
    size = kwargs.get("img_size")
    if isinstance(size, list | tuple) and size:
        size = size[0]
    return int(size) if isinstance(size, int) else None

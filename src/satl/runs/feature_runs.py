"""What is different in the configuration of a run on features: other defaults, and keys that mean nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from satl.sections import Section

if TYPE_CHECKING:
    from satl.runs.config import RunConfig

DEFAULTS: dict[str, dict[str, Any]] = {
    "method": {"name": "satl+"},
    "model": {"prior_bias": True},
    "training": {"lr": 3e-4, "batch_size": 128, "schedule": "cosine", "warmup_epochs": 1.0},
}
"""Keys that a run on features has other defaults for than one on images: nothing pretrained is moved, a step costs next
to nothing, and in the few hundred there are a bias would not get to where its class is as rare as it is. Parameters of
a method are in its own file (``Method.on_features``)."""

OF_PIXELS = {
    "images": (
        *("store_size", "size", "mean", "std", "interpolation", "crop_sizes", "flip", "jitter"),
        *("broken", "broken_share"),
    ),
    "model": (
        *(
            "backbone",
            "backbone_kwargs",
            "pretrained",
            "weights",
            "stride_in_1x1",
            "train_stages",
            "final_layers",
        ),
        *("freeze_statistics", "pool", "reduction", "attention_dim", "pair_dim", "pair_hidden", "pair_head"),
    ),
}
"""Keys about pixels, their network and its feature map, by section."""


class FeaturesConfig(Section):
    """What happens to features before the network, where `data.features` is given."""

    unit_length: bool = Field(
        True, description="Scale each vector to the length 1 first; false if lengths have a meaning."
    )
    standardise: bool = Field(
        True, description="Shift and scale each number to mean 0 and deviation 1 over the training images."
    )
    components: int = Field(
        512,
        ge=0,
        le=65_536,
        description="Number of principal components of the training images to keep of longer vectors that are "
        "standardised, all scaled by the same number. 0: keep every number.",
    )

    def kept_components(self, dim: int) -> int:
        """Return how many principal components of vectors of ``dim`` numbers are kept; 0: the numbers themselves.

        >>> FeaturesConfig().kept_components(2048), FeaturesConfig().kept_components(512)
        (512, 0)
        """
        return self.components if self.standardise and self.components < dim else 0


def uses_features(content: Mapping[str, Any]) -> bool:
    """Whether plain data, or data that is partly validated, is the configuration of a run on features."""
    data = content.get("data")
    found = data.get("features") if isinstance(data, Mapping) else getattr(data, "features", None)
    return found is not None


def with_feature_defaults(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain data with the defaults of a run on features, where its sections do not say otherwise.

    >>> with_feature_defaults({"training": {"lr": 0.1}, "method": {"name": "ignore"}})["training"]
    {'lr': 0.1, 'batch_size': 128, 'schedule': 'cosine', 'warmup_epochs': 1.0}
    """
    result = dict(content)
    for section, values in DEFAULTS.items():
        given = content.get(section)
        if given is None or isinstance(given, Mapping):
            result[section] = {**values, **(given or {})}
    return result


def check_inputs(config: RunConfig) -> None:
    """Refuse keys and parts of the method that mean nothing for what the network sees.

    Raises:
        ValueError: names the first one, as pydantic expects it.
    """
    if config.on_features:
        _refuse_keys_of_pixels(config)
    if config.method.configured()[0].needs("vectors"):
        _check_prompts(config)


def _check_prompts(config: RunConfig) -> None:
    """Refuse prompts about the classes where nothing makes them, or nothing can be compared with them."""
    if not config.on_features:
        raise ValueError(
            "method.generators.text compares features with prompts, and this run reads images: give data.features, "
            "made by the image side of a tower, or leave it out"
        )
    if config.model.text_model is None:
        raise ValueError(
            "method.generators.text needs model.text_model, the tower that made the features, such as "
            "open_clip:ViT-B-32"
        )


def _refuse_keys_of_pixels(config: RunConfig) -> None:
    """Refuse a value for a key about pixels, which features do not have.

    Raises:
        ValueError: names the first one, as pydantic expects it.
    """
    for section, keys in OF_PIXELS.items():
        given = getattr(config, section)
        for key in keys:
            field, value = type(given).model_fields[key], getattr(given, key)
            if value != field.get_default(call_default_factory=True):
                shown = json.dumps(value, default=str)
                raise ValueError(
                    f"{section}.{key} ({shown}) is about pixels and their network, and this run reads data.features: "
                    "leave it out"
                )

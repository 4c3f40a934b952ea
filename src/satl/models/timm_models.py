"""What timm knows about a model by its name: how to build it, and what images it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from satl.errors import Argument, ConfigError, Sentence, nearest
from satl.images.input_format import IMAGENET_MEAN, IMAGENET_STD, Channels, InputFormat, Interpolation

PUBLISHED_SIZE = 448
"""Side of the images of the published settings, for backbones that take any size."""
_FROM_TIMM = ("pretrained_cfg", "pretrained_cfg_overlay")
"""Arguments of timm that change its data configuration."""
_PLAIN = {
    "satl_tiny": 64,
    **dict.fromkeys(("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"), 224),
}
"""Backbones with ImageNet's data configuration, and their size: nobody waits for timm to read a configuration."""
_COMPLETE = ("resnet",)
"""Modules of timm whose models end with their last stage, so that their map of features is its output."""


@dataclass(frozen=True)
class ModelFacts:
    """What a model of timm takes and has, by timm's data configuration.

    Attributes:
        input: size, normalisation and interpolation that its weights were trained with; the size is
            :data:`PUBLISHED_SIZE` where it takes any.
        trained_size: side of the images that its weights were trained with.
        fixed_size: whether the model is built for one size.
        final_layers: whether there are layers behind the last stage that belong to its features.
    """

    input: InputFormat
    trained_size: int
    fixed_size: bool
    final_layers: bool


def model_facts(name: str, settings: Mapping[str, Any] | None = None) -> ModelFacts:
    """Return what a model of timm takes, from its data configuration.

    Args:
        name: of the model, with or without the tag of its weights (``vit_base_patch14_dinov2.lvd142m``).
        settings: further arguments for timm.

    Raises:
        ConfigError: timm has no such model or weights.

    >>> model_facts("resnet50").input.size, model_facts("vit_tiny_patch16_224").input
    (448, InputFormat(size=224, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), interpolation='bicubic'))
    """
    settings = settings or {}
    if name in _PLAIN and not any(key in settings for key in _FROM_TIMM):
        return ModelFacts(InputFormat(PUBLISHED_SIZE), _PLAIN[name], fixed_size=False, final_layers=False)
    found = _data_configuration(name, settings)
    fixed = bool(found.get("fixed_input_size"))
    trained = int((found.get("input_size") or (PUBLISHED_SIZE,))[-1])
    size = trained if fixed else PUBLISHED_SIZE
    interpolation: Interpolation = "bilinear" if found.get("interpolation") == "bilinear" else "bicubic"
    mean = _channels(found.get("mean"), IMAGENET_MEAN)
    std = _channels(found.get("std"), IMAGENET_STD)
    taken = InputFormat(size, mean, std, interpolation)
    return ModelFacts(taken, trained, fixed, not ends_with_last_stage(name))


def ends_with_last_stage(name: str) -> bool:
    """Whether the output of a model's last stage is its map of features, as in a ResNet.

    >>> ends_with_last_stage("resnet50.tv_in1k"), ends_with_last_stage("vit_tiny_patch16_224")
    (True, False)
    """
    if name in _PLAIN:
        return True
    from timm.models import is_model_in_modules

    return bool(is_model_in_modules(name.partition(".")[0], _COMPLETE))


def create_timm_model(name: str, settings: Mapping[str, Any], **fixed: Any) -> Any:
    """Build a model of timm.

    Args:
        name: of the model.
        settings: arguments of the user.
        fixed: arguments that are not the user's to choose.

    Raises:
        ConfigError: timm has no such model, or does not take the arguments.
    """
    import timm

    _require_known(name)
    clash = sorted(set(settings) & set(fixed))
    if clash:
        raise ConfigError(f"backbone kwargs must not hold {', '.join(clash)}: satl sets them itself.")
    try:
        return timm.create_model(name, **fixed, **settings)
    except (TypeError, RuntimeError, ValueError, AssertionError, AttributeError) as error:
        raise ConfigError(
            f"timm cannot build backbone '{name}' with kwargs {dict(settings)}: {error}."
        ) from error
    except Exception as error:
        # The download passes through several libraries, each with errors of its own.
        if not fixed.get("pretrained"):
            raise
        raise ConfigError(
            f"the pretrained weights of backbone '{name}' cannot be fetched ({type(error).__name__})",
            remedy=Sentence(
                "connect to the internet, or name a file that holds them with {weights}",
                weights=Argument("model.weights"),
            ),
        ) from error


def _require_known(name: str) -> None:
    import timm

    import satl.models.tiny_network  # noqa: F401  (registers satl_tiny with timm)

    architecture = name.partition(".")[0]
    if not timm.is_model(architecture) and ":" not in name:
        raise ConfigError(
            f"backbone name '{name}' is unknown to timm{nearest(architecture, timm.list_models())}: "
            "run `python -c 'import timm; print(timm.list_models())'` for the list."
        )


def _data_configuration(name: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    from timm.models import get_arch_pretrained_cfgs, resolve_pretrained_cfg

    _require_known(name)
    if ":" in name:  # a model of the Hub or a folder, whose configuration comes with it
        model = create_timm_model(name, settings)
        found: Mapping[str, Any] = model.pretrained_cfg
        return found
    architecture, _, tag = name.partition(".")
    overlay = dict(settings.get("pretrained_cfg_overlay") or {})
    try:
        resolved = resolve_pretrained_cfg(
            architecture, settings.get("pretrained_cfg") or tag or None, overlay or None
        )
    except (RuntimeError, TypeError) as error:
        tags = [known.partition(".")[2] for known in get_arch_pretrained_cfgs(architecture)]
        raise ConfigError(
            f"timm has no weights '{tag}' of backbone '{architecture}'{nearest(tag, tags)}: leave the tag out, "
            f"or choose among {', '.join(sorted(filter(None, tags))) or 'none'}."
        ) from error
    return dict(resolved.to_dict())


def _channels(values: Any, default: Channels) -> Channels:
    if not values or len(values) != 3:
        return default
    red, green, blue = map(float, values)
    return red, green, blue

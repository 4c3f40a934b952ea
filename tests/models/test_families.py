"""Backbones of every family: their features are timm's own, and so is what they are fed with."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import timm
import torch
from timm.models import resolve_pretrained_cfg

from reference.features import feature_map
from satl.errors import ConfigError
from satl.images.input_format import IMAGENET_MEAN, IMAGENET_STD, InputFormat
from satl.models import Backbone
from satl.models.timm_models import _PLAIN, PUBLISHED_SIZE, ends_with_last_stage, model_facts

HALF = (0.5, 0.5, 0.5)
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
SMALL_VIT: dict[str, Any] = {"depth": 2, "embed_dim": 24, "num_heads": 3}
SMALL_SWIN: dict[str, Any] = {"embed_dim": 8, "depths": (1, 1, 1, 1), "num_heads": (1, 1, 1, 1)}


class Family(NamedTuple):
    """A model of a family, made small, and what is known of it."""

    name: str
    kwargs: dict[str, Any]
    size: int
    last: tuple[str, ...]
    prefix: int = 0
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    trained_size: int = 224


FAMILIES = [
    Family("resnet18", {"layers": (1, 1, 1, 1), "channels": (8, 8, 16, 24)}, 64, ("layer4",)),
    Family(
        "resnetv2_50",
        {"layers": (1, 1, 1, 1), "channels": (16, 16, 32, 32)},
        64,
        ("stages.3", "norm"),
        0,
        HALF,
        HALF,
    ),
    Family("convnext_atto", {"depths": (1, 1, 1, 1), "dims": (8, 8, 16, 24)}, 64, ("stages.3",)),
    Family("test_efficientnet", {}, 64, ("blocks.4", "conv_head", "bn2"), trained_size=160),
    Family("mobilenetv3_small_050", {}, 64, ("blocks.5",)),
    Family("regnety_002", {}, 64, ("s4",)),
    Family("densenet121", {"growth_rate": 4}, 64, ("features.denseblock4", "features.norm5")),
    Family("vit_tiny_patch16_224", SMALL_VIT, 64, ("blocks.1", "norm"), 1, HALF, HALF),
    Family("vit_base_patch16_clip_224", SMALL_VIT, 64, ("blocks.1", "norm"), 1, CLIP_MEAN, CLIP_STD),
    Family("vit_base_patch16_siglip_224", SMALL_VIT, 64, ("blocks.1", "norm"), 0, HALF, HALF),
    Family("eva02_tiny_patch14_224", SMALL_VIT, 56, ("blocks.1",), 1, CLIP_MEAN, CLIP_STD),
    Family("vit_small_patch14_dinov2", SMALL_VIT, 56, ("blocks.1", "norm"), 1, trained_size=518),
    Family("vit_small_patch14_reg4_dinov2", SMALL_VIT, 56, ("blocks.1", "norm"), 5, trained_size=518),
    Family("vit_small_patch16_dinov3", SMALL_VIT, 64, ("blocks.1", "norm"), 5, trained_size=256),
    Family("swin_tiny_patch4_window7_224", SMALL_SWIN, 64, ("layers.3", "norm")),
    Family("swinv2_tiny_window8_256", SMALL_SWIN, 64, ("layers.3", "norm"), trained_size=256),
    Family("mvitv2_tiny", {}, 64, ("stages.3", "norm")),
    Family("xcit_nano_12_p16_224", {"depth": 2}, 64, ("blocks.1", "cls_attn_blocks", "norm"), 1),
    Family("mambaout_femto", {"depths": (1, 1, 1, 1), "dims": (8, 8, 16, 24)}, 64, ("stages.3",)),
]
EACH = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def kwargs_of(family: Family) -> dict[str, Any]:
    fixed = model_facts(family.name).fixed_size
    return {**family.kwargs, "img_size": family.size} if fixed else family.kwargs


@EACH
def test_features_are_those_of_timm(family: Family) -> None:
    kwargs = kwargs_of(family)
    torch.manual_seed(0)
    whole = timm.create_model(family.name, **kwargs).eval()
    torch.manual_seed(0)
    backbone = Backbone(family.name, kwargs=kwargs, pool=1, train_stages="last").eval()
    images = torch.randn(2, 3, family.size, family.size)
    ours = backbone(images)
    assert ours.shape[1] == backbone.channels
    assert ours.shape[2] == ours.shape[3] >= 2
    expected = feature_map(whole, images, family.prefix, ours.shape[2])
    assert (ours - expected).abs().max() <= 1e-5
    assert backbone.prefix_tokens == family.prefix

    assert backbone.trained == family.last
    ours.square().sum().backward()
    trained = {name for name, value in backbone.named_parameters() if value.requires_grad}
    assert trained == {name for name, value in backbone.named_parameters() if value.grad is not None}


@EACH
def test_nothing_is_left_that_features_do_not_need(family: Family) -> None:
    """A weight without a gradient makes several processes wait for it."""
    backbone = Backbone(family.name, kwargs=kwargs_of(family), pool=1, train_stages="all")
    backbone(torch.randn(2, 3, family.size, family.size)).square().sum().backward()
    assert not [name for name, value in backbone.named_parameters() if value.grad is None]


@EACH
def test_the_data_configuration_is_that_of_the_weights(family: Family) -> None:
    facts = model_facts(family.name)
    fixed = timm.create_model(family.name, **family.kwargs).pretrained_cfg["fixed_input_size"]
    assert facts.fixed_size == bool(fixed)
    assert facts.trained_size == family.trained_size
    size = family.trained_size if fixed else PUBLISHED_SIZE
    assert facts.input == InputFormat(size, family.mean, family.std)


def test_a_tag_has_its_own_data_configuration() -> None:
    assert model_facts("resnet50.tv_in1k").input.interpolation == "bilinear"
    assert model_facts("resnet50").input.interpolation == "bicubic"
    assert model_facts("vit_base_patch16_224.dino").input.mean == IMAGENET_MEAN
    assert model_facts("vit_base_patch16_224").input.mean == HALF
    overlay = {"pretrained_cfg_overlay": {"mean": (0.1, 0.2, 0.3), "interpolation": "bilinear"}}
    changed = model_facts("resnet50", overlay).input
    assert (changed.mean, changed.std, changed.interpolation) == ((0.1, 0.2, 0.3), IMAGENET_STD, "bilinear")


@pytest.mark.parametrize("name", sorted(_PLAIN))
def test_what_is_known_without_timm_is_what_timm_says(name: str) -> None:
    Backbone("satl_tiny")  # registers it
    found = resolve_pretrained_cfg(name)
    facts = model_facts(name)
    assert (facts.input.mean, facts.input.std) == (tuple(found.mean), tuple(found.std))
    assert (facts.input.interpolation, facts.trained_size) == (found.interpolation, found.input_size[-1])
    assert facts.fixed_size == found.fixed_input_size
    assert facts.input.size == PUBLISHED_SIZE


def test_only_plain_resnets_end_with_their_last_stage() -> None:
    assert all(map(ends_with_last_stage, ("resnext50_32x4d", "seresnet50", "tv_resnet50", "satl_tiny")))
    assert not any(map(ends_with_last_stage, ("resnetv2_50", "resnet50_clip", "convnext_tiny", "swin_tiny")))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vit_tiny_patch16_225", r"unknown to timm \(did you mean 'vit_tiny_patch16_224'\?\)"),
        (
            "resnet50.a1_in2k",
            r"no weights 'a1_in2k' of backbone 'resnet50' \(did you mean 'a1_in1k'\?\).*tv_in1k",
        ),
    ],
)
def test_unknown_models_and_weights_are_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        model_facts(name)


def test_a_model_without_a_map_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_vector(_: object, images: torch.Tensor) -> torch.Tensor:
        return images.mean((2, 3))

    monkeypatch.setattr("timm.models.vision_transformer.VisionTransformer.forward_features", one_vector)
    with pytest.raises(
        ConfigError, match=r"test_vit gives no features that make a map \(.*\): choose another"
    ):
        Backbone("test_vit")


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (
            50,
            "images.size: images of 50 x 50 pixels cannot go through vit_tiny_patch16_224 (",
        ),
        (96, "images.size: images of 96 x 96 pixels cannot go through vit_tiny_patch16_224 ("),
    ],
)
def test_sizes_that_a_model_cannot_take_are_told(size: int, message: str) -> None:
    backbone = Backbone("vit_tiny_patch16_224", kwargs={**SMALL_VIT, "img_size": 64}, train_stages="last")
    backbone.train()
    backbone.require_size(64)
    modes = [part.training for part in backbone.modules()]
    with pytest.raises(ConfigError) as raised:
        backbone.require_size(size)
    assert message in str(raised.value)
    remedy = "set it to a multiple of 16, such as 48." if size == 50 else "choose another size."
    assert str(raised.value).endswith(remedy)
    assert [part.training for part in backbone.modules()] == modes


def test_a_size_is_checked_without_numbers_or_draws() -> None:
    backbone = Backbone("test_efficientnet", train_stages="all").train()
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    state = torch.get_rng_state()
    backbone.require_size(640)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())

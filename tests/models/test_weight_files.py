"""Weight files: what timm's own loader takes gives the same features here, and what it refuses is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import Tensor

from satl.errors import ConfigError
from satl.models import Backbone

VIT: dict[str, Any] = {"depth": 2, "embed_dim": 24, "num_heads": 3}
State = dict[str, Tensor]


def model_state(name: str, **kwargs: Any) -> State:
    torch.manual_seed(0)
    model = timm.create_model(name, **{**VIT, **kwargs})
    # Nothing that is zero or one at the start may hide a tensor that was not loaded.
    return {key: torch.randn_like(value) * 0.3 for key, value in model.state_dict().items()}


def dinov2_file(registers: int) -> State:
    """A file as Meta publishes it: a position for the class token, a mask token, registers under another name."""
    state = model_state(f"vit_small_patch14{'_reg4' if registers else ''}_dinov2", img_size=70)
    state = {key: value for key, value in state.items() if not key.startswith("head.")}
    state["mask_token"] = torch.randn(1, 24)
    if registers:
        state["register_tokens"] = state.pop("reg_token")
        state["pos_embed"] = torch.cat([torch.randn(1, 1, 24), state["pos_embed"]], dim=1)
    return state


def openai_clip_file() -> State:
    """A file as OpenAI publishes it: the image tower under ``visual.``, the text tower beside it."""
    state = model_state("vit_base_patch16_clip_224", img_size=64)
    file: State = {
        "visual.class_embedding": state["cls_token"][0, 0],
        "visual.positional_embedding": state["pos_embed"][0],
        "visual.conv1.weight": state["patch_embed.proj.weight"],
        "visual.proj": torch.randn(24, 7),
        "token_embedding.weight": torch.randn(5, 6),
        "transformer.resblocks.0.ln_1.weight": torch.randn(6),
        "logit_scale": torch.zeros(()),
    }
    names = {"norm_pre": "ln_pre", "norm": "ln_post"}
    parts = {"norm1": "ln_1", "norm2": "ln_2", "mlp.fc1": "mlp.c_fc", "mlp.fc2": "mlp.c_proj"}
    parts |= {"attn.proj": "attn.out_proj"}
    for ours, theirs in names.items():
        for kind in ("weight", "bias"):
            file[f"visual.{theirs}.{kind}"] = state[f"{ours}.{kind}"]
    for block in range(2):
        place = f"visual.transformer.resblocks.{block}"
        for kind in ("weight", "bias"):
            file[f"{place}.attn.in_proj_{kind}"] = state[f"blocks.{block}.attn.qkv.{kind}"]
            for ours, theirs in parts.items():
                file[f"{place}.{theirs}.{kind}"] = state[f"blocks.{block}.{ours}.{kind}"]
    return file


def timm_features(name: str, path: Path, size: int) -> Tensor:
    """Return the features of two images after timm's own loader has read the file."""
    overlay = {"file": str(path), "custom_load": False}
    model = timm.create_model(
        name, pretrained=True, pretrained_cfg_overlay=overlay, num_classes=0, img_size=size, **VIT
    ).eval()
    with torch.no_grad():
        tokens = model.forward_features(pictures(size))[:, model.num_prefix_tokens :]
    return tokens.transpose(1, 2).unflatten(2, (size // model.patch_embed.patch_size[0], -1))


def pictures(size: int) -> Tensor:
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("name", "size", "state"),
    [
        ("vit_tiny_patch16_224", 96, lambda: model_state("vit_tiny_patch16_224", img_size=64)),
        ("vit_small_patch14_dinov2", 70, lambda: dinov2_file(0)),
        ("vit_small_patch14_dinov2", 56, lambda: dinov2_file(0)),
        ("vit_small_patch14_reg4_dinov2", 98, lambda: dinov2_file(4)),
        ("vit_base_patch16_clip_224", 64, openai_clip_file),
        ("vit_base_patch16_clip_224", 96, openai_clip_file),
        ("eva02_tiny_patch14_224", 56, lambda: model_state("eva02_tiny_patch14_224", img_size=70)),
        (
            "vit_base_patch16_siglip_224",
            64,
            lambda: (
                {
                    f"visual.trunk.{key}": value
                    for key, value in model_state("vit_base_patch16_siglip_224", img_size=96).items()
                }
                | {"text.token_embedding.weight": torch.zeros(3, 4), "logit_bias": torch.zeros(())}
            ),
        ),
    ],
)
def test_what_timm_loads_gives_the_features_of_timm(name: str, size: int, state: Any, tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save(state(), path)
    backbone = Backbone(name, kwargs={**VIT, "img_size": size}, weights=path, pool=1).eval()
    with torch.no_grad():
        ours = backbone(pictures(size))
    assert (ours - timm_features(name, path, size)).abs().max() <= 1e-5
    with torch.no_grad():
        untrained = Backbone(name, kwargs={**VIT, "img_size": size}, pool=1).eval()(pictures(size))
    assert (ours - untrained).abs().max() > 1e-2


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: {"state_dict": state, "epoch": 3},
        lambda state: {"model": state},
        lambda state: {"teacher": {f"backbone.{key}": value for key, value in state.items()}},
        lambda state: {f"module.{key}": value for key, value in state.items()},
        lambda state: {f"_orig_mod.module.{key}": value for key, value in state.items()},
        lambda state: (
            {f"backbone.{key}": value for key, value in state.items()}
            | {"decode_head.weight": torch.zeros(2)}
        ),
        lambda state: {
            "state_dict": {f"model.backbone.{key}": value for key, value in state.items()}
            | {"criterion.weight": torch.zeros(2)}
        },
    ],
)
@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "resnet18", "test_convnext"])
def test_wrappers_and_prefixes_of_training_programs(name: str, wrap: Any, tmp_path: Path) -> None:
    kwargs: dict[str, Any] = {
        "vit_tiny_patch16_224": {"depth": 1, "embed_dim": 24, "img_size": 32},
        "resnet18": {"layers": (1, 1, 1, 1), "channels": (8, 8, 16, 24)},
    }.get(name, {})
    torch.manual_seed(3)
    whole = timm.create_model(name, **kwargs)
    torch.save(wrap(whole.state_dict()), tmp_path / "weights.pth")
    backbone = Backbone(name, kwargs=kwargs, weights=tmp_path / "weights.pth", pool=1).eval()
    images = pictures(32)
    with torch.no_grad():
        expected = whole.eval().forward_features(images)
        ours = backbone(images)
    tokens = expected[:, 1:].transpose(1, 2).unflatten(2, (2, 2)) if expected.ndim == 3 else expected
    assert (ours - tokens).abs().max() <= 1e-5


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (lambda: model_state("vit_tiny_patch16_224", depth=1), r"missing: blocks\.1\.norm1\.weight"),
        (lambda: model_state("vit_tiny_patch16_224", embed_dim=12), r"shape: .* instead of \(1, 1, 24\)"),
        (lambda: timm.create_model("test_resnet").state_dict(), r"missing: cls_token.*not in the model: bn1"),
        (
            lambda: model_state("vit_tiny_patch16_224") | {"blocks.7.norm1.weight": torch.zeros(24)},
            r"not in the model: blocks\.7\.norm1\.weight\)",
        ),
    ],
)
def test_files_of_other_models_are_refused(state: Any, message: str, tmp_path: Path) -> None:
    torch.save(state(), tmp_path / "weights.pth")
    with pytest.raises(ConfigError, match=rf"do not fit vit_tiny_patch16_224 \(.*{message}") as raised:
        Backbone("vit_tiny_patch16_224", kwargs=VIT, weights=tmp_path / "weights.pth")
    assert "\n" not in str(raised.value)


class Harmful:
    """Runs something when it is read from a pickle."""

    def __reduce__(self) -> Any:
        return print, ("harm",)


def test_files_that_would_run_something_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"state_dict": {"a": torch.zeros(1)}, "args": Harmful()}, tmp_path / "weights.pth")
    with pytest.raises(ConfigError, match="give a file that holds tensors only"):
        Backbone("vit_tiny_patch16_224", kwargs=VIT, weights=tmp_path / "weights.pth")
    assert "harm" not in capsys.readouterr().out

"""Backbones: shapes, which stages train, weight files, and what a user reads when something is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file

from satl.errors import ConfigError
from satl.models import Backbone

TINY: dict[str, Any] = {"layers": (1, 1, 1, 1), "channels": (8, 8, 16, 24), "zero_init_last": False}
BOTTLENECK: dict[str, Any] = {"layers": (1, 1, 1, 1), "channels": (4, 4, 8, 8), "zero_init_last": False}
MODELS: list[tuple[str, dict[str, Any], str]] = [
    ("resnet18", TINY, "layer4"),
    (
        "swin_tiny_patch4_window7_224",
        {"img_size": 64, "embed_dim": 8, "depths": (1, 1, 1, 1), "num_heads": (1, 1, 1, 1)},
        "layers.3",
    ),
    ("vit_tiny_patch16_224", {"img_size": 64, "depth": 3, "embed_dim": 24}, "blocks.2"),
    ("test_convnext", {}, "stages.3"),
    ("test_efficientnet", {}, "blocks.4"),
]


@pytest.mark.parametrize(("name", "kwargs", "last"), MODELS)
def test_any_family_gives_a_channels_first_map_and_named_stages(
    name: str, kwargs: dict[str, Any], last: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    whole = timm.create_model(name, **kwargs).eval()
    torch.save(whole.state_dict(), tmp_path / "whole.pth")
    path = tmp_path / "whole.pth"
    backbone = Backbone(
        name, kwargs=kwargs, pool=1, train_stages=[-1], weights=path, final_layers=False
    ).eval()
    images = torch.randn(2, 3, 64, 64)
    feature_map = backbone(images)
    assert feature_map.shape[:2] == (2, backbone.channels)
    assert feature_map.shape[2] == feature_map.shape[3] <= 4
    expected = whole.forward_intermediates(images, norm=False, intermediates_only=True)[-1]
    assert torch.allclose(feature_map, expected, atol=1e-6)

    assert backbone.stages[-1] == last
    assert backbone.trained == (last,)
    assert Backbone(name, kwargs=kwargs, train_stages=[last]).trained == (last,)
    trained = [p for p in backbone.parameters() if p.requires_grad]
    assert 0 < len(trained) < len(list(backbone.parameters()))
    feature_map.square().sum().backward()
    assert all(p.grad is not None for p in trained)


def test_names_indices_and_prefixes_select_stages() -> None:
    def trained(stages: Any, name: str = "resnet18", kwargs: Any = TINY) -> tuple[str, ...]:
        return Backbone(name, kwargs=kwargs, train_stages=stages).trained

    assert trained(["layer3", "layer4"]) == trained([-2, 3]) == ("layer3", "layer4")
    assert trained([]) == ()
    assert trained("all") == ("conv1", "bn1", "layer1", "layer2", "layer3", "layer4")
    assert trained(["stages"], "test_convnext", {}) == ("stages.0", "stages.1", "stages.2", "stages.3")
    assert trained(["stages_1", "stem"], "test_convnext", {}) == ("stem", "stages.1")


@pytest.mark.parametrize("stages", [["layer4"], ["layer2"], [], "all"])
def test_only_trained_stages_change_in_a_training_step(stages: Any) -> None:
    torch.manual_seed(0)
    backbone = Backbone("resnet18", kwargs=TINY, train_stages=stages, pool=1)
    head = torch.nn.Conv2d(backbone.channels, 1, 1)
    before = {name: value.clone() for name, value in backbone.network.state_dict().items()}
    backbone.train()
    parameters = [p for p in [*backbone.parameters(), *head.parameters()] if p.requires_grad]
    optimiser = torch.optim.Adam(parameters, lr=0.1, weight_decay=0.1)
    head(backbone(torch.randn(4, 3, 64, 64))).square().sum().backward()
    optimiser.step()
    for name, value in backbone.network.state_dict().items():
        trained = stages == "all" or name.split(".")[0] in stages
        assert torch.equal(value, before[name]) != trained, name
    for name, module in backbone.network.named_modules():
        if name:
            trained = stages == "all" or name.split(".")[0] in stages
            assert module.training == trained, name
    backbone.eval()
    assert not any(module.training for module in backbone.modules())


@pytest.mark.parametrize("freeze", [True, False])
@pytest.mark.parametrize(
    ("name", "kwargs", "stages"),
    [("resnet18", TINY, ["layer4"]), ("resnet18", TINY, "all"), ("test_efficientnet", {}, "all")],
)
def test_trained_stages_keep_their_statistics_where_asked_to(
    name: str, kwargs: dict[str, Any], stages: Any, freeze: bool
) -> None:
    torch.manual_seed(0)
    backbone = Backbone(name, kwargs=kwargs, train_stages=stages, pool=1, freeze_statistics=freeze)
    model, images = torch.nn.Sequential(backbone), torch.randn(4, 3, 64, 64)
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    layers = [
        path
        for path, part in backbone.named_modules()
        if isinstance(part, torch.nn.BatchNorm2d) and part.weight.requires_grad
    ]
    assert layers
    for _ in range(2):  # in the mode that it is built in, and in that after a validation
        before = {path: value.clone() for path, value in backbone.state_dict().items()}
        feature_map = model(images)
        assert torch.allclose(feature_map, model.eval()(images), rtol=1e-4, atol=1e-5) == freeze
        optimiser.zero_grad()
        model.train()(images)[0].square().mean().backward()
        optimiser.step()
        after = backbone.state_dict()
        for path in layers:
            for value in ("running_mean", "running_var", "num_batches_tracked"):
                assert torch.equal(after[f"{path}.{value}"], before[f"{path}.{value}"]) == freeze, path
            for value in ("weight", "bias"):
                assert not torch.equal(after[f"{path}.{value}"], before[f"{path}.{value}"]), path
    assert any(isinstance(part, torch.nn.Conv2d) and part.training for part in backbone.modules())


def test_frozen_stages_store_nothing_and_leave_the_gradient_exact() -> None:
    torch.manual_seed(0)
    backbone = Backbone("resnet18", kwargs=TINY, train_stages=["layer4"]).double()
    images = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    seen: list[bool] = []
    backbone.network.layer3.register_forward_hook(lambda *a: seen.append(a[2].requires_grad))
    backbone.eval()
    backbone(images).square().sum().backward()
    assert seen == [False]
    ours = [p.grad.clone() for p in backbone.network.layer4.parameters() if p.grad is not None]
    assert all(p.grad is None for p in backbone.network.layer3.parameters())

    backbone.zero_grad()
    backbone.requires_grad_(True)
    backbone(images).square().sum().backward()
    assert seen == [False, True]
    for mine, parameter in zip(ours, backbone.network.layer4.parameters(), strict=True):
        assert torch.equal(mine, parameter.grad)


@pytest.mark.parametrize(("size", "pool", "expected"), [(64, 2, 1), (96, 2, 2), (32, 2, 1), (96, 1, 3)])
def test_pooling_drops_no_pixel(size: int, pool: int, expected: int) -> None:
    backbone = Backbone("resnet18", kwargs=TINY, pool=pool).eval()
    images = torch.randn(1, 3, size, size)
    pooled = backbone(images)
    assert pooled.shape[2:] == (expected, expected)
    unpooled = backbone.network(images)[-1]
    corner = unpooled[..., (expected - 1) * pool :, (expected - 1) * pool :].mean((2, 3))
    torch.testing.assert_close(pooled[..., -1, -1], corner)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("resnet18", TINY), ("satl_tiny", {"widths": [4, 4]}), ("vit_tiny_patch16_224", {"depth": 1})],
)
def test_saved_weights_are_loaded_again(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    saved = Backbone(name, kwargs=settings)
    saved.save_weights(tmp_path / "weights.safetensors")
    loaded = Backbone(name, kwargs=settings, weights=tmp_path / "weights.safetensors")
    for (key, one), other in zip(saved.state_dict().items(), loaded.state_dict().values(), strict=True):
        assert torch.equal(one, other), key


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_weight_files_in_half_precision_with_a_classifier(suffix: str, tmp_path: Path) -> None:
    source = timm.create_model("resnet18", num_classes=7, **TINY)
    stored = {k: v.half() if v.ndim == 4 else v for k, v in source.state_dict().items()}
    stored = {k: v for k, v in stored.items() if not k.endswith("num_batches_tracked")}
    path = tmp_path / f"weights{suffix}"
    if suffix == ".pth":
        torch.save({"state_dict": stored}, path)
    else:
        save_file(stored, path)
    backbone = Backbone("resnet18", kwargs=TINY, weights=path)
    loaded = backbone.network.state_dict()
    assert loaded["layer4.0.conv1.weight"].dtype == torch.float32
    assert torch.equal(loaded["layer4.0.conv1.weight"], stored["layer4.0.conv1.weight"].float())
    assert torch.equal(loaded["layer2.0.bn1.weight"], stored["layer2.0.bn1.weight"])


def test_first_version_resnets_halve_the_map_in_the_1x1_convolution() -> None:
    plain = Backbone("resnet50", kwargs=BOTTLENECK, pool=1).eval()
    first_version = Backbone("resnet50", kwargs=BOTTLENECK, pool=1, stride_in_1x1=True).eval()
    for layer in ("layer2", "layer3", "layer4"):
        block = getattr(first_version.network, layer)[0]
        assert (block.conv1.stride, block.conv2.stride) == ((2, 2), (1, 1))
    assert first_version.network.layer1[0].conv1.stride == (1, 1)
    first_version.network.load_state_dict(plain.network.state_dict())
    images = torch.randn(1, 3, 64, 64)
    assert plain(images).shape == first_version(images).shape
    assert not torch.allclose(plain(images), first_version(images))


def mistakes(folder: Path) -> list[tuple[dict[str, Any], str]]:
    other = timm.create_model("resnet18", layers=(1, 1, 1, 1), channels=(8, 8, 16, 16)).state_dict()
    del other["layer1.0.bn1.weight"]
    other["layer9.0.weight"] = torch.zeros(1)
    torch.save(other, folder / "other.pth")
    (folder / "broken.pth").write_bytes(b"not a file of weights")
    torch.save([1, 2], folder / "list.pth")
    return [
        ({"name": "resnet5O"}, r"'resnet5O' is unknown to timm \(did you mean 'resnet50'\?\)"),
        ({"train_stages": ["layer5"]}, r"'layer5'.*did you mean 'layer\d'.*conv1, bn1, layer1.*or 'all'"),
        ({"train_stages": [4]}, "index 4, but resnet18 has 4 stages: layer1, layer2, layer3, layer4"),
        ({"train_stages": "layer4"}, "'layer4', but must be 'all', 'last' or a list"),
        ({"kwargs": {"colour": 1}}, "cannot build backbone 'resnet18' with kwargs"),
        ({"kwargs": {"features_only": False}}, "kwargs must not hold features_only"),
        ({"name": "test_vit", "kwargs": {"out_indices": 2}}, "kwargs must not hold out_indices"),
        ({"pool": 0}, "pool is 0"),
        ({"stride_in_1x1": True}, "needs a ResNet with bottleneck blocks"),
        ({"weights": folder / "absent.pth"}, r"absent\.pth do not exist"),
        ({"weights": folder / "broken.pth"}, r"broken\.pth cannot be read"),
        ({"weights": folder / "list.pth"}, r"list\.pth hold no dictionary of tensors"),
        (
            {"weights": folder / "other.pth"},
            r"other\.pth do not fit resnet18 \(missing: layer1\.0\.bn1\.weight; "
            r"not in the model: layer9\.0\.weight; "
            r"shape: layer4\.0\.conv1\.weight \(16, 16, 3, 3\) instead of \(24, 16, 3, 3\), .* \d+ more\)",
        ),
        ({"weights": folder / "other.pth", "pretrained": True}, "both pretrained: true and weights"),
    ]


@pytest.mark.parametrize("case", range(14))
def test_mistakes_are_explained_in_one_sentence(case: int, tmp_path: Path) -> None:
    arguments, message = mistakes(tmp_path)[case]
    with pytest.raises(ConfigError, match=message) as raised:
        Backbone(**{"name": "resnet18", "kwargs": TINY, **arguments})
    assert "\n" not in str(raised.value)


def test_weights_that_cannot_be_fetched_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr("timm.create_model", offline)
    with pytest.raises(
        ConfigError, match=r"weights of backbone 'resnet18' cannot be fetched .*model\.weights"
    ):
        Backbone("resnet18", pretrained=True)
    with pytest.raises(ConnectionError):
        Backbone("resnet18")

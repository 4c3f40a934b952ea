"""The folded trunk against the network that it stands for."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

from satl.models import Backbone, frozen_stages
from satl.models.frozen_stages import FrozenStages, foldable_stages

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BASIC: dict[str, Any] = {"layers": (1, 2, 1, 1), "channels": (8, 8, 16, 16), "zero_init_last": False}
GROUPS: dict[str, Any] = BASIC | {"cardinality": 2, "base_width": 32, "channels": (16, 16, 32, 32)}
NETWORKS: list[tuple[str, dict[str, Any], bool]] = [
    ("resnet18", BASIC, False),
    ("resnet50", BASIC, False),
    ("resnet50", BASIC, True),
    ("resnet50", BASIC | {"output_stride": 8}, False),
    ("resnext50_32x4d", GROUPS, False),
    ("resnext50_32x4d", GROUPS, True),
]


def moved_statistics(module: nn.Module) -> None:
    """Give every BatchNorm statistics and weights of its own, as a trained one has."""
    generator = torch.Generator().manual_seed(1)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            for tensor in (part.running_mean, part.bias):
                tensor.data.copy_(torch.randn(tensor.shape, generator=generator) * 0.2)
            for tensor in (part.running_var, part.weight):
                tensor.data.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)


def make(name: str = "resnet50", kwargs: dict[str, Any] | None = None, **options: Any) -> Backbone:
    torch.manual_seed(0)
    options = {"pool": 1, "train_stages": ["layer4"], **options}
    backbone = Backbone(name, kwargs=BASIC if kwargs is None else kwargs, **options)
    moved_statistics(backbone)
    return backbone.train()


def prefix(backbone: Backbone, names: tuple[str, ...], images: Tensor) -> Tensor:
    for name, part in backbone.network.named_children():
        if name in names:
            images = part(images)
    return images


@pytest.mark.parametrize(("name", "kwargs", "stride_in_1x1"), NETWORKS)
@pytest.mark.parametrize("size", [(64, 64), (66, 96), (65, 64)])
def test_the_folded_trunk_is_the_network(
    name: str, kwargs: dict[str, Any], stride_in_1x1: bool, size: tuple[int, int]
) -> None:
    backbone = make(name, kwargs, stride_in_1x1=stride_in_1x1).double()
    names = foldable_stages(backbone.network, {"layer4"})
    assert names[-1] == "layer3"
    images = torch.randn(2, 3, *size, dtype=torch.float64)
    found = FrozenStages(backbone.network, names, torch.float64)(images)
    expected = prefix(backbone, names, images)
    assert float(expected.abs().mean()) > 1e-3
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert found.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("images", [1, 4, 5])
def test_a_batch_in_parts_is_the_batch(images: int, monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = make("resnet50").double()
    trunk = FrozenStages(
        backbone.network, foldable_stages(backbone.network, {"layer3", "layer4"}), torch.float64
    )
    batch = torch.randn(images, 3, 64, 64, dtype=torch.float64)
    whole = trunk(batch)
    monkeypatch.setattr(frozen_stages, "LARGEST_MAP", 2 * 64 * 64 * 16)
    seen: list[int] = []
    large = trunk._large
    monkeypatch.setattr(trunk, "_large", lambda part: seen.append(len(part)) or large(part))
    torch.testing.assert_close(trunk(batch), whole, rtol=1e-12, atol=1e-12)
    assert sum(seen) == images
    assert max(seen) <= 2


def test_under_autocast_the_map_and_the_gradients_differ_by_rounding_alone() -> None:
    plain = make().to(DEVICE)
    folded, exact = copy.deepcopy(plain), copy.deepcopy(plain)
    assert folded.fold_frozen()
    assert list(folded.state_dict()) == list(plain.state_dict())
    images = torch.randn(4, 3, 64, 64, device=DEVICE)
    maps = []
    for backbone, half in ((exact, False), (plain, True), (folded, True)):
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=half):
            maps.append(backbone(images))
        maps[-1].float().square().mean().backward()
    gradients = [backbone.network.layer4[0].conv1.weight.grad for backbone in (exact, plain, folded)]
    for wanted, ordinary, found in (maps, gradients):
        errors = [float((other.detach() - wanted.detach()).norm()) for other in (ordinary, found)]
        assert errors[0] > 0
        assert errors[1] < 2.5 * errors[0]  # as large as bf16 makes it
    assert all(p.grad is None for n, p in folded.named_parameters() if "layer4" not in n)


def test_without_autocast_or_with_a_gradient_for_the_images_the_network_itself_runs() -> None:
    plain = make()
    folded = copy.deepcopy(plain)
    folded.fold_frozen()
    images = torch.randn(2, 3, 64, 64)
    assert torch.equal(folded(images), plain(images))
    with torch.autocast("cpu", torch.float16):
        assert torch.equal(folded.eval()(images), plain.eval()(images))
    images.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        folded(images).float().sum().backward()
    assert images.grad is not None
    assert float(images.grad.abs().sum()) > 0


def test_a_loaded_state_is_folded_again_in_place_by_a_copy_too() -> None:
    first, other = make(), make()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.3)
    first.fold_frozen()
    images = torch.randn(2, 3, 64, 64)
    holder = copy.deepcopy(nn.ModuleDict({"backbone": first}))
    copied = holder["backbone"]
    assert isinstance(copied, Backbone)
    assert copied.trunk is not None
    before = copied.trunk.get_buffer("weight0").data_ptr()
    holder.load_state_dict({f"backbone.{key}": value for key, value in other.state_dict().items()})
    assert copied.trunk.get_buffer("weight0").data_ptr() == before
    other.fold_frozen()
    with torch.autocast("cpu", torch.bfloat16):
        expected, unchanged = other.eval()(images), first.eval()(images)
        assert torch.equal(copied.eval()(images), expected)
        assert not torch.allclose(unchanged, expected, rtol=0.05)


def test_it_compiles_without_a_graph_break() -> None:
    torch._dynamo.reset()
    backbone = make().to(DEVICE)
    backbone.fold_frozen()
    images = torch.randn(2, 3, 64, 64, device=DEVICE)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        expected = backbone.eval()(images)
        found = torch.compile(backbone, fullgraph=True, dynamic=False, backend="aot_eager")(images)
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("seresnet50", {}),
        ("resnet50d", {}),
        ("resnetblur50", {}),
        ("resnet50_gn", {}),
        ("test_convnext", {}),
        ("test_vit", {}),
        ("satl_tiny", {"widths": (4, 4, 4)}),
    ],
)
def test_other_networks_stay_as_they_are(name: str, kwargs: dict[str, Any]) -> None:
    backbone = Backbone(name, kwargs=kwargs, train_stages=[-1])
    assert not backbone.fold_frozen()
    assert backbone.trunk is None


def test_only_the_parts_before_the_first_trained_one_are_folded() -> None:
    body = timm.create_model("resnet18", features_only=True, out_indices=(-1,))
    stem = ("conv1", "bn1", "act1", "maxpool")
    assert foldable_stages(body, ["layer2", "layer4"]) == (*stem, "layer1")
    assert foldable_stages(body, []) == (*stem, "layer1", "layer2", "layer3", "layer4")
    assert foldable_stages(body, ["bn1"]) == ()
    assert foldable_stages(body, ["layer1"]) == ()
    assert not make(train_stages="all").fold_frozen()

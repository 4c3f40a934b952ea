"""The frozen first stages of a ResNet with fewer operations and the same result.

BatchNorm in eval mode is a scale and a shift per channel: folded into the convolution before it, in float32, it
costs nothing. What is left of a residual block are its convolutions, each with bias, shortcut and ReLU in one
kernel. Weights that nobody trains are converted once, not in every step.

A convolution of three channels leaves most of a matrix unit idle. The stem's 7 x 7 with stride 2 is therefore
computed as a 4 x 4 with stride 1 over blocks of 2 x 2 pixels, with the same products and four times the channels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from satl.models.kernels.convolution import conv_add_relu, conv_relu

LARGEST_MAP = 2**26
"""Numbers in a feature map above which a batch goes through the stages with large maps in parts."""
_BLOCK_CHANNELS = 16
"""Channels of a block of 2 x 2 pixels: 12, filled up to a size that matrix units take."""


class _Convolution(NamedTuple):
    conv: nn.Conv2d
    norm: nn.BatchNorm2d


class _Geometry(NamedTuple):
    stride: int
    padding: int
    dilation: int
    groups: int


class _Block(NamedTuple):
    """The convolutions of a residual block, and the one of its shortcut."""

    chain: tuple[_Convolution, ...]
    shortcut: _Convolution | None

    @property
    def all(self) -> tuple[_Convolution, ...]:
        return self.chain if self.shortcut is None else (*self.chain, self.shortcut)


class FrozenStages(nn.Module):
    """The stem and the first stages of a timm ResNet, for inference only.

    ``forward``: images (B, 3, H, W) -> the map of the last stage of ``names``, channels-last, in ``dtype``.

    Its weights are a folded copy that no checkpoint holds; :meth:`fold` takes them again from the network.

    Args:
        body: the ResNet.
        names: its parts, in order: the stem (``conv1`` to ``maxpool``) and the stages.
        dtype: what to compute in.
    """

    def __init__(self, body: nn.Module, names: tuple[str, ...], dtype: torch.dtype) -> None:
        super().__init__()
        self.names = names
        self.dtype = dtype
        pool = body.get_submodule("maxpool")
        assert isinstance(pool, nn.MaxPool2d)
        self.pool = (pool.kernel_size, pool.stride, pool.padding)
        self.blocks: list[tuple[tuple[_Geometry, ...], _Geometry | None]] = []
        self.begins = [0]  # number of the first convolution of every block
        for chain, shortcut in _blocks(body, names):
            geometries = tuple(_geometry(part.conv) for part in chain)
            self.blocks.append((geometries, None if shortcut is None else _geometry(shortcut.conv)))
            self.begins.append(self.begins[-1] + len(chain) + (shortcut is not None))
        # The stem and two stages; behind them maps are an eighth as wide as the image.
        self.large = 1 + sum(len(list(body.get_submodule(name).children())) for name in names[4:6])
        stem = body.get_submodule("conv1")
        assert isinstance(stem, nn.Conv2d)
        self.by_blocks = (
            stem.kernel_size == (7, 7) and _geometry(stem) == (2, 3, 1, 1) and stem.in_channels == 3
        )
        for number, (weight, bias) in enumerate(_folded(body, names)):
            self.register_buffer(f"weight{number}", weight.to(dtype), persistent=False)
            self.register_buffer(f"bias{number}", bias.to(dtype), persistent=False)
        if self.by_blocks:
            self.register_buffer("stem", _block_weight(self.get_buffer("weight0")), persistent=False)
        self.to(memory_format=torch.channels_last)

    @torch.no_grad()
    def fold(self, body: nn.Module) -> None:
        """Take the weights again, in place, because those of the network have been replaced."""
        for number, (weight, bias) in enumerate(_folded(body, self.names)):
            self.get_buffer(f"weight{number}").copy_(weight)
            self.get_buffer(f"bias{number}").copy_(bias)
        if self.by_blocks:
            self.get_buffer("stem").copy_(_block_weight(self.get_buffer("weight0")))

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) -> feature map."""
        images = images.to(self.dtype, memory_format=torch.channels_last)
        with torch.autocast(images.device.type, enabled=False):
            return self._run(images)

    def _run(self, images: Tensor) -> Tensor:
        largest = images[0, 0].numel() * 16  # of the stem and of the first stage: 64 / 2**2, 256 / 4**2
        parts = -(-images.shape[0] * largest // LARGEST_MAP)
        features = (
            torch.cat([self._large(part) for part in images.chunk(parts)])
            if parts > 1
            else self._large(images)
        )
        return self._residual(features, self.large, len(self.blocks))

    def _large(self, images: Tensor) -> Tensor:
        """The stem and the stages with large maps."""
        (stem, *_), _ = self.blocks[0]
        weight, bias = self._weights(0)
        if self.by_blocks and images.shape[2] % 2 == 0 and images.shape[3] % 2 == 0:
            features = conv_relu(_pixel_blocks(images), self.get_buffer("stem"), bias, 1, 0, 1, 1)
        else:
            features = conv_relu(images, weight, bias, *stem)
        return self._residual(F.max_pool2d(features, *self.pool), 1, self.large)

    def _residual(self, features: Tensor, first: int, end: int) -> Tensor:
        used = self.begins[first]
        for chain, shortcut in self.blocks[first:end]:
            inner = features
            for geometry in chain[:-1]:
                inner = conv_relu(inner, *self._weights(used), *geometry)
                used += 1
            last = self._weights(used)
            used += 1
            if shortcut is not None:
                # Without its bias, which is part of that of the chain.
                features = F.conv2d(features, self._weights(used)[0], None, *shortcut)
                used += 1
            features = conv_add_relu(inner, *last, features, *chain[-1])
        return features

    def _weights(self, number: int) -> tuple[Tensor, Tensor]:
        return self.get_buffer(f"weight{number}"), self.get_buffer(f"bias{number}")


def _pixel_blocks(images: Tensor) -> Tensor:
    """Images (B, 3, H, W) -> blocks of 2 x 2 pixels (B, 16, H / 2 + 3, W / 2 + 3), with the border that a stem sees."""
    blocks = F.pixel_unshuffle(images, 2)
    blocks = F.pad(blocks, (2, 1, 2, 1, 0, _BLOCK_CHANNELS - blocks.shape[1]))
    return blocks.contiguous(memory_format=torch.channels_last)


def _block_weight(weight: Tensor) -> Tensor:
    """Weight (O, 3, 7, 7) of a stem -> the same (O, 16, 4, 4) for blocks of pixels."""
    blocks = F.pixel_unshuffle(F.pad(weight, (1, 0, 1, 0)), 2)
    return F.pad(blocks, (0, 0, 0, 0, 0, _BLOCK_CHANNELS - blocks.shape[1]))


def foldable_stages(body: nn.Module, trained: Collection[str]) -> tuple[str, ...]:
    """Return the first parts of a network that a :class:`FrozenStages` can replace: () unless it is a ResNet.

    >>> import timm
    >>> body = timm.create_model("resnet18", features_only=True)
    >>> foldable_stages(body, trained=["layer3", "layer4"])
    ('conv1', 'bn1', 'act1', 'maxpool', 'layer1', 'layer2')
    >>> foldable_stages(body, trained=["conv1"]), foldable_stages(timm.create_model("test_vit"), trained=[])
    ((), ())
    """
    children = dict(body.named_children())
    stem = ("conv1", "bn1", "act1", "maxpool")
    if tuple(children)[:4] != stem or not {"conv1", "bn1"}.isdisjoint(trained):
        return ()
    if not (
        _is_convolution(children["conv1"], children["bn1"])
        and isinstance(children["act1"], nn.ReLU)
        and type(children["maxpool"]) is nn.MaxPool2d
        and children["maxpool"].dilation == 1
        and not children["maxpool"].ceil_mode
    ):
        return ()
    names: list[str] = [*stem]
    for name in tuple(children)[4:]:
        stage = children[name]
        if name in trained or not isinstance(stage, nn.Sequential) or not all(map(_is_block, stage)):
            break
        names.append(name)
    return tuple(names) if len(names) > len(stem) else ()


def _is_convolution(conv: object, norm: object) -> bool:
    return (
        type(conv) is nn.Conv2d
        and conv.bias is None
        and conv.padding_mode == "zeros"
        and all(
            isinstance(side, tuple) and side[0] == side[1]
            for side in (conv.stride, conv.padding, conv.dilation)
        )
        and type(norm) is nn.BatchNorm2d
        and norm.affine
        and norm.running_var is not None
    )


def _is_block(block: nn.Module) -> bool:
    """Whether a block is a plain residual one: convolution, BatchNorm and ReLU in turn, a shortcut, nothing else."""
    from timm.models.resnet import BasicBlock, Bottleneck

    if type(block) not in (BasicBlock, Bottleneck):
        return False
    extras = (getattr(block, name, None) for name in ("se", "drop_path", "drop_block", "aa"))
    if not all(extra is None or isinstance(extra, nn.Identity) for extra in extras):
        return False
    numbers = range(1, _length(block) + 1)
    shortcut = block.downsample
    if shortcut is not None and not (isinstance(shortcut, nn.Sequential) and len(shortcut) == 2):
        return False
    return (
        all(_is_convolution(getattr(block, f"conv{n}"), getattr(block, f"bn{n}")) for n in numbers)
        and all(isinstance(getattr(block, f"act{n}"), nn.ReLU) for n in numbers)
        and (shortcut is None or _is_convolution(*shortcut))
    )


def _length(block: nn.Module) -> int:
    return 3 if hasattr(block, "conv3") else 2


def _blocks(body: nn.Module, names: tuple[str, ...]) -> Iterator[_Block]:
    """Every block in order; the stem is the first."""
    yield _Block((_pair(body, "conv1", "bn1"),), None)
    for name in names[4:]:
        for block in body.get_submodule(name).children():
            chain = tuple(_pair(block, f"conv{n}", f"bn{n}") for n in range(1, _length(block) + 1))
            has_shortcut = isinstance(getattr(block, "downsample", None), nn.Module)
            yield _Block(chain, _pair(block, "downsample.0", "downsample.1") if has_shortcut else None)


def _pair(parent: nn.Module, conv: str, norm: str) -> _Convolution:
    first, second = parent.get_submodule(conv), parent.get_submodule(norm)
    assert isinstance(first, nn.Conv2d)
    assert isinstance(second, nn.BatchNorm2d)
    return _Convolution(first, second)


def _geometry(conv: nn.Conv2d) -> _Geometry:
    return _Geometry(int(conv.stride[0]), int(conv.padding[0]), int(conv.dilation[0]), conv.groups)


@torch.no_grad()
def _folded(body: nn.Module, names: tuple[str, ...]) -> Iterator[tuple[Tensor, Tensor]]:
    """Weight and bias of every convolution; the bias of a shortcut is added to that of the block's last one."""
    for block in _blocks(body, names):
        parts = [_fold(*part) for part in block.all]
        if block.shortcut is not None:
            weight, bias = parts[-2]
            parts[-2] = weight, bias + parts[-1][1]
        yield from parts


def _fold(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    assert norm.running_var is not None
    assert norm.running_mean is not None
    scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
    return conv.weight * scale[:, None, None, None], norm.bias - norm.running_mean * scale

"""``satl_tiny``: a small convolutional network for small images, registered with timm.

The ResNets of timm divide the side of an image by four before their first stage, which leaves little of a
picture of 64 px. This one halves the side once a stage, and trains from scratch on a CPU in a minute.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from torch import Tensor, nn


def _block(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class TinyNet(nn.Module):
    """Stages of 3x3 convolutions, each halving the side: (B, 3, H, W) -> (B, ``widths[-1]``, H / 2^S, W / 2^S).

    Args:
        widths: channels of the S stages; the first stage has one convolution, the others two.
        num_classes: outputs of the classifier that timm expects; the feature map does not need it.
        in_chans: channels of the images.
    """

    def __init__(
        self, widths: Sequence[int] = (24, 64, 128), num_classes: int = 1000, in_chans: int = 3
    ) -> None:
        super().__init__()
        self.stages = nn.Sequential(_block(in_chans, widths[0], 2))
        for inputs, outputs in itertools.pairwise(widths):
            self.stages.append(nn.Sequential(_block(inputs, outputs, 2), _block(outputs, outputs, 1)))
        self.head = nn.Linear(widths[-1], num_classes)
        self.num_features = widths[-1]
        self.feature_info = [
            {"num_chs": width, "reduction": 2 ** (number + 1), "module": f"stages.{number}"}
            for number, width in enumerate(widths)
        ]

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) -> class logits (B, num_classes)."""
        logits: Tensor = self.head(self.stages(images).amax(dim=(2, 3)))
        return logits


default_cfgs = generate_default_cfgs(  # timm looks for this name
    {"satl_tiny.untrained": {"num_classes": 1000, "input_size": (3, 64, 64), "classifier": "head"}}
)


@register_model
def satl_tiny(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """Build a :class:`TinyNet`; there are no pretrained weights."""
    model: nn.Module = build_model_with_cfg(
        TinyNet,
        "satl_tiny",
        pretrained,
        feature_cfg={"flatten_sequential": True},
        **kwargs,
    )
    return model

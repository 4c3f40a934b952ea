"""``satl::conv_relu`` and ``satl::conv_add_relu``: a convolution with what follows it in one kernel, no gradient.

cuDNN adds bias and shortcut and clips at zero before it writes its result once; a compiler leaves a convolution
and what follows it apart. Elsewhere than on CUDA they are the formula.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


@torch.library.custom_op("satl::conv_relu", mutates_args=())
def conv_relu(
    images: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: int, dilation: int, groups: int
) -> Tensor:
    """Return relu(conv(images) + bias), channels-last."""
    if images.is_cuda:
        sides = ([stride] * 2, [padding] * 2, [dilation] * 2)
        return torch.cudnn_convolution_relu(images, weight, bias, *sides, groups)
    result = F.conv2d(images, weight, bias, stride, padding, dilation, groups).relu_()
    return result.contiguous(memory_format=torch.channels_last)


@conv_relu.register_fake
def _conv_relu_shape(
    images: Tensor, weight: Tensor, bias: Tensor, stride: int, padding: int, dilation: int, groups: int
) -> Tensor:
    result = F.conv2d(images, weight, bias, stride, padding, dilation, groups)
    return torch.empty_like(result, memory_format=torch.channels_last)


@torch.library.custom_op("satl::conv_add_relu", mutates_args=())
def conv_add_relu(
    images: Tensor,
    weight: Tensor,
    bias: Tensor,
    shortcut: Tensor,
    stride: int,
    padding: int,
    dilation: int,
    groups: int,
) -> Tensor:
    """Return relu(conv(images) + bias + shortcut), channels-last."""
    if images.is_cuda:
        sides = ([stride] * 2, [padding] * 2, [dilation] * 2)
        return torch.cudnn_convolution_add_relu(images, weight, shortcut, 1.0, bias, *sides, groups)
    result = F.conv2d(images, weight, bias, stride, padding, dilation, groups).add_(shortcut).relu_()
    return result.contiguous(memory_format=torch.channels_last)


@conv_add_relu.register_fake
def _conv_add_relu_shape(
    images: Tensor,
    weight: Tensor,
    bias: Tensor,
    shortcut: Tensor,
    stride: int,
    padding: int,
    dilation: int,
    groups: int,
) -> Tensor:
    return torch.empty_like(shortcut, memory_format=torch.channels_last)

"""BatchNorm over the images of all processes, so that their number does not change what is trained."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from satl.distributed import process_rank, sum_across, world_size
from satl.errors import ConfigError


class SharedBatchNorm(_BatchNorm):
    """BatchNorm whose batch is that of all processes: (B, C, ...) -> (B, C, ...).

    In training mode, mean and variance are those of the images of all processes together, each of which must hold
    as many; gradients flow through them to all processes, and the running statistics are the same everywhere. Unlike
    torch's own ``SyncBatchNorm``, it works on any device. In eval mode it is an ordinary BatchNorm.

    Parameters and buffers are those of the layer that it replaces (see :func:`convert_to_shared_batch_norm`), which
    may be timm's BatchNorm with an activation.
    """

    def __init__(self, layer: _BatchNorm) -> None:
        super().__init__(
            layer.num_features, layer.eps, layer.momentum, affine=False, track_running_stats=False
        )
        self.affine, self.track_running_stats = layer.affine, layer.track_running_stats
        for name, parameter in layer._parameters.items():
            self.register_parameter(name, parameter)
        for name, buffer in layer._buffers.items():
            self.register_buffer(name, buffer)
        self.drop: nn.Module = getattr(layer, "drop", nn.Identity())
        self.act: nn.Module = getattr(layer, "act", nn.Identity())
        self.train(layer.training)

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, C, ...) -> the same shape and type, normalised."""
        if self.training or self.running_mean is None:
            result = self._normalise(features)
        else:
            mean, variance = self.running_mean, self.running_var
            result = F.batch_norm(features, mean, variance, self.weight, self.bias, eps=self.eps)
        activated: Tensor = self.act(self.drop(result))
        return activated

    def _normalise(self, features: Tensor) -> Tensor:
        with torch.autocast(features.device.type, enabled=False):
            values = features.float()
            mean, variance = _shared_statistics(values)
            if self.training and self.running_mean is not None:
                self._update_running_statistics(
                    mean.detach(), variance.detach(), world_size() * values.numel() // values.shape[1]
                )
            shape = (1, -1, *[1] * (values.ndim - 2))
            # Centred before it is scaled: of a gradient that is a small difference of large sums nothing is lost.
            centred, scale = values - mean.view(shape), torch.rsqrt(variance + self.eps)
            if self.weight is not None:
                scale = scale * self.weight
            result = centred * scale.view(shape)
            if self.bias is not None:
                result = result + self.bias.view(shape)
            return result.to(features.dtype)

    @torch.no_grad()
    def _update_running_statistics(self, mean: Tensor, variance: Tensor, count: int) -> None:
        """Move the running statistics towards those of a batch of ``count`` values a channel."""
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        momentum = 1.0 / self.num_batches_tracked if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        unbiased = variance * (count / max(count - 1, 1))
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), momentum)

    def _check_input_dim(self, input: Tensor) -> None:
        """Any number of dimensions will do."""


def convert_to_shared_batch_norm(module: nn.Module) -> nn.Module:
    """Replace every BatchNorm of a module that is in training mode by a :class:`SharedBatchNorm`; return the module.

    Layers are replaced in place and keep their parameters, buffers and names in a state dict. Those in eval mode are
    frozen and stay as they are. With one process nothing is replaced.

    Raises:
        ConfigError: a layer is a BatchNorm of a kind that is not known here.
    """
    if world_size() == 1:
        return module
    for name, child in module.named_children():
        if not isinstance(child, _BatchNorm):
            convert_to_shared_batch_norm(child)
        elif child.training and not isinstance(child, SharedBatchNorm | nn.SyncBatchNorm):
            _check_kind(child)
            setattr(module, name, SharedBatchNorm(child))
    return module


def _check_kind(layer: _BatchNorm) -> None:
    from timm.layers.norm_act import BatchNormAct2d

    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, BatchNormAct2d)
    if type(layer) not in kinds:
        raise ConfigError(
            f"model.backbone has a layer {type(layer).__name__}, whose statistics cannot be shared among processes; "
            "train with one process, freeze its stage with model.train_stages, or choose another backbone."
        )


def _shared_statistics(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and biased variance (C,) of (B, C, ...) over all processes.

    Each process sends its own two, so that no digits are lost in differences of large sums.
    """
    dims = [dim for dim in range(values.ndim) if dim != 1]
    variance, mean = torch.var_mean(values, dim=dims, correction=0)
    rank, processes = process_rank(), world_size()
    own = torch.stack([mean, variance]).unsqueeze(0)
    everyone = sum_across(F.pad(own, (0, 0, 0, 0, rank, processes - rank - 1)))  # (processes, 2, C)
    means, variances = everyone.unbind(1)
    return means.mean(0), variances.mean(0) + means.var(0, correction=0)

"""Optimiser and learning-rate schedule from the configuration."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from satl.training.config import TrainingConfig


def make_optimiser(learner: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """Build the optimiser over all trained parameters, the backbone's in a group of their own.

    A module that says it is ``undecayed`` has its own parameters in a further group, without weight decay.
    """
    backbone: list[nn.Parameter] = []
    head: list[nn.Parameter] = []
    undecayed: list[nn.Parameter] = []
    spared = {
        parameter
        for module in learner.modules()
        if getattr(module, "undecayed", False)
        for parameter in module.parameters(recurse=False)
    }
    for name, parameter in learner.named_parameters():
        if parameter in spared:
            undecayed.append(parameter)
        elif parameter.requires_grad:
            (backbone if ".backbone." in f".{name}" else head).append(parameter)
    head_rate = config.head_lr or config.lr
    rates = ((backbone, config.lr), (head, head_rate), (undecayed, head_rate))
    groups: list[dict[str, Any]] = [
        {"params": parameters, "lr": rate} for parameters, rate in rates if parameters
    ]
    if undecayed:
        groups[-1]["weight_decay"] = 0.0
    if config.optimiser == "sgd":
        return torch.optim.SGD(
            groups, momentum=config.momentum, weight_decay=config.weight_decay, foreach=True
        )
    kind = torch.optim.Adam if config.optimiser == "adam" else torch.optim.AdamW
    fused = next(learner.parameters()).is_cuda
    return kind(
        groups,
        weight_decay=config.weight_decay,
        fused=True if fused else None,
        foreach=None if fused else True,
    )


def rate_factor(step: int, steps_per_epoch: int, config: TrainingConfig) -> float:
    """Return what the learning rate is multiplied by at a step of the whole run.

    >>> config = TrainingConfig(epochs=20)
    >>> [round(rate_factor(epoch * 100, 100, config), 3) for epoch in (0, 9, 10, 19)]
    [1.0, 1.0, 0.1, 0.1]
    """
    epoch = step / steps_per_epoch
    if epoch < config.warmup_epochs:
        return (step + 1) / (config.warmup_epochs * steps_per_epoch + 1)
    if config.schedule == "step":
        return 0.1 ** (step // steps_per_epoch // config.step_epochs)
    if config.schedule == "cosine":
        total = max((config.epochs - config.warmup_epochs) * steps_per_epoch, 1)
        done = (step - config.warmup_epochs * steps_per_epoch) / total
        return 0.5 * (1.0 + math.cos(math.pi * min(done, 1.0)))
    return 1.0


def make_schedule(optimiser: torch.optim.Optimizer, steps_per_epoch: int, config: TrainingConfig) -> LambdaLR:
    """Build the schedule, which advances once a step."""
    return LambdaLR(optimiser, lambda step: rate_factor(step, steps_per_epoch, config))

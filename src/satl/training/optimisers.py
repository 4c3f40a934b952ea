"""Optimiser and learning-rate schedule from the configuration."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.optim.lr_scheduler import LambdaLR

from satl.runs.training_config import TrainingConfig
from satl.training.sharding import like

DECOUPLED = "decoupled_weight_decay"
"""The entry of a group of Adam and AdamW that says whether weight decay acts on the weights apart from the gradient."""


def make_optimiser(
    learner: nn.Module, config: TrainingConfig, capturable: bool = False
) -> torch.optim.Optimizer:
    """Build the optimiser over all trained parameters, the backbone's and sharded ones in groups of their own.

    A module that says it is ``undecayed`` has its own parameters in a further group, without weight decay. So have
    thresholds: they move from stage 2 on, and SGD in one kernel wants a group to begin as a whole. Modules that have an
    ``own_rate`` come first, in a group each; the last group always has the rate of the head.

    Weight decay of thresholds is part of their gradient with ``adamw`` too: it is what brings a learned threshold down
    from 1, where nothing else has a gradient, and apart from the gradient it is far too weak for that.

    Args:
        learner: whose parameters to move.
        config: which optimiser, rates and decay.
        capturable: for a step that is replayed as a CUDA graph: rates are then tensors on the device.
    """
    backbone: list[nn.Parameter] = []
    head: list[nn.Parameter] = []
    sharded: list[nn.Parameter] = []
    thresholds: list[nn.Parameter] = []
    undecayed: list[nn.Parameter] = []
    spared = {
        parameter
        for module in learner.modules()
        if getattr(module, "undecayed", False)
        for parameter in module.parameters(recurse=False)
    }
    groups: list[dict[str, Any]] = []
    coupled = {DECOUPLED: False} if config.optimiser == "adamw" else {}
    for module in learner.modules():
        if (own_rate := getattr(module, "own_rate", None)) is not None:
            own = list(module.parameters(recurse=False))
            decay = {"weight_decay": 0.0} if spared.issuperset(own) else {}
            groups.append({"params": own, "lr": own_rate, **coupled, **decay})
    placed = {parameter for group in groups for parameter in group["params"]}
    for name, parameter in learner.named_parameters():
        if parameter in placed:
            continue
        if parameter in spared:
            undecayed.append(parameter)
        elif name.startswith("rules."):
            thresholds.append(parameter)
        elif parameter.requires_grad:
            others = sharded if isinstance(parameter, DTensor) else head
            (backbone if ".backbone." in f".{name}" else others).append(parameter)
    head_rate = config.head_lr or config.lr
    rest = (head, sharded, thresholds, undecayed)
    rates = ((backbone, config.lr), *((parameters, head_rate) for parameters in rest))
    groups += [
        {"params": parameters, "lr": rate, **(coupled if parameters is thresholds else {})}
        for parameters, rate in rates
        if parameters
    ]
    if undecayed:
        groups[-1]["weight_decay"] = 0.0
    device = next(learner.parameters()).device
    if capturable:
        for group in groups:
            group["lr"] = torch.tensor(group["lr"], device=device)
    # One kernel for all weights where there is one; it also reads rates from the device.
    # Steps of scaled gradients need it: elsewhere the host asks whether they have overflowed.
    fused = device.type == "cuda" or config.precision == "fp16"
    how: dict[str, Any] = {"fused": True} if fused else {"foreach": True}
    if config.optimiser == "sgd":
        return torch.optim.SGD(
            groups, lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay, **how
        )
    kind = torch.optim.Adam if config.optimiser == "adam" else torch.optim.AdamW
    return kind(groups, weight_decay=config.weight_decay, capturable=capturable, **how)


def load_optimiser(optimiser: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load a state; rates that are tensors stay the same tensors, which a schedule or a graph may hold."""
    rates = [group["lr"] for group in optimiser.param_groups]
    optimiser.load_state_dict(state)
    for group, saved in zip(optimiser.param_groups, state["param_groups"], strict=True):
        if DECOUPLED in saved:  # AdamW sets it in every group that it loads
            group[DECOUPLED] = saved[DECOUPLED]
    for parameter, values in optimiser.state.items():
        for name, value in values.items():
            values[name] = like(value, parameter) if isinstance(value, torch.Tensor) else value
    for group, rate in zip(optimiser.param_groups, rates, strict=True):
        if isinstance(rate, torch.Tensor):
            group["lr"] = rate.fill_(float(group["lr"]))


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

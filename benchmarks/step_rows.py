"""The rows of ``benchmarks/step.py``: what each of them runs and how it is measured.

A row is a step that can be repeated: a function without arguments that does one whole training step on a batch
which is already on the device. ``ROWS`` names them; ``benchmarks/step.py`` starts a process for each.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from satl.runs.config import RunConfig

Step = Callable[[], object]
GIGABYTE = 1e9
KNOWN, POSITIVE = 0.2, 0.04
"""Share of known cells, and of positives among them (MS-COCO has 2.9 of 80)."""
TINY_BACKBONE = ("resnet18", {"layers": [1, 1, 1, 1], "channels": [8, 8, 16, 16]})
TINY_SIZES = {"feature_dim": 16, "attention_dim": 8, "pair_dim": 8, "pair_hidden": 8, "embedding_dim": 8}


@dataclass(frozen=True)
class Shape:
    """What a row is measured with."""

    device: str = "cuda"
    batch: int = 32
    classes: int = 80
    size: int = 448
    backbone: str = "resnet101"
    method: str = "sst+satl"
    pair_head: str = "full"
    augment: bool = False
    """Start from uint8 images and augment them within the step."""
    tiny: bool = False
    """Small layers everywhere, for a test on a CPU."""
    settings: tuple[str, ...] = field(default=())
    """Further ``section.key=value`` settings of satl's rows."""

    @property
    def network(self) -> tuple[str, dict[str, Any]]:
        """Name and arguments of the timm model."""
        return TINY_BACKBONE if self.tiny else (self.backbone, {})

    @property
    def stored(self) -> int:
        """Side of the images before augmentation."""
        return self.size * 8 // 7

    def labels(self) -> Tensor:
        """Labels (B, C) of the batch, int8 on the device."""
        return torch.from_numpy(self.training_labels()[: self.batch]).to(self.device)

    def training_labels(self) -> np.ndarray:
        """Labels (N, C) of a training set, for the graph; its first rows are the batch."""
        random = np.random.default_rng(0)
        shape = (max(4 * self.batch, 256), self.classes)
        truth = np.where(random.random(shape) < POSITIVE, 1, -1)
        return np.where(random.random(shape) < KNOWN, truth, 0).astype(np.int8)

    def pixels(self) -> Tensor:
        """Normalised images (B, 3, size, size) on the device."""
        generator = torch.Generator().manual_seed(0)
        return torch.randn(self.batch, 3, self.size, self.size, generator=generator).to(self.device)

    def images(self) -> Tensor:
        """uint8 images (B, 3, stored, stored) on the device."""
        generator = torch.Generator().manual_seed(0)
        shape = (self.batch, 3, self.stored, self.stored)
        images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
        return images.to(self.device, memory_format=torch.channels_last)  # as loaders hand them over


def plain(shape: Shape) -> Step:
    """The published step, re-implemented plainly."""
    from plain_sst import PlainBackbone, PlainSST, plain_optimiser, plain_step
    from satl.models.functional import cooccurrence_graph

    torch.manual_seed(0)
    name, kwargs = shape.network
    sizes = {key: value for key, value in TINY_SIZES.items() if shape.tiny and key != "embedding_dim"}
    graph = cooccurrence_graph(shape.training_labels())
    embeddings = torch.randn(shape.classes, 8 if shape.tiny else 300)
    model = PlainSST(shape.classes, PlainBackbone(name, kwargs), graph, embeddings, **sizes)
    model.to(shape.device).train()
    optimiser = plain_optimiser(model)
    images, labels = shape.pixels(), shape.labels()
    # Random weights reach no threshold of the schedule; 0 fills cells, which costs what any other value costs.
    return lambda: plain_step(model, optimiser, images, labels, stage=2, threshold=0.0)


def floor(shape: Shape, graph: bool = False) -> Step:
    """The backbone alone: forward, backward of its last stage, fused Adam, in bf16, channels-last, compiled."""
    from satl.models import Backbone

    torch.manual_seed(0)
    name, kwargs = shape.network
    backbone = Backbone(name, kwargs=kwargs, train_stages=["layer4"]).to(shape.device).train()
    backbone.to(memory_format=torch.channels_last)
    trained = [parameter for parameter in backbone.parameters() if parameter.requires_grad]
    optimiser = torch.optim.Adam(trained, lr=1e-5, weight_decay=5e-4, fused=True, capturable=graph)
    images = shape.pixels().to(torch.bfloat16, memory_format=torch.channels_last)

    @torch.compile(fullgraph=True, dynamic=False)
    def loss_of(images: Tensor) -> Tensor:
        return backbone(images).float().square().mean()

    def step() -> None:
        with torch.autocast(shape.device, torch.bfloat16):
            loss = loss_of(images)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return captured(step) if graph else step


def captured(step: Step, warmups: int = 3) -> Step:
    """Record a step as a CUDA graph; the result replays it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warmups):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.reset_peak_memory_stats()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


@dataclass(frozen=True)
class Row:
    """A kind of step."""

    title: str
    build: Callable[[Shape], Step]
    graph: bool = False
    """Whether it replays a CUDA graph."""
    by_classes: bool = True
    """Whether it depends on the number of classes."""


def measure(step: Step, device: str, warmups: int, steps: int, graph: bool = False) -> dict[str, float]:
    """Time a step after some that do not count.

    The peak of memory is that of the steps that count. A step that replays a CUDA graph allocates nothing any
    more: its peak is that of recording it, which holds at once what every replay does.

    Returns:
        ``ms``: median of single steps, each begun on an idle device; ``ms_in_a_row``: mean of as many steps one
        after the other; with CUDA also the peak of ``allocated_gb`` and ``reserved_gb``, weights and state of the
        optimiser included.
    """
    if device != "cuda":
        for _ in range(warmups):
            step()
        single = [_seconds(step) for _ in range(steps)]
        return {"ms": 1e3 * statistics.median(single), "ms_in_a_row": 1e3 * statistics.mean(single)}
    for _ in range(warmups):
        step()
    torch.cuda.synchronize()
    if not graph:
        torch.cuda.reset_peak_memory_stats()
    single = [_synchronised(step, device) for _ in range(steps)]
    in_a_row = _seconds(lambda: [step() for _ in range(steps)] and torch.cuda.synchronize())
    return {
        "ms": 1e3 * statistics.median(single),
        "ms_in_a_row": 1e3 * in_a_row / steps,
        "allocated_gb": torch.cuda.max_memory_allocated() / GIGABYTE,
        "reserved_gb": torch.cuda.max_memory_reserved() / GIGABYTE,
    }


def alternate(steps: Sequence[Step], device: str, warmups: int, rounds: int) -> list[list[float]]:
    """Milliseconds of several steps taken in turn, A B A B, so that a busy machine slows all alike."""
    for step in steps:
        for _ in range(warmups):
            step()
    times: list[list[float]] = [[] for _ in steps]
    for turn in range(rounds):
        # Every other round backwards: none of them is always the one after a pause.
        order = range(len(steps)) if turn % 2 == 0 else reversed(range(len(steps)))
        for number in order:
            times[number].append(1e3 * _synchronised(steps[number], device))
    return times


def _synchronised(step: Step, device: str) -> float:
    if device != "cuda":
        return _seconds(step)
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    step()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def product_config(shape: Shape, *settings: str, data: dict[str, Any] | None = None) -> RunConfig:
    """The configuration of a run of satl with these shapes; without ``data`` nothing can be read or rendered."""
    from satl.runs.reading import apply_overrides, make_config
    from satl.runs.settling import settled

    name, kwargs = shape.network
    content: dict[str, Any] = {
        "data": {"scenes": {"train": shape.batch}} if data is None else data,
        "images": {"store_size": shape.stored, "size": shape.size},
        "model": {"backbone": name, "backbone_kwargs": kwargs, "pretrained": False},
        "method": {"name": shape.method},
        "training": {"batch_size": shape.batch, "device": "auto" if shape.device == "cuda" else "cpu"},
    }
    if shape.tiny:
        content["model"] |= TINY_SIZES
    if shape.pair_head != "full":
        content["model"]["pair_head"] = shape.pair_head
    return settled(make_config(apply_overrides(content, [*settings, *shape.settings]), "step.py"))


def product(shape: Shape, *settings: str) -> Step:
    """satl's step of stage 2, as its trainer runs it."""
    from satl.methods import StepInputs
    from satl.methods.mixing import draw_shares
    from satl.training.averaging import MovingAverage
    from satl.training.build import build_augment, build_learner, build_step, place_on_device
    from satl.training.cuda_graph import STEPS_BEFORE_CAPTURE
    from satl.training.tally import EpochTally

    torch.manual_seed(0)
    config, device = product_config(shape, *settings), torch.device(shape.device)
    classes = tuple(f"class {number}" for number in range(shape.classes))
    learner = build_learner(config, classes, shape.training_labels())
    learner = place_on_device(learner, device, config.training.precision == "bf16").train()
    for rule in learner.rules.values():
        rule.value.fill_(0.5)  # some pseudo-labels, as after a few epochs
    tally = EpochTally(tuple(learner.generators), shape.classes, device)
    average = MovingAverage(learner.network, 0.995) if learner.method.needs("teacher") else None
    step = build_step(config.training, learner, average=average, tally=tally)
    augment = build_augment(config.images, shape.stored, device, config.training.precision == "bf16")
    generator = torch.Generator(device).manual_seed(0)
    # Pixels in the layout and precision of the product, or the images that they are made of.
    images = shape.images()
    clean = None if average is None else augment(images, generator)
    images = images if shape.augment else augment(images, generator)
    labels, ramp = shape.labels(), torch.ones((), device=device)
    indices = torch.arange(shape.batch, device=device)
    pairs = (shape.classes, shape.batch * (shape.batch - 1) // 2)
    recording = iter([False] * STEPS_BEFORE_CAPTURE + [config.training.cuda_graphs])

    def run() -> None:
        if next(
            recording, False
        ):  # the steps before it tried generated code out, which takes memory of its own
            torch.cuda.reset_peak_memory_stats()
        pixels = augment(images, generator) if shape.augment else images
        noise = None
        if learner.method.needs("noise"):
            noise = torch.rand(pairs, generator=generator, device=device)
        shares = draw_shares(shape.batch, generator) if learner.mixes(2) else None
        step(StepInputs(pixels, labels, indices, 2, True, ramp, noise, clean, shares=shares))

    return run


BF16, COMPILED, GRAPHS = "training.precision=bf16", "training.compile=true", "training.cuda_graphs=true"
ROWS = {
    "plain": Row("published step, plain, fp32 eager", plain),
    "floor": Row("backbone alone, bf16 compiled", floor, by_classes=False),
    "floor-graph": Row("backbone alone, CUDA graph", lambda s: floor(s, graph=True), True, False),
    "eager-fp32": Row("satl, fp32 eager", product),
    "eager-bf16": Row("satl, bf16 eager", lambda s: product(s, BF16)),
    "compiled": Row("satl, bf16 compiled", lambda s: product(s, BF16, COMPILED)),
    "graphed": Row("satl, bf16 compiled, CUDA graph", lambda s: product(s, BF16, COMPILED, GRAPHS), True),
}

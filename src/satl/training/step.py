"""One step of the optimiser, from pixels to moved weights: eager, compiled, or replayed as a CUDA graph."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from satl.methods import Learner, StepResult
from satl.scoring import Evidence
from satl.training.averaging import MovingAverage
from satl.training.sharding import clip_gradients
from satl.training.tally import EpochTally

# A graph is captured after so many ordinary steps: they allocate the optimiser's state, compile what is to be
# compiled and let the libraries choose their algorithms, none of which can be captured.
STEPS_BEFORE_CAPTURE = 3


class StepInputs(NamedTuple):
    """What a step reads, all on the device and of the same shape in every step."""

    pixels: Tensor
    """``(B, 3, H, W)`` augmented and normalised."""
    labels: Tensor
    """``(B, C)`` with +1, -1, 0."""
    indices: Tensor
    """``(B,)`` position of each image in the table."""
    ramp: Tensor
    """Weight in [0, 1], no dimensions, of the terms that grow during the first epoch."""
    noise: Tensor | None = None
    """``(C, pairs)`` in [0, 1), for methods that choose pairs of images at random: the pairs of each micro-batch of
    all processes, one micro-batch after the other."""
    clean: Tensor | None = None
    """``(B, 3, H, W)`` the same images not augmented, where a teacher is to look at them."""
    truth: Tensor | None = None
    """``(B, C)`` hidden labels, only to measure pseudo-labels."""
    shares: Tensor | None = None
    """``(B,)`` how much of each mixed image is the image itself, for methods that mix images."""

    def split(self, num: int) -> list[StepInputs]:
        """Return ``num`` micro-batches of consecutive images."""
        if num == 1:
            return [self]
        ramps = [self.ramp] * num
        noises = [None] * num if self.noise is None else self.noise.chunk(num, dim=1)
        rest = (self.pixels, self.labels, self.indices, self.clean, self.truth, self.shares)
        parts = ([None] * num if value is None else value.chunk(num) for value in rest)
        return [
            StepInputs(pixels, labels, indices, ramp, noise, clean, truth, shares)
            for pixels, labels, indices, clean, truth, shares, ramp, noise in zip(
                *parts, ramps, noises, strict=True
            )
        ]


class TrainingStep:
    """Forward, backward, optimiser, memory of the generators, averaged weights and sums: one call, one step.

    Nothing in a step waits for the device. With ``graph`` the whole of it is captured once for each kind of step
    (stage, and whether scores are observed) and then replayed: the processor launches one graph instead of
    thousands of kernels. Between two steps, whatever changes must change in place: thresholds, weights, sums.

    Args:
        learner: the method put together.
        optimiser: over the learner's parameters; with ``graph`` it must be capturable.
        model: what is called in the learner's place, where it is wrapped for several processes.
        average: an average of the weights that follows them, and is the teacher where ``StepInputs.clean`` is given.
        tally: sums of the epoch.
        bf16: compute in bfloat16 where that is safe.
        clip_norm: largest norm of the gradient.
        accumulate: micro-batches that a step is done in, one after the other. Known cells are counted over the whole
            batch; pairs of images, BatchNorm and what follows from pseudo-labels see a micro-batch at a time.
        graph: replay a CUDA graph; only for one process on a GPU.
    """

    def __init__(
        self,
        learner: Learner,
        optimiser: torch.optim.Optimizer,
        *,
        model: nn.Module | None = None,
        average: MovingAverage | None = None,
        tally: EpochTally | None = None,
        bf16: bool = False,
        clip_norm: float | None = None,
        accumulate: int = 1,
        graph: bool = False,
    ) -> None:
        self.learner = learner
        self.optimiser = optimiser
        self.model = learner if model is None else model
        self.average = average
        self.tally = tally
        self.clip_norm = clip_norm
        self.accumulate = accumulate
        self.device = next(learner.parameters()).device
        self.bf16 = bf16
        self.teacher: nn.Module | None = None if average is None else average.module
        self.graph = graph
        # One for all that is not replayed: every stream that multiplies matrices keeps a workspace of its own.
        self.stream: torch.cuda.Stream | None = None
        self._replay: _Replay | None = None

    def compile(self, **options: object) -> None:
        """Compile the learner, and the teacher if there is one; the first steps of each kind then take long."""
        self.learner.compile_step(**options)
        if self.average is not None:
            compiled = {"fullgraph": True, "dynamic": False, **options}
            self.teacher = torch.compile(self.average.module, **compiled)  # type: ignore[call-overload]

    def __call__(self, inputs: StepInputs, stage: int, observe: bool) -> StepResult:
        """Do one step; where a graph is replayed, the next one overwrites the result and these images."""
        if self.average is not None:
            self.average.advance()
        if not self.graph:
            return self._ordinary(inputs, stage, observe)
        # Stages only go forwards, so what was captured for another kind of step is not needed again.
        kind = (stage, observe, *(None if value is None else (value.shape, value.dtype) for value in inputs))
        if self._replay is None or self._replay.kind != kind:
            self._replay = _Replay(kind)
            # A replay leaves its gradients behind; an ordinary step would add to them.
            self.optimiser.zero_grad(set_to_none=True)
        return self._replay.step(self, inputs, stage, observe)

    def forget_graph(self) -> None:
        """Let go of what was captured, because a tensor that it writes to has been replaced."""
        self._replay = None

    def _ordinary(self, inputs: StepInputs, stage: int, observe: bool) -> StepResult:
        result = self._step(inputs, stage, observe)
        self.optimiser.zero_grad(set_to_none=True)
        return result

    def _step(self, inputs: StepInputs, stage: int, observe: bool) -> StepResult:
        batch = None if self.accumulate == 1 else inputs.labels
        results = []
        for number, part in enumerate(inputs.split(self.accumulate), start=1):
            # Processes add up their gradients once, with those of the last micro-batch.
            with nullcontext() if number == self.accumulate else self._apart():
                results.append(self._backward(part, stage, observe, batch))
        result = results[0] if len(results) == 1 else _joined(results)
        if stage == 1:
            self.learner.rules.zero_grad(set_to_none=True)  # thresholds learn, and decay, from stage 2 on
        if self.clip_norm is not None:
            clip_gradients(list(self.learner.parameters()), self.clip_norm)
        self.optimiser.step()
        self.learner.remember(result.evidence)
        if self.average is not None:
            self.average.update(self.learner.network)
        if self.tally is not None:
            self.tally.add(result, inputs.labels, inputs.truth)
        return result

    def _backward(self, inputs: StepInputs, stage: int, observe: bool, batch: Tensor | None) -> StepResult:
        """Add the gradients of a micro-batch to those that there are."""
        with self._autocast():
            teacher = None if inputs.clean is None else self._taught(inputs.clean, inputs.indices)
        mixed = None
        if self.learner.mixes(stage):
            # Without an average a fitted probe teaches alone; a method may also mix images without any teacher.
            if teacher is None and self.learner.probe is not None and not self.learner.wants_probe:
                teacher = self.learner.taught(None, inputs.indices)
            # A pass of its own: what it keeps for its backward pass is gone before the other one begins.
            with self._apart():
                mixed = self._forward(inputs, stage, observe, batch, teacher, inputs.shares)
                self._differentiate(mixed.loss)
        result = self._forward(inputs, stage, observe, batch, teacher, None)
        self._differentiate(result.loss)
        if mixed is None:
            return result
        return result._replace(
            loss=result.loss.detach() + mixed.loss.detach(), parts=result.parts | mixed.parts
        )

    def _forward(
        self,
        inputs: StepInputs,
        stage: int,
        observe: bool,
        batch: Tensor | None,
        teacher: Tensor | None,
        shares: Tensor | None,
    ) -> StepResult:
        with self._autocast():
            result: StepResult = self.model(
                inputs.pixels,
                inputs.labels,
                inputs.indices,
                stage=stage,
                ramp=inputs.ramp,
                observe=observe,
                teacher=teacher,
                noise=inputs.noise,
                batch=batch,
                shares=shares,
            )
        return result

    def _differentiate(self, loss: Tensor) -> None:
        # In this thread: every thread that multiplies matrices keeps a workspace of its own.
        with torch.autograd.set_multithreading_enabled(False):
            (loss / self.accumulate).backward()

    def _autocast(self) -> torch.autocast:
        # Weights that autocast has converted must not outlive the capture of a graph.
        return torch.autocast(
            self.device.type, torch.bfloat16, enabled=self.bf16, cache_enabled=not self.graph
        )

    def _apart(self) -> AbstractContextManager[None]:
        """Within this, several processes keep their gradients to themselves."""
        if isinstance(self.model, DistributedDataParallel):
            return self.model.no_sync()
        return nullcontext()

    @torch.no_grad()
    def _taught(self, clean: Tensor, indices: Tensor) -> Tensor:
        """Return the class probabilities ``(B, C)`` of the averaged weights and of whatever else the teacher is."""
        assert self.teacher is not None
        return self.learner.taught(self.teacher(clean).logits.float().sigmoid(), indices)


def _joined(results: list[StepResult]) -> StepResult:
    """Return the result of a batch from those of its micro-batches, without what needs a gradient."""
    seen = [result.evidence for result in results if result.evidence is not None]
    evidence = None
    if seen:
        features = torch.cat([part.features.detach() for part in seen])
        labels, images = torch.cat([part.labels for part in seen]), torch.cat([part.images for part in seen])
        evidence = Evidence(features, None, labels, images)
    return StepResult(
        torch.stack([result.loss.detach() for result in results]).mean(),
        {name: torch.stack([result.parts[name] for result in results]).mean() for name in results[0].parts},
        {name: torch.cat([result.pseudo[name] for result in results]) for name in results[0].pseudo},
        evidence,
    )


class _Replay:
    """A step of one kind: ordinary a few times, then captured, then replayed."""

    def __init__(self, kind: tuple[object, ...]) -> None:
        self.kind = kind
        self.steps = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: StepInputs | None = None
        self.result: StepResult | None = None

    def step(self, step: TrainingStep, inputs: StepInputs, stage: int, observe: bool) -> StepResult:
        if self.graph is not None:
            self._fill(inputs)
            if step.tally is not None:
                step.tally.steps += 1
        elif self.steps < STEPS_BEFORE_CAPTURE:
            self.steps += 1
            return self._aside(step, inputs, stage, observe)
        else:
            self._capture(step, inputs, stage, observe)
        assert self.graph is not None
        assert self.result is not None
        self.graph.replay()
        return self.result

    @staticmethod
    def _aside(step: TrainingStep, inputs: StepInputs, stage: int, observe: bool) -> StepResult:
        """A step aside from the current stream, as the libraries want it before a capture."""
        side = step.stream = step.stream or torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            result = step._ordinary(inputs, stage, observe)
        torch.cuda.current_stream().wait_stream(side)
        return result

    def _capture(self, step: TrainingStep, inputs: StepInputs, stage: int, observe: bool) -> None:
        # The images are kept and written to from now on; the rest is small, and may be part of something larger.
        self.inputs = StepInputs(
            *(
                value if value is None or name in ("pixels", "clean") else value.clone()
                for name, value in inputs._asdict().items()
            )
        )
        # Gradients are then allocated during the capture, and written anew by every replay.
        step.optimiser.zero_grad(set_to_none=True)
        # A graph has memory of its own: what the ordinary steps needed is not needed beside it. Without their
        # workspaces for products of matrices the graph gets one in its own memory, which nobody else can free.
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        graph = torch.cuda.CUDAGraph()
        # Of this thread alone: another one may be pinning the next batch meanwhile.
        with torch.cuda.graph(graph, stream=step.stream, capture_error_mode="thread_local"):
            self.result = step._step(self.inputs, stage, observe)
        self.graph = graph

    def _fill(self, inputs: StepInputs) -> None:
        assert self.inputs is not None
        for mine, given in zip(self.inputs, inputs, strict=True):
            if mine is not None and given is not None and mine is not given:
                mine.copy_(given, non_blocking=True)

"""One step of the optimiser, from pixels to moved weights: eager, compiled, or replayed as a CUDA graph."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from satl.methods import Learner, StepInputs, StepResult
from satl.scoring import GeneratorInputs
from satl.training.averaging import MovingAverage
from satl.training.cuda_graph import CudaGraphStep
from satl.training.sharding import clip_gradients
from satl.training.tally import EpochTally


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
        half: bfloat16 or float16, to compute in it where that is safe. In float16 the loss is scaled, so that small
            gradients do not vanish, and a step whose gradients overflow moves no weight.
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
        half: torch.dtype | None = None,
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
        self.half = half
        self.scaler = torch.amp.GradScaler(self.device.type) if half is torch.float16 else None
        self.teacher: nn.Module | None = None if average is None else average.module
        self.cuda_graph = CudaGraphStep(self.run, optimiser) if graph else None

    def compile(self, **options: object) -> None:
        """Compile the learner, and the teacher if there is one; the first steps of each kind then take long."""
        self.learner.compile_step(**options)
        if self.average is not None:
            compiled = {"fullgraph": True, "dynamic": False, **options}
            self.teacher = torch.compile(self.average.module, **compiled)  # type: ignore[call-overload]

    def __call__(self, inputs: StepInputs) -> StepResult:
        """Do one step; where a graph is replayed, the next one overwrites the result and these images."""
        if self.average is not None:
            self.average.advance()
        if self.cuda_graph is None:
            result = self.run(inputs)
            self.optimiser.zero_grad(set_to_none=True)
            return result
        result, replayed = self.cuda_graph(inputs)
        if replayed and self.tally is not None:
            self.tally.steps += 1  # counted on the host, which a replay leaves out
        return result

    def run(self, inputs: StepInputs) -> StepResult:
        """Do everything of a step that runs on the device; gradients are left behind."""
        results = []
        for number, part in enumerate(inputs.split(self.accumulate), start=1):
            # Processes add up their gradients once, with those of the last micro-batch.
            with nullcontext() if number == self.accumulate else self.no_grad_sync():
                results.append(self._add_gradients(part))
        result = results[0] if len(results) == 1 else _joined(results)
        if inputs.stage == 1:
            self.learner.rules.zero_grad(set_to_none=True)  # thresholds learn, and decay, from stage 2 on
        if self.scaler is not None:
            self.scaler.unscale_(self.optimiser)
        if self.clip_norm is not None:
            clip_gradients(list(self.learner.parameters()), self.clip_norm)
        if self.scaler is None:
            self.optimiser.step()
        else:
            self.scaler.step(self.optimiser)
            self.scaler.update()
        self.learner.remember(result.generator_inputs)
        if self.average is not None:
            self.average.update(self.learner.network)
        if self.tally is not None:
            self.tally.add(result, inputs.labels, inputs.truth, may_overflow=self.scaler is not None)
        return result

    def _add_gradients(self, inputs: StepInputs) -> StepResult:
        """Add the gradients of a micro-batch to those of the earlier ones."""
        inputs = self._ask_teacher(inputs)
        if not self.learner.mixes(inputs.stage):
            return self._forward_backward(inputs)
        # A pass of its own: what it keeps for its backward pass is gone before the other one begins.
        with self.no_grad_sync():
            mixed = self._forward_backward(inputs, mixed=True)
        result = self._forward_backward(inputs)
        return result._replace(
            loss=result.loss.detach() + mixed.loss.detach(), parts=result.parts | mixed.parts
        )

    @torch.no_grad()
    def _ask_teacher(self, inputs: StepInputs) -> StepInputs:
        """Return the inputs with the probabilities of the teacher, if the step uses one."""
        learner = self.learner
        if inputs.clean is not None:
            assert self.teacher is not None
            with self._autocast():
                probabilities = self.teacher(inputs.clean).logits.float().sigmoid()
                return inputs._replace(teacher=learner.teacher_probabilities(probabilities, inputs.indices))
        # Without an average a fitted probe teaches alone; a method may also mix images without any teacher.
        if learner.mixes(inputs.stage) and learner.probe is not None and not learner.needs_probe:
            return inputs._replace(teacher=learner.teacher_probabilities(None, inputs.indices))
        return inputs

    def _forward_backward(self, inputs: StepInputs, mixed: bool = False) -> StepResult:
        with self._autocast():
            result: StepResult = self.model(inputs, mixed)
        # In this thread: every thread that multiplies matrices keeps a workspace of its own.
        with torch.autograd.set_multithreading_enabled(False):
            loss = result.loss / self.accumulate
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        return result

    def _autocast(self) -> torch.autocast:
        # Weights that autocast has converted must not outlive the capture of a graph.
        return torch.autocast(
            self.device.type, self.half, enabled=self.half is not None, cache_enabled=self.cuda_graph is None
        )

    def no_grad_sync(self) -> AbstractContextManager[None]:
        """Return a context in which processes do not add up their gradients."""
        if isinstance(self.model, DistributedDataParallel):
            return self.model.no_sync()
        return nullcontext()


def _joined(results: list[StepResult]) -> StepResult:
    """Return the result of a batch from those of its micro-batches, without what needs a gradient."""
    seen = [result.generator_inputs for result in results if result.generator_inputs is not None]
    generator_inputs = None
    if seen:
        features = torch.cat([part.features.detach() for part in seen])
        labels, images = torch.cat([part.labels for part in seen]), torch.cat([part.images for part in seen])
        generator_inputs = GeneratorInputs(features, None, labels, images)
    return StepResult(
        torch.stack([result.loss.detach() for result in results]).mean(),
        {name: torch.stack([result.parts[name] for result in results]).mean() for name in results[0].parts},
        {name: torch.cat([result.pseudo[name] for result in results]) for name in results[0].pseudo},
        generator_inputs,
    )

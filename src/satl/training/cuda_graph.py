"""Training steps as CUDA graphs: run eagerly a few times, captured once, then replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from satl.methods import StepInputs, StepResult

# A graph is captured after so many ordinary steps: they allocate the optimiser's state, compile code
# and let the libraries choose their algorithms, none of which can be captured.
STEPS_BEFORE_CAPTURE = 3


class CudaGraphStep:
    """Replays a step: eager a few times for each kind of step, then captured, then replayed.

    Steps are of one kind if stage, ``observe`` and the shapes of all inputs are the same. Only the graph of the present
    kind is kept: stages only go forwards, so that of another kind is not needed again.

    Args:
        run: the step itself, which leaves its gradients behind.
        optimiser: whose gradients they are.
    """

    def __init__(self, run: Callable[[StepInputs], StepResult], optimiser: torch.optim.Optimizer) -> None:
        self.run = run
        self.optimiser = optimiser
        # One for all that is not replayed: every stream that multiplies matrices keeps a workspace of its own.
        self.stream: torch.cuda.Stream | None = None
        self.forget()

    def forget(self) -> None:
        """Drop the captured graph, because a tensor that it writes to has been replaced."""
        self.kind: tuple[object, ...] | None = None
        self.steps = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: StepInputs | None = None
        self.result: StepResult | None = None

    def __call__(self, inputs: StepInputs) -> tuple[StepResult, bool]:
        """Return the result of a step, and whether it was replayed: the host code of ``run`` did not run then."""
        kind = tuple((value.shape, value.dtype) if isinstance(value, Tensor) else value for value in inputs)
        if kind != self.kind:
            self.forget()
            self.kind = kind
            # A replay leaves its gradients behind; an ordinary step would add to them.
            self.optimiser.zero_grad(set_to_none=True)
        if self.steps < STEPS_BEFORE_CAPTURE:
            self.steps += 1
            return self._warm_up_on_side_stream(inputs), False
        replayed = self.graph is not None
        if replayed:
            self._copy_in(inputs)
        else:
            self._capture(inputs)
        assert self.graph is not None
        assert self.result is not None
        self.graph.replay()
        return self.result, replayed

    def _warm_up_on_side_stream(self, inputs: StepInputs) -> StepResult:
        """Run a step on another stream, which CUDA graphs need before a capture."""
        side = self.stream = self.stream or torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            result = self.run(inputs)
            self.optimiser.zero_grad(set_to_none=True)
        torch.cuda.current_stream().wait_stream(side)
        return result

    def _capture(self, inputs: StepInputs) -> None:
        # The images are kept and written to from now on; the rest is small, and may be part of something larger.
        small: dict[str, Any] = {
            name: value.clone()
            for name, value in inputs._asdict().items()
            if isinstance(value, Tensor) and name not in ("pixels", "clean")
        }
        self.inputs = inputs._replace(**small)
        # Gradients are then allocated during the capture, and written anew by every replay.
        self.optimiser.zero_grad(set_to_none=True)
        # A graph has memory of its own: what the ordinary steps needed is not needed beside it. Without their
        # workspaces for products of matrices the graph gets one in its own memory, which nobody else can free.
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        graph = torch.cuda.CUDAGraph()
        # Of this thread alone: another one may be pinning the next batch meanwhile.
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            self.result = self.run(self.inputs)
        self.graph = graph

    def _copy_in(self, inputs: StepInputs) -> None:
        assert self.inputs is not None
        for mine, given in zip(self.inputs, inputs, strict=True):
            if isinstance(mine, Tensor) and isinstance(given, Tensor) and mine is not given:
                mine.copy_(given, non_blocking=True)

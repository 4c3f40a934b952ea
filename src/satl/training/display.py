"""What a training shows to a person while it runs; the command line draws it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Display:
    """Is called while a training runs; this one shows nothing."""

    def start(self, epochs: int, steps: int) -> None:
        """Begin a run."""

    def step(self, epoch: int, stage: int, step: int, losses: Callable[[], dict[str, float]]) -> None:
        """Show one step; calling ``losses`` waits for the device, so call it only now and then."""

    def epoch(self, row: dict[str, Any]) -> None:
        """Show the result of an epoch."""

    def remark(self, text: str) -> None:
        """Show a sentence about the training that a person should read."""

    def stop(self) -> None:
        """End, also after an error."""

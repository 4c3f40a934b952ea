"""What a training shows to a person while it runs; the command line draws it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Display(Protocol):
    """What a training shows to a person while it runs."""

    def start(self, epochs: int, steps: int) -> None:
        """Begin a run."""

    def step(self, epoch: int, stage: int, step: int, losses: Callable[[], dict[str, float]]) -> None:
        """Show one step; calling ``losses`` waits for the device, so call it only now and then."""

    def epoch(self, row: dict[str, Any]) -> None:
        """Show the result of an epoch."""

    def stop(self) -> None:
        """End, also after an error."""


class Silent:
    """Shows nothing."""

    def start(self, epochs: int, steps: int) -> None:
        """Do nothing."""

    def step(self, epoch: int, stage: int, step: int, losses: Callable[[], dict[str, float]]) -> None:
        """Do nothing."""

    def epoch(self, row: dict[str, Any]) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

"""Curves of a run for TensorBoard, in the folder ``tensorboard`` of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satl.training.tracking import End, TrackedRun, Tracker


class TensorBoardTracker(Tracker):
    """Writes event files; points of epochs that a resumed run trains again are dropped."""

    def start(self, run: TrackedRun) -> None:
        """Open the event file."""
        from torch.utils.tensorboard import SummaryWriter

        self.writer: Any = SummaryWriter(str(run.path / "tensorboard"), purge_step=run.first_epoch)

    def epoch(self, number: int, metrics: Mapping[str, float]) -> None:
        """Draw a point of each curve."""
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, number)
        self.writer.flush()

    def end(self, how: End, best: Mapping[str, float]) -> None:
        """Close the event file."""
        self.writer.close()

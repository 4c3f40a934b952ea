"""What is called while grid runs are running; it imports nothing heavy, so that the command line can build on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from satl.experiments.grid import GridRun

Event = dict[str, Any]


class ProgressListener:
    """Is called while grid runs are running; this one does nothing, the command line draws progress."""

    def begin(self, total: int) -> None:
        """``total`` grid runs are about to start."""

    def event(self, grid_run: GridRun, event: Event) -> None:
        """Something happened to a grid run.

        ``event["event"]`` is ``loading``, ``begin``, ``step``, ``epoch``, ``testing``, ``done``, ``failed`` or
        ``stopped``; the other keys are its details.
        """

    def stopping(self, expired: bool) -> None:
        """Grid runs are asked to save and stop: the time is up (``expired``), or the user asked for it."""

    def end(self) -> None:
        """All worker processes have ended."""

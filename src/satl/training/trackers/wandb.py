"""A run in Weights & Biases; project, mode and place are what its environment variables say."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from satl.training.tracking import End, TrackedRun, Tracker

_SECONDS = 30.0
"""How long a server is waited for, where ``WANDB_INIT_TIMEOUT`` says nothing else."""


class WandbTracker(Tracker):
    """Writes to one run of Weights & Biases, to the same one after a resume."""

    def start(self, run: TrackedRun) -> str:
        """Open the run, without asking anybody for a login."""
        import wandb

        options: dict[str, Any] = {"console": "off"}  # the standard output is the user's own
        if "WANDB_INIT_TIMEOUT" not in os.environ:
            options["init_timeout"] = _SECONDS
        with _nobody_to_ask():
            self.run: Any = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "satl"),
                name=os.environ.get("WANDB_NAME", run.path.name),
                dir=os.environ.get("WANDB_DIR", str(run.path)),
                config=dict(run.settings),
                id=run.kept,
                resume="allow",
                reinit="create_new",  # one that is open in a notebook stays open
                settings=wandb.Settings(**options),
            )
        return str(self.run.id)

    def epoch(self, number: int, metrics: Mapping[str, float]) -> None:
        """Log an epoch as a step; one that was logged before stays as it was."""
        self.run.log(dict(metrics), step=number)

    def end(self, how: End, best: Mapping[str, float]) -> None:
        """Write the best epoch into the summary and close the run."""
        self.run.summary.update(dict(best))
        self.run.finish(exit_code=0 if how == "finished" else 1)


@contextmanager
def _nobody_to_ask() -> Iterator[None]:
    """Take the terminal away: without a login the package would ask there, and a training would wait for the answer."""
    terminal = sys.stdin
    with Path(os.devnull).open(encoding="utf-8") as nobody:
        sys.stdin = nobody
        try:
            yield
        finally:
            sys.stdin = terminal

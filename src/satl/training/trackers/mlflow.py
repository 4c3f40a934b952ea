"""A run in MLflow; the server or the file is what its environment variables say."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any

from satl.training.tracking import End, TrackedRun, Tracker

_AT_ONCE = 100
"""Settings that a server takes in one request."""
_LONGEST = 500
"""Characters of a setting that every server takes."""
_STATUS = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


class MlflowTracker(Tracker):
    """Writes to one run of MLflow, to the same one after a resume; the active run of a notebook is left alone."""

    def start(self, run: TrackedRun) -> str:
        """Make the run and write its settings, or open it again."""
        # Asked eight times, as by default, a server that is away would keep the training waiting for four minutes.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self.client: Any = MlflowClient()
        if run.kept is not None:
            self.client.update_run(run.kept, status="RUNNING")
            self.run = run.kept
            return run.kept
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "satl")
        experiment = self.client.get_experiment_by_name(name)
        number = self.client.create_experiment(name) if experiment is None else experiment.experiment_id
        self.run = str(self.client.create_run(number, run_name=run.path.name).info.run_id)
        settings = [Param(key, _text(value)) for key, value in run.settings.items()]
        for first in range(0, len(settings), _AT_ONCE):
            self.client.log_batch(self.run, params=settings[first : first + _AT_ONCE])
        return self.run

    def epoch(self, number: int, metrics: Mapping[str, float]) -> None:
        """Log an epoch as a step."""
        self._log(metrics, number)

    def end(self, how: End, best: Mapping[str, float]) -> None:
        """Write the best epoch and say how the training ended."""
        if best:
            self._log(best, 0)
        self.client.set_terminated(self.run, _STATUS[how])

    def _log(self, metrics: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self.client.log_batch(
            self.run, metrics=[Metric(name, value, now, step) for name, value in metrics.items()]
        )


def _text(value: Any) -> str:
    """Return a setting as text.

    >>> _text("sst"), _text([1, 2]), _text(None), len(_text("x" * 900))
    ('sst', '[1, 2]', 'null', 500)
    """
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."

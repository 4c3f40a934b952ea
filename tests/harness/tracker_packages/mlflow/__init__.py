"""Keeps in a file what it is told, with the rules of MLflow: names, sizes of a batch, parameters that never change."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mlflow.entities import Metric, Param, require_name


class MlflowException(Exception):
    """As the package raises it."""


class MlflowClient:
    def __init__(self) -> None:
        place = os.environ["MLFLOW_TRACKING_URI"]
        if not place.startswith("file:"):
            raise MlflowException(f"API request to {place} failed\nwith many lines of reasons")
        self.file = Path(place.removeprefix("file:"))

    def content(self) -> dict[str, Any]:
        return json.loads(self.file.read_text()) if self.file.exists() else {"experiments": [], "runs": {}}

    def save(self, content: dict[str, Any]) -> None:
        self.file.write_text(json.dumps(content))

    def get_experiment_by_name(self, name: str) -> Any:
        found = self.content()["experiments"]
        return SimpleNamespace(experiment_id=str(found.index(name))) if name in found else None

    def create_experiment(self, name: str) -> str:
        content = self.content()
        content["experiments"].append(name)
        self.save(content)
        return str(len(content["experiments"]) - 1)

    def create_run(self, experiment_id: str, run_name: str) -> Any:
        content = self.content()
        number = f"m{len(content['runs'])}"
        content["runs"][number] = {"name": run_name, "status": "RUNNING", "params": {}, "metrics": {}}
        self.save(content)
        return SimpleNamespace(info=SimpleNamespace(run_id=number))

    def update_run(self, run_id: str, status: str) -> None:
        self.set_terminated(run_id, status)

    def set_terminated(self, run_id: str, status: str) -> None:
        content = self.content()
        content["runs"][run_id]["status"] = status
        self.save(content)

    def log_batch(self, run_id: str, metrics: list[Metric] = [], params: list[Param] = []) -> None:  # noqa: B006
        assert len(params) <= 100
        assert len(metrics) <= 1000
        content = self.content()
        run = content["runs"][run_id]
        for key, value in params:
            require_name(key)
            assert len(value) <= 500
            assert run["params"].setdefault(key, value) == value
        for metric in metrics:
            require_name(metric.key)
            run["metrics"].setdefault(metric.key, {})[str(metric.step)] = metric.value
        self.save(content)

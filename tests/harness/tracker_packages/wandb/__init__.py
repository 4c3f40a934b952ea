"""Keeps in files what it is told, with the rules of Weights & Biases: no login, no run; steps only go forwards."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

KNOWN = ("console", "init_timeout")


class UsageError(Exception):
    """As the package raises it."""


class Settings:
    def __init__(self, **options: Any) -> None:
        assert set(options) <= set(KNOWN)


class Run:
    def __init__(self, file: Path, number: str) -> None:
        self.file, self.id, self.summary = file, number, Summary(self)
        self.step = max((line.get("step", 0) for line in self.lines()), default=0)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []

    def write(self, line: dict[str, Any]) -> None:
        with self.file.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def log(self, metrics: dict[str, float], step: int) -> None:
        assert all(type(value) in (int, float) for value in metrics.values())
        if os.environ.get("FULL_DISK_AT_STEP") == str(step):
            raise OSError(28, "No space left on device")
        if step > self.step:
            self.step = step
            self.write({"step": step, **metrics})

    def finish(self, exit_code: int) -> None:
        self.write({"exit_code": exit_code})


class Summary:
    def __init__(self, run: Run) -> None:
        self.run = run

    def update(self, values: dict[str, float]) -> None:
        self.run.write({"summary": values})


def init(
    *,
    project: str,
    name: str,
    dir: str,
    config: dict[str, Any],
    id: str | None,
    resume: str,
    reinit: str,
    settings: Settings,
) -> Run:
    if os.environ.get("WANDB_MODE") != "offline":
        if sys.stdin.isatty():
            raise KeyboardInterrupt  # the person who is asked for a login gives up
        raise UsageError("No API key configured. Use `wandb login` to log in.")
    assert (resume, reinit) == ("allow", "create_new")
    folder = Path(dir) / "wandb"
    folder.mkdir(exist_ok=True)
    number = id or f"run{len(list(folder.iterdir()))}"
    run = Run(folder / number, number)
    run.write({"project": project, "name": name, "lr": config["training.lr"]})
    return run

"""Progress bars, and the lines that are printed while a training runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from satl.training.display import Display

if TYPE_CHECKING:
    from satl.runs.data import RunData

_SECONDS_BETWEEN_LOSSES = 2.0


def first_process() -> bool:
    """Whether this process may print: of several under torchrun only the first does."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def loading(title: str, quiet: bool = False) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a callback ``(done, total)`` that draws a bar while images are read."""
    if quiet or not first_process():
        yield None
        return
    with _bar(Console(stderr=True)) as progress:
        task = progress.add_task(title, total=None, losses="", visible=False)
        yield lambda done, total: progress.update(task, completed=done, total=total, visible=True)


@contextmanager
def bar_for_each_part(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a callback ``(title, done, total)`` that draws a bar for each part of a job, and none between them.

    >>> with bar_for_each_part(Console(quiet=True)) as show:
    ...     show("drawing", 1, 2)
    ...     show("drawing", 2, 2)
    """
    drawn: list[Progress] = []

    def show(title: str, done: int, total: int) -> None:
        if not drawn:
            drawn.append(_bar(console))
            drawn[0].start()
            drawn[0].add_task(title, losses="")
        drawn[0].update(drawn[0].task_ids[0], description=title, completed=done, total=total)
        if done >= total:  # others may draw a bar of their own now
            drawn.pop().stop()

    try:
        yield show
    finally:
        for bar in drawn:
            bar.stop()


class _Bar(Progress):
    def stop(self) -> None:
        """Leave nothing in a file: of a disabled bar, rich before version 15 still writes an empty line."""
        if not self.disable:
            super().stop()


def _bar(console: Console) -> Progress:
    return _Bar(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[losses]}", style="dim"),
        console=console,
        transient=True,
        disable=not console.is_terminal,  # in a file a bar is only empty lines
    )


class RichDisplay(Display):
    """A live bar for the steps, and one line for each epoch."""

    def __init__(self, data: RunData) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.progress = _bar(self.console)
        self.shown_at = 0.0
        self.steps = 0
        self.epochs = 0
        cells = data.table.cells[data.rows("train")]
        validated = len(data.rows("val"))
        self.greeting = (
            f"{len(cells)} training and {validated or 'no'} validation images, {cells.shape[1]} classes, "
            f"{100 * float(np.mean(cells != 0)):.1f} % of the training cells known."
        )
        if not validated:
            self.greeting += " The model of the last epoch will be kept."

    def start(self, epochs: int, steps: int) -> None:
        """Begin a run."""
        self.epochs, self.steps = epochs, steps
        self.console.print(self.greeting, soft_wrap=True)
        self.progress.start()
        self.task = self.progress.add_task("", total=steps, losses="")

    def step(self, epoch: int, stage: int, step: int, losses: Callable[[], dict[str, float]]) -> None:
        """Move the bar; the losses are read only every few seconds, because that waits for the device."""
        now = time.monotonic()
        title = f"epoch {epoch + 1}/{self.epochs}, stage {stage}"
        self.progress.update(self.task, completed=step + 1, description=title)
        if now - self.shown_at > _SECONDS_BETWEEN_LOSSES:
            self.shown_at = now
            shown = "  ".join(f"{name} {value:.3f}" for name, value in losses().items())
            self.progress.update(self.task, losses=shown)

    def epoch(self, row: dict[str, Any]) -> None:
        """Print the line of an epoch."""
        self.console.print(epoch_line(row), soft_wrap=True)

    def remark(self, text: str) -> None:
        """Print a sentence."""
        self.console.print(f"[yellow]Note:[/] {escape(text)}.", soft_wrap=True)

    def stop(self) -> None:
        """Remove the bar."""
        self.progress.stop()


def epoch_line(row: dict[str, Any]) -> str:
    """Return the line that is printed after an epoch.

    >>> epoch_line({"epoch": 0, "stage": 1, "losses": {"total": 0.5, "classification": 0.5}, "thresholds": {},
    ...             "pseudo_labels": {}, "val": {"mAP": 0.25}, "train_seconds": 1.0})
    'epoch  1  stage 1  loss 0.500 (classification 0.500)  val mAP 25.00  1 s'
    """
    terms = ", ".join(f"{name} {value:.3f}" for name, value in row["losses"].items() if name != "total")
    parts = [
        f"epoch {row['epoch'] + 1:2d}  stage {row['stage']}  loss {row['losses']['total']:.3f} ({terms})"
    ]
    for name, counts in row["pseudo_labels"].items():
        text = f"{name}: {counts['emitted']} pseudo-labels"
        if counts.get("micro_precision") is not None:
            text += f", precision {100 * counts['micro_precision']:.1f}, recall {100 * counts['micro_recall']:.1f}"
        if name in row["thresholds"]:
            values = row["thresholds"][name]
            text += f", thresholds {min(values):.2f}-{max(values):.2f}"
        parts.append(text)
    if row.get("val", {}).get("mAP") is not None:
        parts.append(f"val mAP {100 * row['val']['mAP']:.2f}")
    parts.append(f"{row['train_seconds']:.0f} s")
    return "  ".join(parts)

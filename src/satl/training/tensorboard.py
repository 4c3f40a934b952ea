"""Curves of a run for TensorBoard, for users of the extra ``tensorboard``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from satl.errors import ConfigError

Draw = Callable[[dict[str, Any]], None]


def require_tensorboard() -> Any:
    """Return the class that writes curves, or say what is missing."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ConfigError(
            "training.tensorboard: needs the package tensorboard; run `pip install 'satl[tensorboard]'`, or leave the "
            "key out (metrics.jsonl of the run holds the same numbers)."
        ) from error
    return SummaryWriter


@contextmanager
def board(path: Path, wanted: bool, first_epoch: int) -> Iterator[Draw]:
    """Yield a function that draws the row of an epoch; what an interrupted run drew after ``first_epoch`` is dropped.

    Args:
        path: folder of the curves.
        wanted: whether anything is drawn at all.
        first_epoch: first epoch of this training, after a resume the one it resumes at.
    """
    if not wanted:
        yield lambda row: None
        return
    writer = require_tensorboard()(str(path), purge_step=first_epoch + 1)

    def draw(row: dict[str, Any]) -> None:
        for name, value in curves(row).items():
            writer.add_scalar(name, value, row["epoch"] + 1)
        writer.flush()

    try:
        yield draw
    finally:
        writer.close()


def curves(row: dict[str, Any]) -> dict[str, float]:
    """Return the points of an epoch, from its row of ``metrics.jsonl``, by the name of their curve.

    >>> row = {"epoch": 0, "stage": 2, "lr": 0.1, "losses": {"total": 2.0}, "thresholds": {"cross": [0.2, 0.6]},
    ...        "pseudo_labels": {"cross": {"emitted": 5, "micro_precision": None}}, "val": {"mAP": 0.5}}
    >>> curves(row)["threshold/cross mean"], curves(row)["pseudo-labels/cross emitted"], len(curves(row))
    (0.4, 5, 7)
    """
    points: dict[str, Any] = {"training/lr": row["lr"]}
    points |= {f"loss/{name}": value for name, value in row["losses"].items()}
    for name, values in row["thresholds"].items():
        points[f"threshold/{name} min"] = min(values)
        points[f"threshold/{name} mean"] = sum(values) / len(values)
        points[f"threshold/{name} max"] = max(values)
    for name, counts in row["pseudo_labels"].items():
        points |= {f"pseudo-labels/{name} {what.replace('_', ' ')}": value for what, value in counts.items()}
    points |= {f"validation/{name}": value for name, value in row.get("val", {}).items()}
    return {name: value for name, value in points.items() if value is not None}

"""``train.log``: what a training did, a line an epoch; ``thresholds.csv``: where its thresholds are."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from satl.evaluation.pseudo_quality import UNION, next_to_none
from satl.runs.data import RunData
from satl.runs.run_folder import RunFolder

logger = logging.getLogger("satl.training")

GROWN = 10.0
"""A loss that is so many times that of the first step has grown by an order of magnitude: no training ends there."""


class _LogHandler(logging.FileHandler):
    """Writes as long as there is room: a training that goes on is worth more than its log."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Leave the line out."""

    def close(self) -> None:
        """Close the file, whether or not its last line could be written."""
        with suppress(OSError):
            super().close()


@contextmanager
def log_file(folder: RunFolder, is_main: bool) -> Iterator[None]:
    """Write the log to ``train.log`` of the run while the context lasts; only the main process writes."""
    if not is_main:
        yield
        return
    handler = _LogHandler(folder.log, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        handler.close()


def epoch_remark(row: Mapping[str, Any]) -> str | None:
    """Say that an epoch of stage 2 made next to no pseudo-labels, or nothing.

    >>> epoch_remark({"epoch": 4, "pseudo_labels": {"union": {"emitted": 3, "expected": 4210.2}}})
    'epoch 5: next to no pseudo-labels, 3 where 4,210 positives are to be expected among the unknown cells'
    """
    counts = row["pseudo_labels"].get(UNION)
    if counts is None or not next_to_none(counts):
        return None
    return (
        f"epoch {row['epoch'] + 1}: next to no pseudo-labels, {counts['emitted']:,} where {counts['expected']:,.0f} "
        "positives are to be expected among the unknown cells"
    )


def growth(row: Mapping[str, Any], first: Mapping[str, float]) -> float:
    """Return how many times the loss of the first step of a run an epoch has, over the terms that both have.

    Terms that only stage 2 has are left out, because nothing says how large they may be.

    >>> growth({"losses": {"total": 9.0, "known": 7.0, "pseudo": 2.0}}, {"total": 0.7, "known": 0.7})
    10.0
    """
    terms = [name for name in first if name != "total" and name in row["losses"]]
    begun = sum(first[name] for name in terms)
    return sum(row["losses"][name] for name in terms) / begun if begun > 0 else 0.0


def growth_remarks(rows: Sequence[Mapping[str, Any]], last: bool) -> Iterator[str]:
    """Yield that the loss is an order of magnitude above that of the first step, when it begins and at the end.

    Args:
        rows: of ``metrics.jsonl``, that of the epoch last.
        last: whether it is the last epoch of the run.
    """
    first = rows[0].get("first_losses")
    if not first:  # a run that was begun with an earlier version
        return
    *before, row = rows
    now = growth(row, first)
    if now < GROWN:
        return
    says = f"{now:,.0f} times that of the first step ({first['total']:.3g})"
    lower = "lower training.lr, or set training.clip_norm"
    if not any(growth(one, first) >= GROWN for one in before):
        yield f"epoch {row['epoch'] + 1}: the loss has grown to {says}, so the training has probably diverged; {lower}"
    if last:
        yield f"the loss ended at {says}: the model is worth nothing; {lower}, and train again"


def remarks(rows: Sequence[Mapping[str, Any]], last: bool) -> Iterator[str]:
    """Yield what to say after an epoch: that the loss grew; that stage 2 first made next to no pseudo-labels, at the
    end how often it did.

    Args:
        rows: of ``metrics.jsonl``, that of the epoch last.
        last: whether it is the last epoch of the run.
    """
    yield from growth_remarks(rows, last)
    *before, row = rows
    begins = epoch_remark(row)
    if begins is not None and not any(map(epoch_remark, before)):
        yield begins
    summary = run_remark(rows) if last else None
    if summary is not None:
        yield summary


def run_remark(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Say in how many epochs of stage 2 a run made next to no pseudo-labels, or nothing.

    Args:
        rows: of ``metrics.jsonl``.
    """
    epochs = sum(row["stage"] == 2 for row in rows)
    silent = sum(epoch_remark(row) is not None for row in rows)
    if not silent:
        return None
    text = f"next to no pseudo-labels in {silent} of the {epochs} epochs of stage 2"
    if silent < epochs:
        return text
    return (
        f"{text}: the run learned from the known cells alone; compare the thresholds with the scores, or lower "
        "them (method.thresholds)"
    )


def log_line(row: dict[str, Any]) -> str:
    """Describe an epoch in one line, from its row of ``metrics.jsonl``."""

    def numbers(part: dict[str, Any], names: tuple[str, ...]) -> str:
        shown = ((name, part[name]) for name in names if part.get(name) is not None)
        return ", ".join(f"{name} {value:.4f}" for name, value in shown)

    parts = [f"epoch {row['epoch'] + 1} stage {row['stage']}: {numbers(row['losses'], tuple(row['losses']))}"]
    for name, values in row["thresholds"].items():
        parts.append(f"{name} thresholds {min(values):.4f} to {max(values):.4f}")
    for name, counts in row["pseudo_labels"].items():
        quality = numbers(counts, ("micro_precision", "micro_recall", "macro_precision", "macro_recall"))
        parts.append(f"{name} pseudo-labels {counts['emitted']}" + (f" ({quality})" if quality else ""))
    if "val" in row:
        parts.append(f"validation {numbers(row['val'], ('mAP', 'mAP_plain', 'OF1', 'CF1'))}")
    return "; ".join(parts)


def write_thresholds(folder: RunFolder, data: RunData, thresholds: Mapping[str, Sequence[float]]) -> None:
    """Write the threshold of each class and generator, with the known cells behind it."""
    cells = data.table.cells[data.rows("train")]
    positives, negatives = (cells > 0).sum(0).tolist(), (cells < 0).sum(0).tolist()
    folder.write_thresholds(
        ("class", "generator", "threshold", "known_positives", "known_negatives"),
        [
            (name, generator, f"{values[c]:.6f}", positives[c], negatives[c])
            for c, name in enumerate(data.table.classes)
            for generator, values in thresholds.items()
        ],
    )

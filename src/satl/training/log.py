"""``train.log``: what a training did, a line an epoch."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from satl.runs.run_folder import RunFolder

logger = logging.getLogger("satl.training")


@contextmanager
def log_file(folder: RunFolder, is_main: bool) -> Iterator[None]:
    """Write the log to ``train.log`` of the run while the context lasts; only the main process writes."""
    if not is_main:
        yield
        return
    handler = logging.FileHandler(folder.log, encoding="utf-8")
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

"""``satl`` as a user runs it, alone or under torchrun; then what each process holds is saved for the test."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import satl.training.trainer as trainer_module
from satl.cli import main


def save_after_fit(folder: Path) -> None:
    """Let every trainer save its process's tensors after training."""
    fit = trainer_module.Trainer.fit

    def fit_and_save(self: trainer_module.Trainer) -> dict[str, Any]:
        best = fit(self)
        content: dict[str, Any] = {"learner": self.learner.state_dict(), "best": best}
        if self.average is not None:
            content["average"] = self.average.module.state_dict()
        content["steps"] = [rows.tolist() for rows in self.batches.rows(0)]
        torch.save(content, folder / f"rank-{os.environ.get('RANK', '0')}.pt")
        return best

    trainer_module.Trainer.fit = fit_and_save  # type: ignore[method-assign]


@contextlib.contextmanager
def stop_at_once() -> Iterator[Callable[[], bool]]:
    """Stand for the signals of a person who wants a run to stop."""
    yield lambda: True


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from training.precise import compute_precisely

    torch.set_num_threads(1)
    save_after_fit(Path(sys.argv.pop(1)))
    if os.environ.get("COMPUTE_PRECISELY"):
        compute_precisely()
    if os.environ.get("STOP_AT_ONCE"):
        trainer_module.stop_signals = stop_at_once  # type: ignore[assignment]
    main()

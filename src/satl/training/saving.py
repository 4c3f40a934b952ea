"""Checkpoints of a run: the state to resume from, and the network of its best epoch."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from satl.distributed import process_rank, world_size
from satl.errors import RunError, SatlWarning, Sentence
from satl.methods import Learner
from satl.runs.checkpoint_folders import DamagedError, require_whole
from satl.runs.run_folder import RunFolder, epoch_checkpoint
from satl.training.averaging import MovingAverage
from satl.training.checkpoints import (
    AVERAGE,
    LEARNER,
    STATE,
    load_module,
    load_state,
    module_content,
    random_states,
    restore_random_states,
    save_module,
    save_state,
)
from satl.training.optimisers import load_optimiser
from satl.training.sharding import whole
from satl.training.tally import EpochTally


@dataclass(frozen=True, eq=False)
class Saver:
    """Writes and reads the checkpoints of one run; every process calls it, the first one writes.

    Attributes:
        folder: the run's folder.
        learner: what is trained.
        average: the average of its weights, if there is one.
        optimiser: over its parameters.
        schedule: of the learning rate.
        fingerprint: of the data; a run is resumed with its own data only.
        fixed: what of the configuration must not change, as JSON by ``section.key``.
        scaler: of the loss, where training computes in float16.
    """

    folder: RunFolder
    learner: Learner
    average: MovingAverage | None
    optimiser: torch.optim.Optimizer
    schedule: LRScheduler
    fingerprint: str
    fixed: dict[str, str]
    scaler: torch.amp.GradScaler | None = None

    def save_last(self, epoch: int, step: int, best: dict[str, Any], tally: EpochTally) -> None:
        """Write everything that is needed to resume at this step of this epoch."""
        state = {
            "epoch": epoch,
            "step": step,
            "best": best,
            "optimiser": whole(self.optimiser.state_dict()),
            "schedule": self.schedule.state_dict(),
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
            "tally": gathered(tally.state_dict()),
            "average_steps": self.average.steps if self.average is not None else 0,
            "data": self.fingerprint,
            "config": self.fixed,
            "random": gathered(random_states()),
            "local": gathered([_local_buffers(part) for part in self._parts()]),
        }
        contents = [module_content(part) for part in self._parts()]
        if process_rank() == 0:
            with self.folder.new_checkpoint("last") as path:
                for name, content in zip((LEARNER, AVERAGE), contents, strict=False):
                    save_module(content, path / name)
                save_state(state, path / STATE)

    def load_last(self, tally: EpochTally) -> tuple[int, int, dict[str, Any]]:
        """Read what :meth:`save_last` wrote; return the epoch and step to resume at, and the best epoch so far.

        Where the last checkpoint is damaged, the one before it is read, and that is told.
        """
        return self.folder.read_checkpoint("last", lambda place: self._load_last(place, tally))

    def _load_last(self, checkpoint: Path, tally: EpochTally) -> tuple[int, int, dict[str, Any]]:
        require_whole(checkpoint)
        state = load_state(checkpoint / STATE)
        try:
            return self._take(state, checkpoint, tally)
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
            what = "does not hold the state of a training of this run"
            raise DamagedError.of(checkpoint / STATE, what) from error

    def _take(
        self, state: dict[str, Any], checkpoint: Path, tally: EpochTally
    ) -> tuple[int, int, dict[str, Any]]:
        self.require_same_data(state["data"])
        if len(state["random"]) != world_size():
            raise RunError(
                f"was started with {len(state['random'])} process(es), not {world_size()}",
                where=self.folder.path,
                remedy="resume it with the same number",
            )
        self._require_same_config(state.get("config", {}))  # a run of an older version does not say
        load_module(self.learner, checkpoint / LEARNER)
        if self.average is not None:
            load_module(self.average.module, checkpoint / AVERAGE)
            self.average.steps = state["average_steps"]
        load_optimiser(self.optimiser, state["optimiser"])
        self.schedule.load_state_dict(state["schedule"])
        if self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])
        rank = process_rank()
        tally.load_state_dict(state["tally"][rank])
        for part, buffers in zip(self._parts(), state["local"][rank], strict=True):
            for name, value in buffers.items():
                part.get_buffer(name).copy_(value)
        epoch, step, best = state["epoch"], state["step"], state["best"]
        if type(epoch) is not int or type(step) is not int or min(epoch, step) < 0:
            raise ValueError("epoch and step are numbers from 0 on")
        if type(best["epoch"]) is not int or not isinstance(best["mAP"], float | None):
            raise TypeError("the best epoch has a number and a score")
        restore_random_states(state["random"][rank])
        return epoch, step, best

    def require_same_data(self, had: str | None) -> None:
        """Refuse labels, a split or features with another digest than the run had; None: it is not known."""
        if had is not None and had != self.fingerprint:
            raise RunError(
                f"{self.folder.data_words} are not those the run was started with",
                where=self.folder.path,
                remedy="restore the table or start a new run",
            )

    def save_best(self, best: dict[str, Any]) -> None:
        """Write the learner with the network that is evaluated."""
        kept: nn.Module = self.learner
        if self.average is not None:
            kept = nn.Module()
            for name, child in self.learner.named_children():
                kept.add_module(name, child)
            kept.network = self.average.module
        content = module_content(kept)
        if process_rank() == 0:
            with self.folder.new_checkpoint("best") as path:
                save_module(content, path / LEARNER)
                save_state({"best": best}, path / STATE)

    def save_epoch(self, epoch: int) -> None:
        """Write weights, their average and thresholds as they are after an epoch, counted from 1."""
        contents = [module_content(part) for part in self._parts()]
        if process_rank() == 0:
            with self.folder.new_checkpoint(epoch_checkpoint(epoch)) as path:
                for name, content in zip((LEARNER, AVERAGE), contents, strict=False):
                    save_module(content, path / name)
                save_state({"epoch": epoch}, path / STATE)

    def has_best(self, best: dict[str, Any], epoch: int, step: int) -> bool:
        """Whether the kept network is of this best epoch; it can be of one after the checkpoint that was resumed.

        One that is damaged is told and does not stop the run. It is written again if the network of the last
        checkpoint, at this epoch and step, is the same.
        """
        place = self.folder.find_checkpoint("best")
        if place is None:
            return False
        try:
            require_whole(place)
            return bool(load_state(place / STATE).get("best") == best)
        except DamagedError as error:
            same = (best["epoch"], step) == (epoch - 1, 0)
            if same:
                self.save_best(best)
            then = "it is written again" if same else "the next epoch that is validated takes its place"
            if process_rank() == 0:
                warnings.warn(SatlWarning(f"{error.where}: {error.what}; {then}."), stacklevel=2)
            return same

    def _require_same_config(self, started: dict[str, str]) -> None:
        for key, value in self.fixed.items():
            if key in started and started[key] != value:
                raise RunError(
                    f"{key} is {value}, but the run was started with {started[key]}",
                    where=self.folder.config,
                    remedy=Sentence(
                        "put that back, or start a new run with {train}", train=self.folder.new_run_task
                    ),
                )

    def _parts(self) -> list[nn.Module]:
        """The modules whose tensors change while training."""
        return [self.learner] if self.average is None else [self.learner, self.average.module]


def _local_buffers(module: nn.Module) -> dict[str, Tensor]:
    """Buffers that differ between processes: histograms since the last update."""
    if world_size() == 1:
        return {}
    return {name: value.cpu() for name, value in module.named_buffers() if name.endswith(".counts")}


def gathered(value: Any) -> list[Any]:
    """What each process has, in the order of the ranks."""
    if world_size() == 1:
        return [value]
    values: list[Any] = [None] * world_size()
    dist.all_gather_object(values, value)
    return values

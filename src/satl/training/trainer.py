"""The training loop: two stages, one process or many, resumable at any checkpoint to the bit."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from satl.distributed import launched_rank, sum_across, world_size
from satl.errors import ConfigError, SatlWarning, Sentence, Stopped
from satl.evaluation import Evaluation, evaluate_scores
from satl.evaluation.pseudo_quality import expected_positives
from satl.images import Batch, Batches
from satl.images.batches import translate_worker_crash
from satl.models.allowed_arguments import require_network_arguments
from satl.models.batch_norm import convert_to_shared_batch_norm
from satl.models.kept_memory import memory_is_kept
from satl.runs.beginning import begin_folder
from satl.runs.config import RunConfig, flat_settings
from satl.runs.data import RunData
from satl.runs.environment import environment_facts
from satl.runs.picture_record import require_same_pictures
from satl.runs.run_folder import RunFolder
from satl.runs.settling import settled
from satl.training.averaging import MovingAverage
from satl.training.batch_inputs import BatchInputs
from satl.training.build import (
    augment_of,
    build_learner,
    build_step,
    feature_vectors,
    half_type,
    place_on_device,
    transform_of,
)
from satl.training.device_choice import choose_accelerator, with_images_on_device
from satl.training.display import Display
from satl.training.divergence import require_finite
from satl.training.forward import class_probabilities, pooled_features
from satl.training.late_pictures import tell_late, tell_left_out
from satl.training.log import log_file, log_line, logger, remarks, write_thresholds
from satl.training.optimisers import make_schedule
from satl.training.other_work import EpochTimer
from satl.training.probing import IntArray, fit_to_training_images, probed_part
from satl.training.reduction import images_to_begin_with, start_from_components
from satl.training.saving import Saver
from satl.training.seeds import mix_seed, seed_everything
from satl.training.sharding import leave_to_shards, shard_heads
from satl.training.signals import stop_signals
from satl.training.survey import plan_survey, take_survey
from satl.training.tally import EpochTally
from satl.training.text_prompts import keep_prompts
from satl.training.tracking import TrackedRun, Tracker, named_trackers, require_trackers, tracking

_STEPS_BETWEEN_STOP_CHECKS = 10
"""With several processes, steps between two comparisons of whether to stop."""
_ROWS_AT_ONCE = 4096
"""Rows of features in a batch without gradients, at least."""
_NO_BEST = {"epoch": -1, "mAP": -1.0}


class Interrupted(Stopped):
    """The run was asked to stop; its state is saved."""


class Trainer:
    """Trains one learner into a run folder.

    Use :meth:`start` for a new run and :meth:`resume` for one that was cut off, then :meth:`fit`.
    """

    def __init__(
        self,
        config: RunConfig,
        data: RunData,
        folder: RunFolder,
        display: Display | None = None,
        trackers: Sequence[Tracker] = (),
    ) -> None:
        self.config = config
        self.folder = folder
        training = config.training
        require_trackers(trackers)
        trackers = [*named_trackers(training.trackers), *trackers]  # before anything is built
        self.accelerator = choose_accelerator(training.device)
        self.device = self.accelerator.device
        self.data = data = with_images_on_device(data, config.images.gpu_cache_gb, self.device)
        self.is_main = self.accelerator.is_main_process
        self.trackers = trackers if self.is_main else []
        self.display = display if display is not None and self.is_main else Display()

        rank = self.accelerator.process_index
        seed_everything(training.seed)  # every process builds the same weights
        train_rows = data.rows("train")
        learner = build_learner(
            config, data.table.classes, data.table.cells[train_rows], feature_vectors(config, data)
        )
        convert_to_shared_batch_norm(learner)
        seed_everything(mix_seed(training.seed, rank))

        self.half = half_type(training.precision)
        self.learner = place_on_device(learner, self.device, self.half)
        teacher = self.learner.method_parameters.teacher
        decay = teacher.decay if training.ema is None and teacher is not None else training.ema
        self.average = None if decay is None else MovingAverage(self.learner.network, decay)
        if training.shard:
            leave_to_shards(self.learner, shard_heads(self.learner.network, self.device))
            if self.average is not None:
                shard_heads(self.average.module, self.device)
        self.batches = Batches(
            data.source,
            train_rows,
            batch_size=training.batch_size,
            seed=training.seed,
            shuffle=True,
            drop_last=True,
            epochs=training.epochs,
            stand_in=config.images.broken == "skip",
            **self._loader_options(),
        )
        if self.batches.share(0).num % training.accumulate:
            raise ConfigError(
                f"{training.batch_size} cannot be shared by {world_size()} processes in {training.accumulate} "
                "micro-batches each",
                where="training.batch_size",
                remedy=f"use a multiple of {world_size() * training.accumulate}",
            )
        self.tally = self._new_tally()
        self.step = build_step(
            training,
            self.learner,
            average=self.average,
            tally=self.tally,
            wrap=self.accelerator.prepare_model,
        )
        self.optimiser = self.step.optimiser
        self.schedule = make_schedule(self.optimiser, len(self.batches), training)
        self.saver = Saver(
            folder,
            self.learner,
            self.average,
            self.optimiser,
            self.schedule,
            data.fingerprint(),
            config.fixed(),
            self.step.scaler,
        )
        self.augment = augment_of(config, data, self.device, self.half)
        self.transform = transform_of(config, self.device, self.half)
        self.inputs = BatchInputs(training, data, self.batches, self.learner, self.augment, self.transform)
        self.expected = expected_positives(data.table.cells[train_rows])
        self.next_epoch, self.next_step = 0, 0
        self.best: dict[str, Any] = dict(_NO_BEST)

    @classmethod
    def start(
        cls,
        config: RunConfig,
        data: RunData,
        folder: RunFolder,
        display: Display | None = None,
        trackers: Sequence[Tracker] = (),
    ) -> Trainer:
        """Begin a new run in an empty run folder; what the configuration leaves to the backbone is written out."""
        config = settled(config)
        trainer = cls(config, data, folder, display, trackers)
        keep_prompts(trainer.learner, config.model, data)
        if trainer.is_main:
            begin_folder(folder, config, data, environment_facts(trainer.device, world_size()))
        return trainer

    @classmethod
    def resume(
        cls,
        data: RunData,
        folder: RunFolder,
        display: Display | None = None,
        trackers: Sequence[Tracker] = (),
    ) -> Trainer:
        """Resume a run from its last checkpoint; one that was stopped before its first one begins again."""
        config = folder.read_config()
        has_checkpoint = folder.can_resume(config.training.checkpoint_epochs)  # before anything is built
        if launched_rank() == 0:  # the processes of one run share its lock
            folder.lock()
        try:
            require_network_arguments(config.model, folder.config)
            if launched_rank() == 0:
                require_same_pictures(folder.pictures, data, folder.path)
            trainer = cls(config, data, folder, display, trackers)
            if has_checkpoint:
                trainer.next_epoch, trainer.next_step, trainer.best = trainer.saver.load_last(trainer.tally)
                if not trainer.finished and not trainer.saver.has_best(
                    trainer.best, trainer.next_epoch, trainer.next_step
                ):
                    # The best model is of an epoch that is now trained again and may end otherwise, as on a GPU. Its
                    # score must not keep the next best model from being saved.
                    trainer.best = dict(_NO_BEST)
            else:
                trainer.saver.require_same_data(folder.read_fingerprint())
                keep_prompts(trainer.learner, config.model, data)
                if trainer.is_main:
                    told = f"{folder.path} was stopped before its first checkpoint: it begins again."
                    warnings.warn(SatlWarning(told), stacklevel=2)
            if trainer.is_main:
                folder.keep_metrics_before(trainer.next_epoch)
                folder.remove_half_written()
        except BaseException:
            folder.unlock()
            raise
        if trainer.finished:
            folder.unlock()  # nothing will be trained
        return trainer

    @property
    def finished(self) -> bool:
        """Whether every epoch is done."""
        return self.next_epoch >= self.config.training.epochs

    @property
    def validates(self) -> bool:
        """Whether there are images to validate on."""
        return len(self.data.rows("val")) > 0

    def fit(self) -> dict[str, Any]:
        """Train to the end and return ``{"epoch": ..., "mAP": ...}`` of the best epoch.

        Without images to validate on it is the last one, and its mAP is None.
        """
        training = self.config.training
        steps = len(self.batches)
        self.display.start(training.epochs, steps)
        try:
            if self.is_main and not self.finished:
                self.folder.lock()
            tracked = TrackedRun(
                self.folder.path,
                flat_settings(self.config.resolved()),
                self.data.table.classes,
                self.next_epoch + 1,
            )
            with (
                translate_worker_crash(),
                log_file(self.folder, self.is_main),
                tracking(
                    self.trackers, tracked, self.folder.trackers, lambda: self.best, self.display
                ) as self._tell_trackers,
                stop_signals() as asked_to_stop,
                memory_is_kept(),
            ):
                if self.is_main and not self.validates:
                    logger.info("no validation images: the model of the last epoch is kept as the best")
                if self.is_main:
                    tell_left_out(self.data, self.folder)
                if self.next_epoch == self.next_step == 0 and self.config.model.reduction == "components":
                    self._start_reduction()
                if self.learner.needs_probe:
                    self._fit_probe()
                while not self.finished:
                    self._epoch(self.next_epoch, asked_to_stop)
                if self.is_main:
                    tell_left_out(self.data, self.folder)
        finally:
            self.display.stop()
            self.batches.close()
            self.folder.unlock()
        return self.best

    def _epoch(self, epoch: int, asked_to_stop: Callable[[], bool]) -> None:
        training = self.config.training
        steps = len(self.batches)
        stage = self._stage(epoch)
        timer = EpochTimer()
        if self.next_step == 0:
            self._reset_tally(epoch)
            if stage == 2:
                self._survey(epoch)
                self.learner.update_thresholds()
        self.learner.train()
        for step, batch in enumerate(self.batches.epoch(epoch, self.next_step), start=self.next_step):
            self.train_step(batch, epoch, step)
            self.display.step(epoch, stage, step, self.tally.own_mean_losses)
            done = step + 1
            if done == steps:
                continue
            every = training.checkpoint_steps
            stop = self._all_stop(asked_to_stop(), done)
            if stop or (every is not None and done % every == 0):
                require_finite(self.tally.mean_losses(), self.learner, self.folder.path, epoch)
                self.saver.save_last(epoch, done, self.best, self.tally)
            if stop:
                raise self._interrupted(f"stopped in epoch {epoch + 1} after step {done}")
        self._finish_epoch(epoch, stage, timer.read())
        self.next_epoch, self.next_step = epoch + 1, 0
        if self._all_stop(asked_to_stop()) and not self.finished:
            if not self._saves_after(epoch):
                self.saver.save_last(epoch + 1, 0, self.best, self.tally)
            raise self._interrupted(f"stopped after epoch {epoch + 1}")

    def _interrupted(self, what: str) -> Interrupted:
        return Interrupted(what, remedy=Sentence("resume with {resume}", resume=self.folder.resume_task))

    def _start_reduction(self) -> None:
        """Let the layer behind the backbone start from principal components of what the backbone makes."""
        networks = [self.learner.network, *(() if self.average is None else (self.average.module,))]
        batches = self._batches_without_augmentation(images_to_begin_with(self.data.rows("train")))
        start_from_components(networks, batches, self.transform, self.half)

    def _fit_probe(self) -> None:
        """Fit a probe to the features that training starts from; a resumed run has its logits already."""
        assert self.learner.probe is not None
        backbone = probed_part(self.learner.network)

        def features_of(some: IntArray) -> torch.Tensor:
            batches = self._batches_without_augmentation(some)
            found = pooled_features(backbone, batches, self.transform, self.device, self.half)
            return torch.from_numpy(found).to(self.device)

        fitted = fit_to_training_images(self.learner.probe, features_of, self.inputs.cells, self.data)
        if self.is_main:
            logger.info("probe: fitted to the known cells of %d images", fitted)

    def _survey(self, epoch: int) -> None:
        """Compute class features of known positives for generators that ask for them before an epoch of stage 2."""
        training = self.config.training
        done = epoch - training.stage1_epochs
        size = self.learner.survey_size(done)
        if size == 0:
            return
        rows = self.data.rows("train")
        plan = plan_survey(self.data.table.cells[rows], rows, size, training.seed, epoch)
        batches = self._batches_without_augmentation(np.unique(plan.rows))
        survey = take_survey(self.learner.network, plan, batches, self.transform, self.device, self.half)
        self.learner.study(survey, done, mix_seed(training.seed, epoch))

    def _all_stop(self, asked: bool, step: int = 0) -> bool:
        """Whether any process was asked to stop, the same answer in all; processes compare only every few steps."""
        if world_size() == 1:
            return asked
        if step % _STEPS_BETWEEN_STOP_CHECKS:
            return False
        return bool(sum_across(torch.tensor(float(asked), device=self.device)) > 0)

    def train_step(self, batch: Batch, epoch: int, step: int) -> None:
        """Do one step of the optimiser; nothing in here waits for the device."""
        training = self.config.training
        stage = self._stage(epoch)
        observe = epoch >= training.stage1_epochs - 1
        self.step(self.inputs.make(batch, epoch, step, stage, observe))
        self.schedule.step()
        if stage == 2:
            self.learner.update_thresholds_within_epoch(step, len(self.batches))

    def validate(self, split: str = "val") -> Evaluation:
        """Evaluate the current network, or the average of its weights, on the known cells of a split."""
        network = self.learner.network if self.average is None else self.average.module
        rows = self.data.rows(split)
        batches = self._batches_without_augmentation(rows)
        probabilities = class_probabilities(network, batches, self.transform, self.device, self.half)
        return evaluate_scores(
            probabilities, self.data.table.cells[rows], self.data.table.classes, encoding="signed"
        )

    def _finish_epoch(self, epoch: int, stage: int, times: dict[str, float | None]) -> None:
        training = self.config.training
        losses = self.tally.mean_losses()
        require_finite(losses, self.learner, self.folder.path, epoch)
        tell_late(self.config, self.data, self.batches, self.folder, epoch, self.display, self.is_main)
        thresholds = {name: value.tolist() for name, value in self.learner.thresholds().items()}
        row: dict[str, Any] = {
            "epoch": epoch,
            "stage": stage,
            "lr": float(self.optimiser.param_groups[-1]["lr"]),
            "losses": losses,
            "thresholds": {
                name: [round(value, 6) for value in values] for name, values in thresholds.items()
            },
            "pseudo_labels": self.tally.pseudo_labels(self.data.table.truth is not None, self.expected)
            if stage == 2
            else {},
            **times,
        }
        if epoch == 0:
            row["first_losses"] = self.tally.first_losses()
        last, improved = epoch + 1 == training.epochs, False
        if not self.validates:
            improved = last
            if improved:
                self.best = {"epoch": epoch, "mAP": None}
        elif last or (epoch + 1) % training.evaluate_every == 0:
            evaluation = self.validate()
            row["val"] = evaluation.summary()
            score = -1.0 if math.isnan(evaluation.mAP) else evaluation.mAP
            improved = score > self.best["mAP"] or self.best["epoch"] < 0
            if improved:
                self.best = {"epoch": epoch, "mAP": score}
        if improved:
            self.saver.save_best(self.best)
        if epoch + 1 in training.keep_epochs:
            self.saver.save_epoch(epoch + 1)
        if self.is_main:
            self.folder.append_metrics(row)
            self._tell_trackers(row)
            write_thresholds(self.folder, self.data, thresholds)
            logger.info(log_line(row))
        if self._saves_after(epoch):
            self.saver.save_last(epoch + 1, 0, self.best, self.tally)
        self.display.epoch(row)
        for text in remarks(self.folder.read_metrics(), last) if self.is_main else ():
            logger.info(text)
            self.display.remark(text)

    def _saves_after(self, epoch: int) -> bool:
        """Whether a checkpoint is written at the end of an epoch, also if nobody asks to stop."""
        training = self.config.training
        return (epoch + 1) % training.checkpoint_epochs == 0 or epoch + 1 == training.epochs

    def _stage(self, epoch: int) -> int:
        return 1 if epoch < self.config.training.stage1_epochs else 2

    def _reset_tally(self, epoch: int) -> None:
        """Begin the sums of an epoch; a new stage has other loss terms."""
        if epoch > 0 and self._stage(epoch) == self._stage(epoch - 1):
            self.tally.reset()
        else:
            self.tally = self.step.tally = self._new_tally()
            if self.step.cuda_graph is not None:
                self.step.cuda_graph.forget()  # it writes to the old sums

    def _new_tally(self) -> EpochTally:
        return EpochTally(tuple(self.learner.generators), self.data.table.num_classes, self.device)

    def _batches_without_augmentation(self, rows: np.ndarray[Any, np.dtype[np.int64]]) -> Batches:
        """Every image of these rows once, in this order, in batches for a pass without gradients."""
        at_once = self.config.training.batch_size * 2
        if self.config.on_features:
            at_once = max(at_once, _ROWS_AT_ONCE)
        return Batches(self.data.source, rows, batch_size=at_once, **self._loader_options())

    def _loader_options(self) -> dict[str, Any]:
        return {
            "rank": self.accelerator.process_index,
            "world_size": self.accelerator.num_processes,
            "workers": self.config.images.workers,
            "pin_memory": self.device.type == "cuda",
        }

from __future__ import annotations

import csv
import json
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from satl.errors import ImageError, RunError
from satl.evaluation import evaluate_scores
from satl.images import ArrayImages
from satl.images.batches import Batch
from satl.inference.recogniser import Recogniser
from satl.inference.run_evaluation import evaluate_run
from satl.runs.data import RunData, load_data
from satl.runs.run_folder import RunFolder
from satl.training.display import Display
from satl.training.trainer import Interrupted, Trainer
from training.tiny import assert_same_run, metrics, resume, tiny_config, train


class Watched(ArrayImages):
    """Notes which images are read."""

    def __init__(self, source: ArrayImages) -> None:
        self._pixels = source._pixels
        self.read: set[int] = set()

    def image(self, i: int) -> NDArray[np.uint8]:
        self.read.add(i)
        return super().image(i)

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        self.read.update(rows.tolist())
        return super().gather(rows)


def test_the_test_split_is_never_looked_at(tmp_path: Path) -> None:
    config = tiny_config("training.epochs=2", "training.stage1_epochs=1")
    data = load_data(config)
    assert isinstance(data.source, ArrayImages)
    source = Watched(data.source)
    train(tmp_path / "run", config, data=RunData(data.table, source))
    assert source.read == {*data.rows("train").tolist(), *data.rows("val").tolist()}

    # Other test labels and pictures: the same run, to the bit.
    cells = data.table.cells.copy()
    cells[data.rows("test")] *= -1
    pixels = data.source._pixels.copy()
    pixels[data.rows("test")] = 0
    changed = RunData(
        data.table.with_cells(cells, encoding="signed"), ArrayImages.from_channels_first(pixels)
    )
    train(tmp_path / "changed", config, data=changed)
    assert metrics(tmp_path / "run") == metrics(tmp_path / "changed")


def test_the_best_epoch_of_validation_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    trainer = train(folder, tiny_config("training.lr=0.02"))
    scores = [row["val"]["mAP"] for row in metrics(folder)]
    assert trainer.best == {"epoch": int(np.argmax(scores)), "mAP": max(scores)}
    evaluation, split = evaluate_run(folder, "val")
    assert split == "val"
    assert evaluation.mAP == pytest.approx(max(scores), abs=1e-12)
    assert evaluate_run(folder, "val", "last")[0].mAP == pytest.approx(scores[-1], abs=1e-12)


def test_validation_can_be_rarer_than_epochs(tmp_path: Path) -> None:
    train(tmp_path / "run", tiny_config("training.evaluate_every=3", "method.name=ignore"))
    assert ["val" in row for row in metrics(tmp_path / "run")] == [False, False, True, True]


def test_what_a_run_writes(tiny_run: Path) -> None:
    names = {path.name for path in tiny_run.iterdir()}
    assert names >= {"config.yaml", "metrics.jsonl", "train.log", "checkpoints", "thresholds.csv"}
    assert names >= {"environment.json", "classes.json", "data.json"}
    rows = metrics(tiny_run)
    assert [(row["epoch"], row["stage"]) for row in rows] == [(0, 1), (1, 1), (2, 2), (3, 2)]
    assert "pseudo" not in rows[1]["losses"]
    assert {"classification", "cooccurrence", "contrast", "pseudo", "ranking"} < set(rows[2]["losses"])
    for row in rows:
        parts = [value for name, value in row["losses"].items() if name != "total"]
        assert row["losses"]["total"] == pytest.approx(sum(parts))
    assert set(rows[1]["thresholds"]["intra"]) == {1.0}
    assert max(rows[2]["thresholds"]["intra"]) < 1.0
    assert set(rows[3]["pseudo_labels"]) == {"intra", "cross", "union"}
    assert "micro_precision" in rows[3]["pseudo_labels"]["union"]
    facts = json.loads((tiny_run / "environment.json").read_text())
    assert facts["device"] == "cpu"
    assert facts["packages"]["torch"] == torch.__version__.split("+")[0] or facts["packages"]["torch"]
    lines = (tiny_run / "train.log").read_text().splitlines()
    assert sum(": total " in line for line in lines) == 4
    # Its thresholds are still above all scores, which is told when it begins and at the end.
    assert sum("next to no pseudo-labels" in line for line in lines) == len(lines) - 4 == 2

    data = load_data(tiny_config())
    cells = data.table.cells[data.rows("train")]
    with (tiny_run / "thresholds.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == 2 * data.table.num_classes
    learner = load_file(tiny_run / "checkpoints" / "last" / "learner.safetensors")
    for row in table:
        c = data.table.classes.index(row["class"])
        assert float(row["threshold"]) == pytest.approx(
            float(learner[f"rules.{row['generator']}.value"][c]), abs=1e-6
        )
        assert int(row["known_positives"]) == (cells[:, c] > 0).sum()
        assert int(row["known_negatives"]) == (cells[:, c] < 0).sum()


def test_the_average_of_weights_is_what_is_kept(tmp_path: Path) -> None:
    trainer = train(tmp_path / "run", tiny_config("training.ema=0.9", "training.epochs=2"))
    last = tmp_path / "run" / "checkpoints" / "last"
    learner, average = load_file(last / "learner.safetensors"), load_file(last / "average.safetensors")
    assert not torch.equal(learner["network.class_head.output.weight"], average["class_head.output.weight"])
    best = load_file(tmp_path / "run" / "checkpoints" / "best" / "learner.safetensors")
    assert set(best) == set(learner)
    assert trainer.best["epoch"] in (0, 1)
    evaluation, _ = evaluate_run(tmp_path / "run", "val")
    assert evaluation.mAP == pytest.approx(trainer.best["mAP"], abs=1e-12)


def test_training_learns_and_pseudo_labels_beat_chance(tmp_path: Path) -> None:
    config = tiny_config(
        "data.scenes.train=200",
        "data.scenes.val=100",
        "data.proportion=0.5",
        "training.epochs=16",
        "training.stage1_epochs=8",
        "training.lr=0.01",
        "method.thresholds.negative_quantile=0.9",
        "model.backbone_kwargs.channels=[16,16,32,32]",
        "model.feature_dim=64",
        "model.attention_dim=32",
        "model.embedding_dim=32",
    )
    folder = tmp_path / "run"
    trainer = train(folder, config)
    rows = metrics(folder)
    losses = [row["losses"]["classification"] for row in rows]
    assert losses[-1] < 0.7 * losses[0]
    # What a classifier without any knowledge gets: random scores on the same labels.
    data = load_data(config)
    cells = data.table.cells[data.rows("val")]
    generator = np.random.default_rng(0)
    chance = np.mean(
        [evaluate_scores(generator.random(cells.shape), cells, data.table.classes).mAP for _ in range(20)]
    )
    assert trainer.best["mAP"] > chance + 0.05
    last = rows[-1]["pseudo_labels"]["union"]
    assert last["emitted"] > 0
    assert data.table.truth is not None
    hidden = data.table.truth[data.rows("train")][data.table.cells[data.rows("train")] == 0]
    assert last["micro_precision"] > 1.5 * float((hidden > 0).mean())


class Press(Display):
    """Presses Ctrl-C at a step."""

    def __init__(self, epoch: int, step: int) -> None:
        self.place = (epoch, step)

    def step(self, epoch: int, stage: int, step: int, losses: Callable[[], dict[str, float]]) -> None:
        if (epoch, step) == self.place:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("place", "state"), [((1, 1), (1, 2)), ((2, 3), (3, 0)), ((3, 3), (4, 0))], ids=["within", "end", "last"]
)
@pytest.mark.parametrize("checkpoint_epochs", [1, 9])
def test_ctrl_c_saves_and_stops(
    checkpoint_epochs: int, place: tuple[int, int], state: tuple[int, int], tiny_run: Path, tmp_path: Path
) -> None:
    before = signal.getsignal(signal.SIGINT)
    config = tiny_config(f"training.checkpoint_epochs={checkpoint_epochs}")
    trainer = Trainer.start(config, load_data(config), RunFolder(tmp_path / "run"), Press(*place))
    if state == (4, 0):
        trainer.fit()  # nothing is left to be stopped
    else:
        with pytest.raises(
            Interrupted, match=r"^stopped (in|after) epoch \d.*; resume with train\(resume='\S+'\)\.$"
        ):
            trainer.fit()
    assert signal.getsignal(signal.SIGINT) is before
    saved = torch.load(tmp_path / "run" / "checkpoints" / "last" / "training.pt", weights_only=True)
    assert (saved["epoch"], saved["step"]) == state
    resume(tmp_path / "run")
    assert_same_run(tmp_path / "run", tiny_run)


def test_a_loss_that_is_no_number_ends_the_run_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config("training.epochs=2", "training.stage1_epochs=1")
    trainer = Trainer.start(config, load_data(config), RunFolder(tmp_path / "run"))
    with torch.no_grad():
        next(trainer.learner.parameters()).fill_(torch.nan)
    with pytest.raises(RunError, match=r"no longer a finite number in epoch 1 .*lower training\.lr"):
        trainer.fit()
    assert not (tmp_path / "run" / "checkpoints" / "best").exists()


@pytest.mark.parametrize("step", [3, 4], ids=["within an epoch", "in its last step"])
def test_a_run_that_diverged_leaves_the_checkpoint_from_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    config = tiny_config("training.epochs=2", "training.checkpoint_steps=1", "training.evaluate_every=2")
    trainer = Trainer.start(config, load_data(config), RunFolder(tmp_path / "run"))
    assert len(trainer.batches) == 4
    train_step = trainer.train_step

    def diverging(batch: Batch, epoch: int, at: int) -> None:
        train_step(batch, epoch, at)
        if at + 1 == step:  # as a step too far does: the loss of the epoch so far does not show it
            with torch.no_grad():
                next(trainer.learner.parameters()).fill_(torch.inf)

    monkeypatch.setattr(trainer, "train_step", diverging)
    with pytest.raises(
        RunError, match=r"weights are no longer finite numbers in epoch 1 .*lower training\.lr"
    ):
        trainer.fit()
    last = tmp_path / "run" / "checkpoints" / "last"
    assert torch.load(last / "training.pt", weights_only=True)["step"] == step - 1
    assert all(bool(value.isfinite().all()) for value in load_file(last / "learner.safetensors").values())


def test_a_decoding_process_that_is_killed_is_told_wherever_torch_raises_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config()
    trainer = Trainer.start(config, load_data(config), RunFolder(tmp_path / "run"))
    error = RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")

    def signalled(*_: object) -> None:
        raise error

    monkeypatch.setattr(trainer, "train_step", signalled)
    with pytest.raises(ImageError, match=r"killed by the system.*set images\.workers to"):
        trainer.fit()
    error = RuntimeError("something else")
    with pytest.raises(RuntimeError, match="something else"):
        trainer.fit()


def test_a_validation_without_positives_still_selects(tmp_path: Path) -> None:
    config = tiny_config("training.epochs=2", "training.stage1_epochs=1", "method.name=ignore")
    data = load_data(config)
    cells = data.table.cells.copy()
    cells[data.rows("val")] = -1
    trainer = train(
        tmp_path / "run", config, data=RunData(data.table.with_cells(cells, encoding="signed"), data.source)
    )
    assert trainer.best == {"epoch": 0, "mAP": -1.0}
    assert metrics(tmp_path / "run")[0]["val"]["mAP"] is None


def test_the_same_seed_gives_the_same_run_and_another_seed_another(tiny_run: Path, tmp_path: Path) -> None:
    torch.rand(7)
    np.random.rand(7)
    random.random()
    train(tmp_path / "again", tiny_config())
    assert_same_run(tmp_path / "again", tiny_run)
    train(tmp_path / "other", tiny_config("training.seed=1", "data.mask_seed=0"))
    assert metrics(tmp_path / "other") != metrics(tiny_run)


def test_a_recogniser_gives_scores_of_every_generator(tiny_run: Path) -> None:
    recogniser = Recogniser.load(tiny_run, "last")
    data = load_data(recogniser.config)
    rows = data.rows("train")[:10]
    scores = recogniser.scores(data, rows, batch_size=4)
    assert set(scores) == {"probability", "intra", "cross"}
    assert {value.shape for value in scores.values()} == {(10, data.table.num_classes)}
    probabilities = recogniser.probabilities(data.source, rows[::-1], batch_size=3)
    np.testing.assert_allclose(scores["probability"], probabilities[::-1], atol=1e-6)


def test_bf16_trains(tmp_path: Path) -> None:
    config = tiny_config("training.precision=bf16", "training.epochs=2", "training.stage1_epochs=1")
    trainer = train(tmp_path / "run", config)
    rows: list[dict[str, Any]] = metrics(tmp_path / "run")
    assert all(np.isfinite(row["losses"]["total"]) for row in rows)
    assert next(trainer.learner.parameters()).dtype == torch.float32


@pytest.mark.parametrize("method", ["sst", "satl+"])
def test_the_last_model_is_the_average_of_weights_where_there_is_one(method: str, tmp_path: Path) -> None:
    ema = () if method == "satl+" else ("training.ema=0.8",)  # a method with a teacher has one anyway
    config = tiny_config(f"method.name={method}", *ema)
    data = load_data(config)
    trainer = train(tmp_path / "run", config, data=data)
    recogniser = Recogniser.load(tmp_path / "run", "last")
    rows = data.rows("val")
    assert trainer.average is not None
    raw, kept = trainer.learner.network.state_dict(), trainer.average.module.state_dict()
    for name, value in recogniser.learner.network.state_dict().items():
        assert torch.equal(value, kept[name])
    assert any(not torch.equal(raw[name], kept[name]) for name in kept)
    evaluation = evaluate_scores(
        recogniser.probabilities(data.source, rows), data.table.cells[rows], data.table.classes
    )
    assert evaluation.mAP == pytest.approx(metrics(tmp_path / "run")[-1]["val"]["mAP"], abs=1e-6)

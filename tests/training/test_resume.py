from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from satl.errors import RunError, SatlWarning
from satl.methods import METHODS
from satl.runs.data import load_data
from satl.runs.run_folder import RunFolder
from satl.training.checkpoints import save_module, save_state
from satl.training.display import Display
from satl.training.saving import Saver
from satl.training.trainer import Trainer
from training.tiny import KillAt, Killed, assert_same, assert_same_run, metrics, resume, tiny_config, train

# One configuration a method, so that the extras are covered as well.
EXTRAS = {
    "ignore": ("training.optimiser=sgd",),
    "sst": ("training.ema=0.9", "training.clip_norm=0.5"),
    "sst+satl": ("training.ema=0.9", "method.thresholds.update_every=3", "training.warmup_epochs=0.5"),
    "sst+sate": ("training.evaluate_every=3",),
}


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_run_killed_twice_ends_like_one_left_alone(method: str, tmp_path: Path) -> None:
    settings = (f"method.name={method}", "training.checkpoint_steps=1", *EXTRAS.get(method, ()))
    config = tiny_config(*settings)
    train(tmp_path / "alone", config)
    # In the middle of an epoch of each stage; what came after the checkpoint is lost.
    with pytest.raises(Killed):
        train(tmp_path / "cut", config, KillAt(epoch=1, step=2))
    with pytest.raises(Killed):
        resume(tmp_path / "cut", KillAt(epoch=3, step=1))
    resume(tmp_path / "cut")
    assert_same_run(tmp_path / "alone", tmp_path / "cut")
    assert [row["epoch"] for row in metrics(tmp_path / "cut")] == [0, 1, 2, 3]


def test_without_checkpoints_within_an_epoch_the_epoch_is_done_again(tmp_path: Path) -> None:
    config = tiny_config("training.epochs=3", "training.stage1_epochs=1")
    train(tmp_path / "alone", config)
    with pytest.raises(Killed):
        train(tmp_path / "cut", config, KillAt(epoch=2, step=3))
    resume(tmp_path / "cut")
    assert_same_run(tmp_path / "alone", tmp_path / "cut")


@pytest.mark.parametrize("after_row", [False, True])
def test_a_run_killed_before_its_first_checkpoint_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_row: bool
) -> None:
    config = tiny_config("training.epochs=2", "training.stage1_epochs=1")
    train(tmp_path / "alone", config)

    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        if after_row:  # the row and the best model of the first epoch are there
            patched.setattr(Saver, "save_last", killed)
        with pytest.raises(Killed):
            train(tmp_path / "cut", config, None if after_row else KillAt(epoch=0, step=2))
    assert len(RunFolder(tmp_path / "cut").read_metrics()) == after_row
    with pytest.warns(SatlWarning, match="stopped before its first checkpoint: it begins again"):
        resume(tmp_path / "cut")
    assert_same_run(tmp_path / "alone", tmp_path / "cut")


def test_labels_that_changed_before_a_run_begins_again_are_refused(tmp_path: Path) -> None:
    config = tiny_config("training.epochs=2", "training.stage1_epochs=1")
    with pytest.raises(Killed):
        train(tmp_path / "cut", config, KillAt(epoch=0, step=1))
    facts = json.loads((tmp_path / "cut" / "data.json").read_text())
    (tmp_path / "cut" / "data.json").write_text(json.dumps({**facts, "fingerprint": "other"}))
    with pytest.raises(RunError, match="not those the run was started with"):
        resume(tmp_path / "cut")


def saved_state(run: Path, checkpoint: str) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(run / "checkpoints" / checkpoint / "training.pt", weights_only=True)
    return state


def test_fewer_checkpoints_change_nothing_but_where_a_killed_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[tuple[int, int]] = []
    save = Saver.save_last

    def noted(self: Saver, epoch: int, step: int, *others: Any) -> None:
        places.append((epoch, step))
        save(self, epoch, step, *others)

    monkeypatch.setattr(Saver, "save_last", noted)
    settings = ("training.epochs=5", "training.checkpoint_epochs=2")
    config = tiny_config(*settings)
    train(tmp_path / "alone", config)
    assert places == [(2, 0), (4, 0), (5, 0)]
    with pytest.raises(Killed):
        train(tmp_path / "cut", config, KillAt(epoch=3, step=2))
    # The best model is of an epoch that has to be done again, and so is a row of the metrics.
    state = saved_state(tmp_path / "cut", "last")
    assert (state["epoch"], state["step"]) == (2, 0)
    assert saved_state(tmp_path / "cut", "best")["best"]["epoch"] == 2 > state["best"]["epoch"]
    assert len(metrics(tmp_path / "cut")) == 3
    resume(tmp_path / "cut")
    assert_same_run(tmp_path / "alone", tmp_path / "cut")

    # Checkpoints within an epoch are written all the same.
    places.clear()
    with pytest.raises(Killed):
        train(tmp_path / "steps", tiny_config(*settings, "training.checkpoint_steps=3"), KillAt(3, 3))
    assert places == [(0, 3), (1, 3), (2, 0), (2, 3), (3, 3)]
    resume(tmp_path / "steps")
    assert_same_run(tmp_path / "alone", tmp_path / "steps")


def test_a_best_model_that_is_not_reached_again_is_not_kept_under_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a GPU, where an epoch that is done again may end otherwise.
    scores = iter([0.2, 0.3, 0.9, 0.1, 0.25])

    def measured(_: Trainer) -> SimpleNamespace:
        score = next(scores)
        return SimpleNamespace(mAP=score, summary=lambda: {"mAP": score})

    monkeypatch.setattr(Trainer, "validate", measured)
    config = tiny_config("training.checkpoint_epochs=2")
    with pytest.raises(Killed):
        train(tmp_path / "run", config, KillAt(epoch=3, step=0))
    trainer = resume(tmp_path / "run")
    # The model of 0.3 was replaced by that of 0.9, which is no longer part of the run.
    assert trainer.best == {"epoch": 3, "mAP": 0.25}
    assert saved_state(tmp_path / "run", "last")["best"] == trainer.best
    assert saved_state(tmp_path / "run", "best")["best"] == trainer.best
    kept, last = (
        load_file(tmp_path / "run" / "checkpoints" / name / "learner.safetensors")
        for name in ("best", "last")
    )
    assert_same(kept, last)


def test_a_row_half_written_and_a_row_too_many_are_dropped(tmp_path: Path) -> None:
    config = tiny_config("training.epochs=3", "training.stage1_epochs=1")
    train(tmp_path / "alone", config)
    with pytest.raises(Killed):
        train(tmp_path / "cut", config, KillAt(epoch=1, step=0))
    file = tmp_path / "cut" / "metrics.jsonl"
    # The process died after the row of an epoch and before its checkpoint, and later within a row.
    file.write_text(file.read_text() + json.dumps({"epoch": 1}) + '\n{"epoch": 2, "los')
    resume(tmp_path / "cut")
    assert_same_run(tmp_path / "alone", tmp_path / "cut")


def test_a_finished_run_stays_as_it_is(tiny_run: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_run, tmp_path / "copy")
    trainer = resume(tmp_path / "copy")
    assert trainer.finished
    assert trainer.best["epoch"] >= 0
    assert_same_run(tiny_run, tmp_path / "copy")


def test_the_state_holds_everything_that_changed(tiny_run: Path) -> None:
    learner = load_file(tiny_run / "checkpoints" / "last" / "learner.safetensors")
    for part in (
        "rules.intra.value",
        "rules.cross.value",
        "rules.intra.counts",
        "rules.cross.counts",
        "generators.cross.rows",
        "generators.cross.owners",
        "generators.cross.written",
    ):
        assert part in learner
    assert learner["rules.cross.counts"].sum() > 0
    assert learner["generators.cross.written"].sum() > 0
    state = torch.load(tiny_run / "checkpoints" / "last" / "training.pt", weights_only=True)
    assert set(state["random"][0]) == {"torch", "cuda", "python", "numpy"}
    assert state["schedule"]["last_epoch"] == 16
    assert (state["epoch"], state["step"]) == (4, 0)


def test_other_labels_are_refused(tiny_run: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_run, tmp_path / "copy")
    config = tmp_path / "copy" / "config.yaml"
    config.write_text(config.read_text().replace("mask_seed: null", "mask_seed: 5"))
    with pytest.raises(RunError, match="labels or the split are not those"):
        resume(tmp_path / "copy")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("batch_size", 64, r"training\.batch_size is 64, but the run was started with 16; put that back"),
        ("optimiser", "sgd", r'training\.optimiser is "sgd", but the run was started with "adamw"'),
        ("ema", None, r"training\.ema is null, but the run was started with 0\.9"),
        ("lr", 1.0, r"training\.lr is 1\.0, but the run was started with 0\.003"),
    ],
)
def test_other_settings_are_refused(key: str, value: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        train(tmp_path, tiny_config("training.checkpoint_steps=3", "training.ema=0.9"), KillAt(0, 3))
    edit_training(tmp_path, key, value)
    with pytest.raises(RunError, match=message):
        resume(tmp_path)


def test_a_run_can_be_made_longer(tiny_run: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_run, tmp_path / "copy")
    edit_training(tmp_path / "copy", "epochs", 5)
    edit_training(tmp_path / "copy", "checkpoint_steps", 2)
    assert resume(tmp_path / "copy").next_epoch == 5
    assert metrics(tmp_path / "copy")[:4] == metrics(tiny_run)


def edit_training(run: Path, key: str, value: Any) -> None:
    content = yaml.safe_load((run / "config.yaml").read_text())
    content["training"][key] = value
    (run / "config.yaml").write_text(yaml.safe_dump(content))


class FullAt(Display):
    """No file may grow beyond a few bytes after a step, as on a full disk."""

    def __init__(self, epoch: int, step: int) -> None:
        self.place = (epoch, step)

    def step(self, epoch: int, stage: int, step: int, losses: Callable[[], dict[str, float]]) -> None:
        if (epoch, step) == self.place:
            resource.setrlimit(resource.RLIMIT_FSIZE, (16384, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def test_a_full_disk_is_told_and_leaves_the_checkpoint_to_go_on_from(tmp_path: Path) -> None:
    config = tiny_config("training.epochs=3", "training.checkpoint_steps=3")
    train(tmp_path / "alone", config)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(
            RunError, match=r"last: cannot be written \(.*File too large.*\); make room.*train\(resume="
        ):
            train(tmp_path / "cut", config, FullAt(epoch=1, step=1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    # What was half written takes no room any more.
    assert sorted(path.name for path in (tmp_path / "cut" / "checkpoints").iterdir()) == [
        "best",
        "last",
        "last.previous",
    ]
    resume(tmp_path / "cut")
    assert_same_run(tmp_path / "alone", tmp_path / "cut")


@pytest.mark.parametrize("kind", ["module", "state"])
def test_the_reason_of_the_disk_is_told_for_every_file(kind: str, tmp_path: Path) -> None:
    content = {"weights": torch.zeros(100_000)}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16384, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            (save_module if kind == "module" else save_state)(content, tmp_path / "file")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_without_a_checkpoint_the_way_out_is_named(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        train(tmp_path / "other", tiny_config("training.checkpoint_steps=1"), KillAt(epoch=0, step=2))
    with pytest.raises(RunError, match=r"'best'; no model was kept yet.*train\(resume="):
        RunFolder.open(tmp_path / "other").checkpoint("best")
    with pytest.raises(Killed):
        train(tmp_path / "gone", tiny_config(), KillAt(epoch=3, step=1))
    for checkpoint in (tmp_path / "gone" / "checkpoints").glob("last*"):
        shutil.rmtree(checkpoint)
    # Two epochs were saved: what somebody removed is not trained again without a word.
    with pytest.raises(RunError, match=r"'last' is gone; put .* back, or remove the run"):
        resume(tmp_path / "gone")


class ResumeBeside(Display):
    """Tries to resume the run, and to begin it anew, while it is being trained."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.messages = folder, list[str]()

    def epoch(self, row: dict[str, Any]) -> None:
        for second in (lambda: resume(self.folder), lambda: train(self.folder, tiny_config())):
            with pytest.raises(RunError) as refusal:
                second()
            self.messages.append(str(refusal.value))


def test_a_run_is_trained_once_at_a_time(tmp_path: Path) -> None:
    config = tiny_config("training.epochs=2", "training.stage1_epochs=1")
    train(tmp_path / "alone", config)
    beside = ResumeBeside(tmp_path / "run")
    train(tmp_path / "run", config, beside)
    assert len(beside.messages) == 4
    assert beside.messages[0].endswith(
        "run: is being trained by this process; wait for it, or stop it there."
    )
    assert "already holds a run" in beside.messages[1]
    assert_same_run(tmp_path / "alone", tmp_path / "run")


def test_two_runs_that_begin_in_one_folder_at_once(tmp_path: Path) -> None:
    config = tiny_config("training.epochs=1", "training.stage1_epochs=1")
    data = load_data(config)
    first = Trainer.start(config, data, RunFolder(tmp_path / "run"))
    (tmp_path / "run" / "config.yaml").unlink()  # the second one looked before it was there
    with pytest.raises(RunError, match="is being trained by this process"):
        Trainer.start(config, data, RunFolder(tmp_path / "run"))
    first.fit()
    assert first.finished


def test_what_a_kill_at_the_last_file_event_left_is_removed(tiny_run: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_run, tmp_path / "run")
    checkpoints = tmp_path / "run" / "checkpoints"
    names = sorted(entry.name for entry in checkpoints.iterdir())
    for left in ("best.previous", "best.previous.removed", "last.new", "last.previous.removed"):
        shutil.copytree(checkpoints / "best", checkpoints / left)
    assert resume(tmp_path / "run").finished
    assert sorted(entry.name for entry in checkpoints.iterdir()) == names
    assert_same_run(tiny_run, tmp_path / "run")
    # Between two renames it is the checkpoint itself.
    (checkpoints / "best").rename(checkpoints / "best.previous")
    resume(tmp_path / "run")
    assert (checkpoints / "best.previous").is_dir()


def test_a_log_that_finds_no_room_does_not_disturb_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_config("training.epochs=1", "training.stage1_epochs=1")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "train.log").symlink_to("/dev/full")
    assert train(tmp_path / "run", config).finished
    assert capsys.readouterr().err == ""

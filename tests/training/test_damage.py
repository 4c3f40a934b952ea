"""A damaged checkpoint costs at most the steps since the one before it, and is told."""

from __future__ import annotations

import json
import shutil
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from satl.errors import RunError, SatlWarning
from satl.inference.recogniser import Recogniser
from satl.runs.checkpoint_folders import CHECKSUMS, DamagedError, require_whole
from satl.runs.run_folder import RunFolder
from satl.training.checkpoints import load_module, save_module, save_state
from training.tiny import KillAt, Killed, assert_same_run, resume, tiny_config, train

CONFIG = ("training.checkpoint_steps=2", "training.ema=0.9", "training.epochs=3", "training.stage1_epochs=1")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run, and the same run cut off in its second epoch."""
    folder = tmp_path_factory.mktemp("damage")
    train(folder / "alone", tiny_config(*CONFIG))
    with pytest.raises(Killed):
        train(folder / "cut", tiny_config(*CONFIG), KillAt(epoch=1, step=2))
    return folder


def halve(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


@pytest.mark.parametrize("file", ["learner.safetensors", "average.safetensors", "training.pt", CHECKSUMS])
@pytest.mark.parametrize("spoil", [halve, flip, Path.unlink])
def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(
    spoil: Callable[[Path], None], file: str, runs: Path, tmp_path: Path
) -> None:
    shutil.copytree(runs / "cut", tmp_path / "cut")
    last = tmp_path / "cut" / "checkpoints" / "last"
    spoil(last / file)
    if (spoil, file) == (Path.unlink, CHECKSUMS):  # as a run of an older version
        resume(tmp_path / "cut")
    else:
        with pytest.warns(SatlWarning, match=rf"{last}/.*; {last}\.previous is used instead\.$"):
            resume(tmp_path / "cut")
    assert_same_run(runs / "alone", tmp_path / "cut")


def test_where_both_are_damaged_the_first_one_is_named(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "cut", tmp_path / "cut")
    for name in ("last", "last.previous"):
        halve(tmp_path / "cut" / "checkpoints" / name / "training.pt")
    with pytest.raises(RunError, match=r"last/training\.pt: is damaged: .*start the run again or restore"):
        resume(tmp_path / "cut")


@pytest.mark.parametrize(
    "state", [{}, {"data": "x", "random": []}, {"data": 1, "random": 3, "config": []}, ["epoch"]]
)
def test_a_state_of_another_shape_is_damage_too(state: Any, runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "cut", tmp_path / "cut")
    last = tmp_path / "cut" / "checkpoints" / "last"
    fingerprint = torch.load(last / "training.pt", weights_only=True)["data"]
    if isinstance(state, dict) and "data" in state:
        state["data"] = fingerprint
    torch.save(state, last / "training.pt")
    (last / CHECKSUMS).unlink()
    if isinstance(state, dict) and state.get("random") == []:
        with pytest.raises(RunError, match="was started with 0 process"):
            resume(tmp_path / "cut")
        return
    with pytest.warns(SatlWarning, match=r"training\.pt: does not hold the state of a training"):
        resume(tmp_path / "cut")
    assert_same_run(runs / "alone", tmp_path / "cut")


def test_a_damaged_best_model_does_not_stop_a_run(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "cut", tmp_path / "cut")
    halve(tmp_path / "cut" / "checkpoints" / "best" / "training.pt")
    with pytest.warns(
        SatlWarning, match=r"best/training\.pt: .*the next epoch that is validated takes its place"
    ):
        trainer = resume(tmp_path / "cut")
    assert trainer.finished
    assert trainer.best["epoch"] > 0
    require_whole(tmp_path / "cut" / "checkpoints" / "best")


def test_a_damaged_best_model_of_the_last_epoch_is_written_again(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        train(tmp_path / "cut", tiny_config(*CONFIG), KillAt(epoch=1, step=0))
    flip(tmp_path / "cut" / "checkpoints" / "best" / "learner.safetensors")
    with pytest.warns(SatlWarning, match=r"best/learner\.safetensors: .*it is written again"):
        resume(tmp_path / "cut")
    assert_same_run(runs / "alone", tmp_path / "cut")


def test_a_model_is_read_from_the_next_checkpoint_and_that_is_told(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "alone", tmp_path / "run")
    checkpoints = tmp_path / "run" / "checkpoints"
    flip(checkpoints / "best" / "learner.safetensors")
    with pytest.raises(DamagedError, match=r"best/learner\.safetensors: is damaged"):
        Recogniser.load(tmp_path / "run", fallback=False)
    with pytest.warns(SatlWarning, match=r"best/learner.* is damaged.*checkpoints/last is used instead"):
        Recogniser.load(tmp_path / "run")
    flip(checkpoints / "last" / "average.safetensors")
    with pytest.warns(SatlWarning, match=r"best/learner.* is damaged.*last\.previous is used instead"):
        Recogniser.load(tmp_path / "run")
    with pytest.warns(SatlWarning, match=r"last/average.* is damaged.*last\.previous is used instead"):
        Recogniser.load(tmp_path / "run", "last")
    # What a model does not need may be damaged.
    flip(checkpoints / "last.previous" / "training.pt")
    with pytest.warns(SatlWarning, match=r"last\.previous is used instead"):
        Recogniser.load(tmp_path / "run", "last")
    shutil.rmtree(checkpoints / "last.previous")
    with pytest.raises(DamagedError, match="best/learner"):
        Recogniser.load(tmp_path / "run")


def test_a_checkpoint_can_be_read_while_it_is_replaced(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path)
    done = threading.Event()

    def content(number: int) -> dict[str, torch.Tensor]:
        return {"weight": torch.full((2, 2000), float(number)), "bias": torch.full((2,), float(number))}

    def save(name: str, number: int) -> None:
        with folder.new_checkpoint(name) as path:
            for file in ("learner.safetensors", "average.safetensors"):
                save_module(content(number), path / file)
            save_state({"number": number}, path / "training.pt")

    def write() -> None:
        number = 1
        while not done.is_set():
            save("last", number)
            save("best", number)
            number += 1

    save("last", 0)
    save("best", 0)
    one, other = torch.nn.Linear(2000, 2), torch.nn.Linear(2000, 2)

    def read(place: Path) -> None:
        require_whole(place)
        load_module(one, place / "learner.safetensors")
        load_module(other, place / "average.safetensors")

    writer = threading.Thread(target=write)
    writer.start()
    seen = set[float]()
    end = time.monotonic() + 600
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", SatlWarning)
            readings = 0
            # A slow disk exchanges few checkpoints during 300 readings: read on until enough were seen.
            while readings < 300 or len(seen) <= 10:
                assert time.monotonic() < end, f"{len(seen)} checkpoints in {readings} readings"
                for name in ("last", "best"):
                    folder.read_checkpoint(name, read)
                    values = {float(value) for part in (one, other) for value in part.state_dict()["bias"]}
                    assert len(values) == 1
                    seen |= values
                    readings += 1
    finally:
        done.set()
        writer.join()


def test_what_is_synced_before_a_checkpoint_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a loss of power a name stands for content that was on the disk before it was given."""
    import os

    events: list[tuple[str, str]] = []
    fsync, replace = os.fsync, Path.replace

    def noted_fsync(handle: int) -> None:
        events.append(("sync", Path(f"/proc/self/fd/{handle}").readlink().name))
        fsync(handle)

    def noted_replace(self: Path, target: Path) -> Path:
        events.append(("name", Path(target).name))
        return replace(self, target)

    folder = RunFolder.create(tmp_path)
    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    for number in range(3):
        events.clear()
        with folder.new_checkpoint("last") as path:
            save_state({"number": number}, path / "training.pt")
        named = events.index(("name", "last"))
        assert {("sync", "training.pt"), ("sync", CHECKSUMS), ("sync", "last.new")} <= set(events[:named])
        assert events[-1] == ("sync", "checkpoints") or events.index(("sync", "checkpoints")) > named
    assert json.loads((tmp_path / "checkpoints" / "last" / CHECKSUMS).read_text()).keys() == {"training.pt"}
    assert torch.load(tmp_path / "checkpoints" / "last.previous" / "training.pt")["number"] == 1
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["last", "last.previous"]


def test_without_room_for_three_the_one_before_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder.create(tmp_path)
    for _ in range(2):
        with folder.new_checkpoint("last") as path:
            save_state({}, path / "training.pt")
    monkeypatch.setattr(shutil, "disk_usage", lambda place: shutil._ntuple_diskusage(9, 9, 0))  # type: ignore[attr-defined]
    with folder.new_checkpoint("last") as path:
        assert sorted(place.name for place in path.parent.iterdir()) == ["last", "last.new"]
        save_state({}, path / "training.pt")
    assert sorted(place.name for place in path.parent.iterdir()) == ["last", "last.previous"]


def test_a_finished_run_can_do_without_the_checkpoints_that_were_replaced(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path)
    for name in ("last", "last", "best", "epoch-2"):
        with folder.new_checkpoint(name) as path:
            save_state({}, path / "training.pt")
    folder.keep_checkpoints(None)
    assert sorted(place.name for place in path.parent.iterdir()) == ["best", "epoch-2", "last"]

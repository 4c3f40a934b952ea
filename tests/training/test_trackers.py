"""Trackers say what metrics.jsonl says, go on after a kill, and never end a training; stand-ins for the packages.

The stand-ins (tests/harness/tracker_packages) keep what they are told in files and refuse what the packages refuse.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import satl
from satl.errors import ConfigError, SatlWarning
from satl.inference.side_by_side import runs_side_by_side
from satl.runs.data import load_data
from satl.runs.reading import override_config
from satl.training import trainer as trainer_module
from satl.training.display import Display
from satl.training.tracking import TrackedRun, Tracker, curves
from satl.training.trainer import Interrupted, Trainer
from training.tiny import TINY, KillAt, Killed, metrics, resume, tiny_config, train

PACKAGES = Path(__file__).parents[1] / "harness" / "tracker_packages"
SHORT = ("training.epochs=2", "training.stage1_epochs=1")


class Writer:
    """Keeps what it is told, by the folder that it writes to; like the real one it drops what is purged."""

    drawn: dict[str, dict[tuple[str, int], float]] = {}  # noqa: RUF012 - shared by all writers, as a disk is

    def __init__(self, folder: str, purge_step: int) -> None:
        kept = self.drawn.get(folder, {})
        self.points = {place: value for place, value in kept.items() if place[1] < purge_step}
        self.drawn[folder] = self.points

    def add_scalar(self, name: str, value: float, step: int) -> None:
        assert (name, step) not in self.points
        self.points[name, step] = value

    def flush(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The stand-ins are installed, offline and with a file for MLflow."""
    for name in ("wandb", "mlflow", "mlflow.entities", "tensorboard"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(PACKAGES))
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    monkeypatch.setattr(Writer, "drawn", {})
    for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path / 'mlflow.json'}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")  # so that what satl sets is undone


def expected(folder: Path) -> dict[tuple[str, int], float]:
    return {(name, row["epoch"] + 1): value for row in metrics(folder) for name, value in curves(row).items()}


def in_wandb(folder: Path) -> list[dict[str, Any]]:
    (file,) = (folder / "wandb").iterdir()  # one run, also after a resume
    return [json.loads(line) for line in file.read_text().splitlines()]


def wandb_points(folder: Path) -> dict[tuple[str, int], float]:
    lines = [line for line in in_wandb(folder) if "step" in line]
    return {(name, line["step"]): value for line in lines for name, value in line.items() if name != "step"}


def in_mlflow(folder: Path) -> dict[str, Any]:
    (run,) = json.loads((folder / "mlflow.json").read_text())["runs"].values()
    return run


@pytest.mark.usefixtures("packages")
def test_every_epoch_is_told_once_also_after_a_kill(tmp_path: Path) -> None:
    config = tiny_config(
        "training.trackers=[tensorboard, wandb, mlflow]", "training.epochs=4", "training.checkpoint_epochs=2"
    )
    data, run = load_data(config), tmp_path / "run"
    with pytest.raises(Killed):
        train(run, config, KillAt(epoch=3, step=1), data)
    assert {step for _, step in Writer.drawn[str(run / "tensorboard")]} == {1, 2, 3}
    assert in_wandb(run)[-1] == {"exit_code": 1}
    assert in_mlflow(tmp_path)["status"] == "FAILED"

    resume(run)
    drawn = Writer.drawn[str(run / "tensorboard")]
    assert drawn == expected(run) == wandb_points(run)
    assert {step for _, step in drawn} == {1, 2, 3, 4}
    names = {name for name, _ in drawn}
    assert {"loss/total", "validation/mAP", "threshold/cross mean", "pseudo-labels/union emitted"} <= names

    best = max((row["val"]["mAP"], -row["epoch"]) for row in metrics(run))
    summary = {"best/epoch": 1 - best[1], "best/mAP": best[0]}
    lines = in_wandb(run)
    assert lines[0] == {"project": "satl", "name": "run", "lr": config.training.lr}
    assert lines[-2:] == [{"summary": summary}, {"exit_code": 0}]
    kept = in_mlflow(tmp_path)
    assert (kept["name"], kept["status"]) == ("run", "FINISHED")
    assert (kept["params"]["training.lr"], kept["params"]["method.name"]) == ("0.003", "sst+satl")
    points = {(name, int(at)): value for name, of in kept["metrics"].items() for at, value in of.items()}
    assert points == expected(run) | {(name, 0): value for name, value in summary.items()}


@pytest.mark.usefixtures("packages")
def test_nothing_is_told_unless_asked_for(tmp_path: Path) -> None:
    train(tmp_path / "run", tiny_config("training.epochs=1", "training.stage1_epochs=1"))
    assert Writer.drawn == {}
    assert not {"wandb", "mlflow"} & sys.modules.keys()
    assert not (tmp_path / "run" / "trackers.json").exists()


class Remarks(Display):
    def __init__(self) -> None:
        self.told: list[str] = []

    def remark(self, text: str) -> None:
        self.told.append(text)


@pytest.mark.usefixtures("packages")
def test_a_tracker_that_fails_is_told_once_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    display, run = Remarks(), tmp_path / "run"
    train(run, tiny_config("training.trackers=[wandb, mlflow]", *SHORT), display)
    wandb, mlflow = (text for text in display.told if text.startswith("the tracker "))
    assert wandb == (
        "the tracker wandb has failed (UsageError: No API key configured. Use `wandb login` to log in) and is "
        "told nothing more; the training goes on"
    )
    assert "mlflow has failed (MlflowException: API request to http://127.0.0.1:9 failed)" in mlflow
    assert len(metrics(run)) == 2
    log = (run / "train.log").read_text()
    assert log.count(wandb) == log.count(mlflow) == 1
    assert (run / "checkpoints" / "best").exists()


@pytest.mark.usefixtures("packages")
def test_a_full_disk_ends_the_tracker_that_met_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FULL_DISK_AT_STEP", "1")
    display, run = Remarks(), tmp_path / "run"
    train(run, tiny_config("training.trackers=[wandb, mlflow]", *SHORT), display)
    (told,) = (text for text in display.told if text.startswith("the tracker "))
    assert "wandb has failed (OSError: [Errno 28] No space left on device)" in told
    assert wandb_points(run) == {}
    assert in_mlflow(tmp_path)["status"] == "FINISHED"


@pytest.mark.usefixtures("packages")
def test_nobody_is_asked_for_a_login_at_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdin", terminal)
    monkeypatch.delenv("WANDB_MODE")
    display = Remarks()
    train(tmp_path / "run", tiny_config("training.trackers=[wandb]", *SHORT), display)
    assert any("UsageError" in text for text in display.told)
    assert sys.stdin is terminal


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_without_the_package_it_says_what_to_install(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satl.training.tracking.find_spec", lambda package: None)
    with pytest.raises(ConfigError, match=rf"pip install 'satl\[{name}\]'"):
        train(tmp_path / "run", tiny_config(f"training.trackers=[{name}]"))
    assert not (tmp_path / "run").exists()


def test_the_key_of_before_keeps_working(tmp_path: Path) -> None:
    with pytest.warns(SatlWarning, match=r"training.tensorboard is now training.trackers: \[tensorboard\]"):
        config = override_config(TINY, ["training.tensorboard=true"], "here")
    assert config.training.trackers == ("tensorboard",)
    assert tiny_config("training.tensorboard=false").training.trackers == ()
    with pytest.raises(ConfigError, match="names a tracker twice"):
        tiny_config("training.trackers=[wandb, wandb]")
    with pytest.raises(ConfigError, match="wanbd"):
        tiny_config("training.trackers=[wanbd]")

    train(tmp_path / "new", tiny_config("training.epochs=1", "training.stage1_epochs=1"))
    text = (tmp_path / "new" / "config.yaml").read_text()
    old = tmp_path / "old"
    (tmp_path / "new").rename(old)
    train(tmp_path / "new", tiny_config("training.epochs=1", "training.stage1_epochs=1"))
    (old / "config.yaml").write_text(text.replace("trackers: []", "tensorboard: false"))
    assert [entry["settings"] for entry in runs_side_by_side([old, tmp_path / "new"])] == [{}, {}]


class Mine(Tracker):
    """Keeps everything, as the documentation says that it is told."""

    def __init__(self) -> None:
        self.runs: list[TrackedRun] = []
        self.told: list[tuple[int, Mapping[str, float]]] = []
        self.ends: list[tuple[str, Mapping[str, float]]] = []

    def start(self, run: TrackedRun) -> str:
        self.runs.append(run)
        return f"kept {len(self.runs)}"

    def epoch(self, number: int, metrics: Mapping[str, float]) -> None:
        self.told.append((number, metrics))

    def end(self, how: str, best: Mapping[str, float]) -> None:
        self.ends.append((how, best))


def test_a_tracker_of_ones_own_is_told_of_stops_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {key: value for key, value in TINY.items() if key != "data"}
    settings = {"data.scenes": TINY["data"]["scenes"], "training.epochs": 3}
    mine, other = Mine(), Mine()

    class Gone(Tracker):
        def epoch(self, number: int, metrics: Mapping[str, float]) -> None:
            raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_all_stop", lambda trainer, asked, step=0: trainer.next_epoch == 1)
        with pytest.raises(Interrupted):
            satl.train(
                config=config, set=settings, out=tmp_path / "run", trackers=[mine, Gone(), other], quiet=True
            )
    satl.train(resume=tmp_path / "run", trackers=[mine, other], quiet=True)
    assert [run.first_epoch for run in mine.runs] == [1, 2]
    assert [run.kept for run in mine.runs] == [None, "kept 1"]
    assert mine.runs[0].path == tmp_path / "run"
    assert mine.runs[0].settings["training.epochs"] == 3
    assert mine.runs[0].classes == tuple(json.loads((tmp_path / "run" / "classes.json").read_text()))
    assert [number for number, _ in mine.told] == [1, 2, 3]
    assert [points for _, points in mine.told] == [curves(row) for row in metrics(tmp_path / "run")]
    assert mine.told == other.told
    assert [how for how, _ in mine.ends] == ["stopped", "finished"]
    kept = json.loads((tmp_path / "run" / "trackers.json").read_text())
    assert kept == {"Mine": "kept 2", "Mine 2": "kept 2"}
    assert "Gone has failed (RuntimeError) and" in (tmp_path / "run" / "train.log").read_text()


def test_what_is_no_tracker_is_refused(tmp_path: Path) -> None:
    for wrong in ("wandb", Mine):
        with pytest.raises(ConfigError, match=r"is no satl\.Tracker"):
            satl.train(config=TINY, out=tmp_path / "run", trackers=[wrong], quiet=True)  # type: ignore[list-item]
    assert not (tmp_path / "run").exists()


def test_only_the_first_process_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config(*SHORT)
    mine = Mine()

    class Second:
        def __init__(self, accelerator: Any) -> None:
            self.accelerator = accelerator

        def __getattr__(self, name: str) -> Any:
            return False if name == "is_main_process" else getattr(self.accelerator, name)

    choose = trainer_module.choose_accelerator
    monkeypatch.setattr(trainer_module, "choose_accelerator", lambda device: Second(choose(device)))
    trainer = Trainer.start(
        config, load_data(config), trainer_module.RunFolder(tmp_path / "run"), None, [mine]
    )
    trainer.saver.folder.checkpoints.mkdir(parents=True)  # which the first process would have made
    trainer.fit()
    assert (mine.runs, mine.told, mine.ends) == ([], [], [])

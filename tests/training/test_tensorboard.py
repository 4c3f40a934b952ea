"""Curves for TensorBoard say what metrics.jsonl says; a stand-in takes the place of the package."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from satl.errors import ConfigError
from satl.runs.data import load_data
from satl.training.tensorboard import curves
from training.tiny import KillAt, Killed, metrics, resume, tiny_config, train


class Writer:
    """Keeps what it is told, by the folder that it writes to; like the real one it drops what is purged."""

    drawn: dict[str, dict[tuple[str, int], float]] = {}  # noqa: RUF012 - shared by all writers, as a disk is

    def __init__(self, folder: str, purge_step: int) -> None:
        kept = self.drawn.get(folder, {})
        self.points = {place: value for place, value in kept.items() if place[1] < purge_step}
        self.drawn[folder] = self.points
        self.closed = False

    def add_scalar(self, name: str, value: float, step: int) -> None:
        assert (name, step) not in self.points
        self.points[name, step] = value

    def flush(self) -> None: ...

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    monkeypatch.setattr(Writer, "drawn", {})


def expected(folder: Path) -> dict[tuple[str, int], float]:
    return {(name, row["epoch"] + 1): value for row in metrics(folder) for name, value in curves(row).items()}


@pytest.mark.usefixtures("package")
def test_every_epoch_is_drawn_once_also_after_a_kill(tmp_path: Path) -> None:
    config = tiny_config("training.tensorboard=true", "training.epochs=4", "training.checkpoint_epochs=2")
    data = load_data(config)
    with pytest.raises(Killed):
        train(tmp_path / "run", config, KillAt(epoch=3, step=1), data)
    assert {step for _, step in Writer.drawn[str(tmp_path / "run" / "tensorboard")]} == {1, 2, 3}
    resume(tmp_path / "run")
    drawn = Writer.drawn[str(tmp_path / "run" / "tensorboard")]
    assert drawn == expected(tmp_path / "run")
    assert {step for _, step in drawn} == {1, 2, 3, 4}
    names = {name for name, _ in drawn}
    assert {"loss/total", "validation/mAP", "threshold/cross mean", "pseudo-labels/union emitted"} <= names


@pytest.mark.usefixtures("package")
def test_nothing_is_drawn_unless_asked_for(tmp_path: Path) -> None:
    train(tmp_path / "run", tiny_config("training.epochs=1", "training.stage1_epochs=1"))
    assert Writer.drawn == {}


def test_without_the_package_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match=r"pip install 'satl\[tensorboard\]'"):
        train(tmp_path / "run", tiny_config("training.tensorboard=true"))
    assert not (tmp_path / "run").exists()

"""Two processes on every kind of folder: the second one is refused in one sentence, and nothing is spoiled."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from chaos.comparing import difference, snapshot
from chaos.forks import call, satl
from completion.drawn import Drawn
from experiments.grids import write_grid
from satl.completion.outputs.completed_folder import CompletedFolder
from satl.experiments.experiment_folder import ExperimentFolder
from satl.images.store import JOURNAL
from satl.labels import read_table, write_table
from satl.models import Backbone
from satl.runs.run_lock import RunLock
from satl.scenes import write_scenes
from training.tiny import TINY


@contextmanager
def in_another_process(hold: Callable[[], object]) -> Iterator[None]:
    """Hold a lock in a child until the context ends."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            held = hold()
            os.write(writing, b"held")
            while held is not None:
                time.sleep(1)
        finally:
            os._exit(1)
    try:
        assert os.read(reading, 4) == b"held"
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)


def hold_experiment(path: Path) -> object:
    context = ExperimentFolder(path).locked()
    context.__enter__()
    return context


def hold_journal(path: Path) -> object:
    import fcntl

    path.mkdir(parents=True, exist_ok=True)
    stream = (path / JOURNAL).open("ab")
    fcntl.flock(stream, fcntl.LOCK_EX)
    return stream


def hold_run(path: Path) -> object:
    path.mkdir(parents=True, exist_ok=True)
    return RunLock(path, "written")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("inputs")
    write_scenes(base / "scenes", 12, size=32, seed=3)
    write_table(read_table(base / "scenes" / "labels.csv").with_truth(None), base / "labels.csv")
    Backbone("satl_tiny").save_weights(base / "tiny.safetensors")
    (base / "tiny.yaml").write_text(
        yaml.safe_dump({**TINY, "training": {**TINY["training"], "epochs": 1, "stage1_epochs": 1}})
    )
    write_grid(base / "grid.yaml")
    made = call(
        lambda place: satl("train", place / "tiny.yaml", "-o", place / "run", "--quiet"),
        base,
        base / "printed",
    )
    assert made.code == 0, made.text
    return base


def commands(base: Path, out: Path) -> dict[str, tuple[tuple[object, ...], Callable[[Path], object]]]:
    pictures = (base / "labels.csv", "--images", base / "scenes")
    network = ("--backbone", "satl_tiny", "--weights", base / "tiny.safetensors", "--size", 32)
    return {
        "run": (("train", base / "tiny.yaml", "-o", out, "--quiet"), hold_run),
        "grid": (("experiment", base / "grid.yaml", "-o", out, "--quiet"), hold_experiment),
        "store": (("pack", *pictures, "-o", out, "--size", 32), hold_journal),
        "features": (("embed", *pictures, "-o", out, *network, "--quiet"), hold_run),
        "predictions": (("predict", base / "run", base / "scenes", "-o", out), hold_run),
    }


@pytest.mark.parametrize("kind", ["run", "grid", "store", "features", "predictions"])
def test_the_second_process_is_refused_and_goes_on_after_the_first(
    kind: str, inputs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command, hold = commands(inputs, out)[kind]
    with in_another_process(lambda: hold(out)):
        before = snapshot(tmp_path)
        second = call(lambda _: satl(*command), out, tmp_path.parent / f"{kind}.txt")
        assert second.is_sentence, second.text
        assert "process" in second.text
        assert (
            difference(before, {k: v for k, v in snapshot(tmp_path).items() if k != "out/checkpoints/"}) == ""
        )
    if kind != "grid":  # which would start processes of its own
        third = call(lambda _: satl(*command), out, tmp_path.parent / f"{kind}.txt")
        assert third.code == 0, third.text


def test_completions_at_once_leave_one_of_them(tmp_path: Path) -> None:
    Drawn(300, ("boat", "cat"), prevalence=(0.4, 0.2)).write(tmp_path, scores="scores.parquet")
    out = tmp_path / "out"

    def complete(precision: str) -> None:
        scores, labels = tmp_path / "scores.parquet", tmp_path / "labels.csv"
        satl(
            *("complete", "--scores", scores, "--labels", labels, "-o", out, "--force", "--quiet"),
            *("--precision", precision),
        )

    def read() -> bytes:
        return CompletedFolder.open(out).changes.read_bytes()

    alone = set()
    for precision in ("0.8", "0.9"):
        assert call(lambda _, p=precision: complete(p), out, tmp_path / "printed").code == 0
        alone.add(read())
    children = []
    for number, precision in enumerate(("0.8", "0.9") * 2):
        child = os.fork()
        if child == 0:
            ended = call(lambda _, p=precision: complete(p), out, tmp_path / f"printed{number}")
            os._exit(ended.code & 127)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * 4, [(tmp_path / f"printed{number}").read_text() for number in range(4)]
    assert read() in alone
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]

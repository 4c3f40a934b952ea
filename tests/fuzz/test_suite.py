"""The suite itself: its corpus is valid and small, it finds faults, keeps their inputs, and says how to repeat them."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import fuzz.targets  # noqa: F401  (registers every target)
from fuzz.runner import Suite, lines, make_input, shared_out, summary, try_input
from fuzz.targets.registry import CORPUS, TARGETS, Target
from satl.errors import SatlError

TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SATL_CACHE", "off")


def test_the_corpus_is_small() -> None:
    assert sum(file.stat().st_size for file in CORPUS.rglob("*") if file.is_file()) < 300_000


@pytest.mark.parametrize("name", list(TARGETS))
def test_every_seed_is_accepted(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    for number, data in enumerate(target.inputs):
        work = tmp_path / str(number)
        target.prepare(work)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert target.check(work, data) or target.name == "labels/random_table"


def test_an_input_is_the_same_for_ever() -> None:
    for target in list(TARGETS.values())[::7]:
        assert make_input(target, 5, 9) == make_input(target, 5, 9)
        assert len({make_input(target, 5, number) for number in range(30)}) > 10


def planted(work: Path, data: bytes) -> bool:
    kind = sum(data) % 8
    if kind == 0:
        raise KeyError("planted")
    if kind == 1:
        raise SatlError("is refused")
    if kind == 2:
        os.kill(os.getpid(), 11)
    if kind == 3:
        bytearray(3 << 30)
    return True


def test_faults_are_found_counted_and_kept(tmp_path: Path) -> None:
    target = Target("labels/wide.csv", "text", planted)
    outcome = Suite(0, tmp_path / "kept").run([target], {target.name: 120})[target.name]
    assert outcome.inputs == 120
    assert outcome.accepted
    assert outcome.refused
    assert outcome.accepted + outcome.refused + sum(outcome.faults.values()) == 120
    kinds = " ".join(outcome.faults)
    assert "KeyError" in kinds
    assert "SIGSEGV" in kinds
    assert "MemoryError" in kinds
    assert "planted" in kinds  # the function it came from
    for what, file in outcome.kept:
        assert "SIGSEGV" in what or try_input(target, tmp_path, file.read_bytes())[0] != "refused"
    assert any("KeyError" in line for line in lines(target.name, outcome))
    assert "120" in summary({target.name: outcome})


def test_an_input_that_never_ends_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.runner._KILL_AFTER", 1)

    def check(work: Path, data: bytes) -> bool:
        while sum(data) % 3 == 0:
            pass
        return True

    outcome = Suite(0, tmp_path).run([Target("labels/wide.csv", "text", check)], {"labels/wide.csv": 4})
    found = outcome["labels/wide.csv"]
    assert found.inputs == 4
    assert found.accepted + sum(found.faults.values()) == 4


def test_memory_that_was_asked_for_and_refused_is_a_fault(tmp_path: Path) -> None:
    def check(work: Path, data: bytes) -> bool:
        try:
            bytearray(1 << 60)
        except MemoryError:
            raise SatlError("is too large") from None
        return True

    came, what = try_input(Target("labels/wide.csv", "text", check), tmp_path, b"")
    assert came == "fault"
    assert "memory" in str(what)


def test_inputs_are_shared_out() -> None:
    counts = shared_out(list(TARGETS.values()), 20_000)
    assert sum(counts.values()) == 20_000
    assert min(counts.values()) >= 20


def run_program(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH", ""))))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "fuzz", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        check=False,
    )


def test_the_program_counts(tmp_path: Path) -> None:
    done = run_program("--count", "300", "--only", "labels/*", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Only satl's own error came out." in done.stdout
    assert "labels/wide.csv" in done.stdout
    file = CORPUS / "labels/wide.csv"
    assert (
        run_program("--only", "labels/wide.csv", "--repeat", str(file), cwd=tmp_path).stdout == "accepted\n"
    )


def test_what_the_time_was_too_short_for_is_said(tmp_path: Path) -> None:
    done = run_program("--count", "300", "--only", "labels/*", "--seconds", "0", cwd=tmp_path)
    assert done.returncode == 1
    assert "The time was over before the last 300 inputs." in done.stdout


@pytest.mark.slow
def test_twenty_thousand_inputs(tmp_path: Path) -> None:
    done = run_program("--count", "20000", "--jobs", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr

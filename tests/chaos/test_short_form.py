"""The chaos suite itself: its short form, and that it would notice what it looks for."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.comparing import difference, snapshot, strays
from chaos.forks import TRACEBACK, call
from chaos.layer import COUNT, FULL, KILL, SHORT, Fault, build_shim
from chaos.suite import spread, unsynced

SUITE = Path(__file__).with_name("suite.py")


@pytest.mark.slow
def test_commands_that_are_killed_or_starved_end_with_the_same_bits() -> None:
    finished = subprocess.run(
        [sys.executable, str(SUITE), "--short", "--jobs", "2"], capture_output=True, text=True, check=False
    )
    print(finished.stdout)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    counts = re.search(r"^all +(\d+) +(\d+) +(\d+) +(\d+)", finished.stdout, re.MULTILINE)
    assert counts is not None
    kills, errors, same, failures = map(int, counts.groups())
    assert kills > 50
    assert same == kills + errors
    assert failures == 0


def write_two(place: Path) -> None:
    (place / "a").write_text("first")
    (place / "b").write_text("second")
    (place / "a").rename(place / "c")


def test_without_a_compiler_python_operations_are_counted_and_killed(tmp_path: Path) -> None:
    place, log = tmp_path / "place", tmp_path / "log"
    place.mkdir()
    assert call(write_two, place, tmp_path / "printed", Fault(COUNT, log=log)).code == 0
    assert [line.split("\t")[0] for line in log.read_text().splitlines()] == ["open", "open", "name"]
    for at, left in ((1, []), (2, ["a"]), (3, ["a", "b"])):
        for file in place.iterdir():
            file.unlink()
        assert call(write_two, place, tmp_path / "printed", Fault(KILL, at)).killed
        assert sorted(file.name for file in place.iterdir()) == left


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library, reason = build_shim(tmp_path_factory.mktemp("shim"))
    if library is None:
        pytest.skip(reason)
    return library


@pytest.mark.parametrize(
    ("fault", "code", "content"),
    [
        (Fault(FULL, 2), TRACEBACK, {"a": "first", "b": "sec"}),
        (Fault(SHORT), 0, {"b": "second", "c": "first"}),
        (Fault(KILL, 4), -signal.SIGKILL, {"a": "first", "b": ""}),
    ],
)
def test_the_library_sees_every_write(
    fault: Fault, code: int, content: dict[str, str], shim: Path, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    program = f"""
import sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from chaos.forks import call
from chaos.layer import Fault
from chaos.test_short_form import write_two
print(call(write_two, Path({str(place)!r}), Path({str(tmp_path / "printed")!r}), {fault!r}).code)
"""
    finished = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LD_PRELOAD": str(shim)},
    )
    assert finished.stdout.split()[-1:] == [str(code)], finished.stderr
    assert {file.name: file.read_text() for file in place.iterdir()} == content


def test_numbers_are_spread_over_all_operations() -> None:
    assert spread(3, 5) == [1, 2, 3]
    assert spread(100, 4) == [1, 34, 67, 100]
    assert spread(9, 1) == [9]
    assert spread(0, 4) == []


def test_a_wrong_order_of_writing_is_noticed() -> None:
    good = [
        ["write", "/w/.t.partial", ""],
        ["sync", "/w/.t.partial", ""],
        ["name", "/w/.t.partial", "/w/t"],
        ["sync", "/w", ""],
    ]
    assert unsynced(good) == []
    assert unsynced([line for line in good if line[1:2] != ["/w"]]) == ["names in /w are not synced"]
    assert unsynced([good[0], *good[2:]]) == ["/w/.t.partial before it was synced"]
    within = [["write", "/w/c.new/f", ""], ["name", "/w/c.new", "/w/c"], ["sync", "/w", ""]]
    assert unsynced(within) == ["/w/c.new/f before it was synced"]


def test_differences_and_strays_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 0, "train_seconds": 1.5}\n')
    before = snapshot(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 0, "train_seconds": 2.5}\n')
    assert difference(before, snapshot(tmp_path)) == ""
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 1, "train_seconds": 2.5}\n')
    (tmp_path / "empty").mkdir()
    assert difference(before, snapshot(tmp_path)) == "empty/ (too many), metrics.jsonl (differs)"
    assert strays(tmp_path) == []
    (tmp_path / ".t.0123.partial.csv").touch()
    (tmp_path / "last.removed").mkdir()
    assert strays(tmp_path) == [".t.0123.partial.csv", "last.removed"]

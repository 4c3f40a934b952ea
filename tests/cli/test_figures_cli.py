from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reports.synthetic import write_run

Satl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for method in ("sst", "sst+satl"):
        write_run(tmp_path / "runs" / method, method, images=60)
    return tmp_path / "runs"


def test_one_line_for_each_figure(satl: Satl, runs: Path) -> None:
    code, out, err = satl("figures", runs, "--format", "svg", "--only", "13,4, 10")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert [int(re.match(r"figure +(\d+)  ", line)[1]) for line in lines] == [4, 10, 13]  # type: ignore[index]
    assert lines[0].endswith(f": {runs / 'figures' / 'figure-04-ranking.svg'}")
    assert "not drawn, needs runs that differ in method.thresholds.rate only" in lines[1]
    written = sorted(path.name for path in (runs / "figures").iterdir())
    assert written == ["figure-04-ranking.svg", "figure-13-loss-curves.svg"]


def test_several_folders_and_formats(satl: Satl, runs: Path, tmp_path: Path) -> None:
    folders = [runs / "sst", runs / "sst+satl"]
    code, out, _ = satl("figures", *folders, "-o", tmp_path / "out", "--format", "png,svg", "--only", "7")
    assert code == 0
    assert out.endswith("figure-07-precision-by-proportion.png, .svg\n")
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".png", ".svg"}


def test_a_run_is_scored_first_where_nobody_did(satl: Satl, tiny_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    code, out, err = satl("figures", run, "--only", "1", "--format", "svg")
    assert (code, err) == (0, f"Scoring the training images of {run} (once)\n")
    assert (run / "record.npz").is_file()
    first = (run / "figures" / "figure-01-score-histograms.svg").read_bytes()
    code, again, err = satl("figures", run, "--only", "1", "--format", "svg")
    assert (code, again, err) == (0, out, "")
    assert (run / "figures" / "figure-01-score-histograms.svg").read_bytes() == first


@pytest.mark.filterwarnings("error")
def test_characters_that_no_font_has_are_told_in_one_sentence(satl: Satl, tmp_path: Path) -> None:
    signs = [chr(0x12000 + number) for number in range(25)]  # cuneiform
    run = write_run(tmp_path / "one", "sst+satl", classes=["cat", "dog", f"hat {signs[0]}"], images=60)
    code, out, err = satl("figures", run, "--format", "svg,pdf,png", "--only", "1,6,8")
    assert (code, out.count("\n")) == (0, 3)
    assert err == (
        f"Boxes stand for {signs[0]}, which no font here has: install one that has them, such as Noto Sans CJK or Noto "
        "Emoji, and draw again.\n"
    )
    run = write_run(tmp_path / "many", "sst+satl", classes=signs, images=60)
    err = satl("figures", run, "--format", "svg", "--only", "6")[2]
    assert " and 5 more characters, which no font here has" in err


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--only", "0"), "--only 0: there is no such figure"),
        (("--only", "six"), "--only six: give numbers from 1 to 13"),
        (("--format", "gif"), "--format gif: there is no such format"),
    ],
)
def test_wrong_options(satl: Satl, runs: Path, options: tuple[str, ...], part: str) -> None:
    code, out, err = satl("figures", runs, *options)
    assert (code, out) == (2, "")
    assert part in err
    assert err.count("\n") == 1
    assert not (runs / "figures").exists()


def test_a_place_that_cannot_be_written_to(satl: Satl, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "afile").write_text("mine")
    for out, words in (
        (tmp_path / "afile" / "f", f"{tmp_path / 'afile'} is a file, not a folder"),
        (tmp_path / "afile", "is a file, not a folder"),
        ("/proc/f", "cannot be written (No such file or directory)"),
    ):
        code, printed, err = satl("figures", runs, "-o", out, "--only", "3", "--format", "svg")
        assert (code, printed) == (2, "")
        assert err == f"error: --out {out}: {words}; give another place.\n"


def test_folders_without_runs(satl: Satl, tmp_path: Path) -> None:
    for folder, part in ((tmp_path, "holds no run"), (tmp_path / "gone", "is not a folder")):
        code, out, err = satl("figures", folder)
        assert (code, out) == (2, "")
        assert part in err
    assert list(tmp_path.iterdir()) == []

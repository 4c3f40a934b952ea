from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from training.tiny import TINY, assert_same_run, metrics, tiny_config, train

Satl = Callable[..., tuple[int, str, str]]


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "satl", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def wait_for_epochs(process: subprocess.Popen[str], run: Path, number: int) -> None:
    file = run / "metrics.jsonl"
    while process.poll() is None and not (file.exists() and file.read_text().count("\n") >= number):
        time.sleep(0.01)


def test_ctrl_c_then_a_kill_then_the_same_end(satl: Satl, tiny_yaml: Path, tmp_path: Path) -> None:
    settings = ("training.checkpoint_steps=1", "training.epochs=12", "training.stage1_epochs=3")
    options = [part for setting in settings for part in ("--set", setting)]
    run = tmp_path / "cut"
    process = start("train", tiny_yaml, "--out", run, *options)
    wait_for_epochs(process, run, 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert out == ""
    last = err.strip().splitlines()[-1]
    assert last.startswith("stopped ")
    assert last.endswith(f"resume with `satl train --resume {run}`.")
    assert "Traceback" not in err
    done = len(metrics(run))
    assert 2 <= done < 12

    process = start("train", "--resume", run)
    wait_for_epochs(process, run, done + 2)
    process.kill()
    process.communicate(timeout=600)
    assert process.returncode == -signal.SIGKILL
    assert done < len(metrics(run)) < 12

    code, out, _ = satl("train", "--resume", run)
    assert code == 0
    assert "is finished. Best validation mAP" in out
    assert f"satl evaluate {run}" in out
    train(tmp_path / "alone", tiny_config(*settings))
    assert_same_run(tmp_path / "alone", run)


def test_train_shows_what_happens(satl: Satl, tiny_yaml: Path, tmp_path: Path) -> None:
    settings = (
        "--set",
        "training.epochs=2",
        "--set",
        "training.stage1_epochs=1",
        "--set",
        "training.lr=1e-3",
    )
    code, out, err = satl("train", tiny_yaml, *settings, "--out", tmp_path / "run")
    assert code == 0
    assert "64 training and 24 validation images, 24 classes" in err
    assert "% of the training cells known" in err
    lines = [line for line in err.splitlines() if line.startswith("epoch ")]
    assert len(lines) == 2
    assert "stage 1" in lines[0]
    for part in ("stage 2", "pseudo-labels", "thresholds", "classification", "ranking", "val mAP"):
        assert part in lines[1]
    saved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert saved["training"]["lr"] == 1e-3
    assert str(tmp_path / "run") in out


def test_quiet_shows_nothing_but_the_end(satl: Satl, tiny_yaml: Path, tmp_path: Path) -> None:
    options = ("--set", "training.epochs=1", "--set", "training.stage1_epochs=1", "--quiet")
    code, out, err = satl("train", tiny_yaml, *options, "-o", tmp_path / "run")
    assert (code, err) == (0, "")
    assert out.count("\n") == 1


def test_a_finished_run_is_left_alone(satl: Satl, tiny_run: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_run, tmp_path / "run")
    code, out, err = satl("train", "--resume", tmp_path / "run")
    assert (code, err) == (0, "")
    assert "was finished before; nothing was done" in out
    assert_same_run(tiny_run, tmp_path / "run")
    assert (tmp_path / "run" / "train.log").read_text() == (tiny_run / "train.log").read_text()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ((), "satl train needs CONFIG or --recipe, and --out RUN; or --resume RUN alone"),
        (("x.yaml",), "satl train needs CONFIG or --recipe, and --out RUN; or --resume RUN alone"),
        (("x.yaml", "--resume", "run"), "takes no CONFIG and no other option"),
        (("--resume", "run", "--set", "training.epochs=3"), "takes no CONFIG and no other option"),
        (("--resume", "run", "--out", "other"), "takes no CONFIG and no other option"),
        (("--resume", "run", "--seed", "0"), "takes no CONFIG and no other option"),
        (("x.yaml", "--recipe", "coco/sst", "--out", "run"), "needs CONFIG or --recipe"),
        (("--recipe", "coco/sst", "--out", "run"), "--recipe and --data DIR"),
        (("x.yaml", "--data", "folder", "--out", "run"), "--recipe and --data DIR"),
        (
            ("--recipe", "coco/sst+satle", "--data", "x", "--out", "run"),
            "no such recipe (did you mean 'coco/sst+satl'?)",
        ),
    ],
)
def test_the_two_ways_to_call_train(satl: Satl, arguments: tuple[str, ...], part: str) -> None:
    code, out, err = satl("train", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert part in err


def test_from_pictures_to_predictions_as_a_user_does_it(satl: Satl, pictures: Path, tmp_path: Path) -> None:
    table = tmp_path / "known.csv"
    code, out, _ = satl("mask", pictures / "labels.csv", "--proportion", "0.5", "--seed", "1", "-o", table)
    assert code == 0
    truth = table.with_name("known.truth.csv")
    assert truth.exists()
    code, out, _ = satl("inspect", table, "--images", pictures, "--truth", truth)
    assert code == 0
    assert "60 looked for: 0 missing, 0 unreadable" in out

    content = {key: value for key, value in TINY.items() if key != "data"}
    content["data"] = {"table": "known.csv", "images": str(pictures), "truth": "known.truth.csv"}
    content["images"] = {**TINY["images"], "store_size": 40}
    content["training"] = {**TINY["training"], "epochs": 2, "stage1_epochs": 1}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content))
    process = start("train", tmp_path / "config.yaml", "--out", tmp_path / "run")
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert "54 training and 6 validation images" in err
    assert "precision" in (tmp_path / "run" / "metrics.jsonl").read_text()
    code, out, _ = satl("evaluate", tmp_path / "run")
    assert code == 0
    assert "split val: 6 images" in " ".join(out.split())
    process = start("predict", tmp_path / "run", pictures, "-o", tmp_path / "predictions.csv")
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert "Wrote 60 images x 24 classes" in out
    assert (tmp_path / "predictions.csv").read_text().count("\n") == 1 + 60 * 24

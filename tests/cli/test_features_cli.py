"""Every command on a run that has features and never saw a picture."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
import yaml
from safetensors.torch import load_file

from satl.features import FeatureFolder
from satl.features.feature_folder import FeatureWriter
from satl.scores import read_scores

Satl = Callable[..., tuple[int, str, str]]
NUM, VIEWS, DIM = 400, 2, 8
IDS = [f"p/{row}.jpg" for row in range(NUM)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """labels.csv, features of two views, run.yaml; do not change it."""
    place = tmp_path_factory.mktemp("features")
    draw = np.random.default_rng(0)
    truth = draw.random((NUM, 2)) < 0.4
    means = 3 * np.eye(2, DIM)[:, ::-1]
    features = (truth @ means)[:, None] + 0.7 * draw.normal(size=(NUM, VIEWS, DIM)) + 2
    FeatureFolder.write(place / "features", IDS, features, {"backbone": "toy"}, part_rows=150)
    np.save(place / "new.npy", features[:7].astype(np.float32))
    (place / "new.txt").write_text("\n".join(f"new {row}" for row in range(7)))
    known = draw.random((NUM, 2)) < 0.6
    lines = ["image,split,cat,dog"]
    for row, name in enumerate(IDS):
        split = "test" if row % 5 == 0 else "train"
        cells = [str(int(truth[row, c])) if known[row, c] or split == "test" else "" for c in range(2)]
        lines.append(",".join([name, split, *cells]))
    (place / "labels.csv").write_text("\n".join(lines) + "\n")
    config = {
        "data": {"table": "labels.csv", "features": "features", "holdout": True, "holdout_fraction": 0.3},
        "training": {"epochs": 3, "stage1_epochs": 1, "batch_size": 32, "lr": 0.05, "device": "cpu"},
    }
    (place / "run.yaml").write_text(yaml.safe_dump(config))
    return place


@pytest.fixture(scope="module")
def run(satl: Satl, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; do not change it."""
    path = tmp_path_factory.mktemp("runs") / "run"
    code, out, err = satl("train", folder / "run.yaml", "-o", path, "--quiet")
    assert (code, err) == (0, ""), err
    assert "is finished" in out
    return path


def test_evaluate_measures_it(satl: Satl, run: Path, tmp_path: Path) -> None:
    code, out, err = satl("evaluate", run, "--json", "-o", tmp_path)
    assert code == 0, err
    assert json.loads(out)["mAP"] > 0.9


def test_complete_certifies_and_review_may_have_no_pictures(satl: Satl, run: Path, tmp_path: Path) -> None:
    code, out, err = satl("complete", run, "-o", tmp_path / "out", "--precision", "0.8")
    assert code == 0, err
    assert "unknown cells were accepted" in out
    assert (tmp_path / "out" / "completed.csv").is_file()
    rows = list(csv.reader((tmp_path / "out" / "completed.csv").open()))
    assert len(rows) == NUM + 1


def test_thresholds_are_chosen_for_it(satl: Satl, run: Path, tmp_path: Path) -> None:
    code, _, err = satl("thresholds", "--scores", run, "--rule", "mat", "-o", tmp_path / "t.csv")
    assert code == 0, err
    assert len((tmp_path / "t.csv").read_text().splitlines()) == 3


def predictions(file: Path) -> dict[tuple[str, str], float]:
    with file.open() as stream:
        return {(row["image"], row["label"]): float(row["probability"]) for row in csv.DictReader(stream)}


def test_predict_reads_features_and_takes_their_ids(
    satl: Satl, run: Path, folder: Path, tmp_path: Path
) -> None:
    assert satl("predict", run, folder / "features", "-o", tmp_path / "all.csv")[0] == 0
    code, out, err = satl("predict", run, folder / "new.npy", "-o", tmp_path / "new.csv")
    assert code == 0, err
    assert out.startswith("Wrote 7 images x 2 classes")
    old, new = predictions(tmp_path / "all.csv"), predictions(tmp_path / "new.csv")
    assert {image for image, _ in old} == set(IDS)
    for row in range(7):
        assert new[f"new {row}", "cat"] == pytest.approx(old[IDS[row], "cat"], abs=2e-6)

    code, out, err = satl("predict", run, folder / "features", "-o", tmp_path / "parts", "--part-size", 150)
    assert code == 0, err
    assert "400 images x 2 classes, 3 Parquet files" in out
    scores = read_scores(tmp_path / "parts")
    assert scores.images == tuple(IDS)
    assert scores.values[5, 1] == pytest.approx(old[IDS[5], "dog"], abs=1e-6)
    again = satl("predict", run, folder / "features", "-o", tmp_path / "parts", "--part-size", 150)
    assert "400 of 400 images are there already" in again[2]


def test_predict_refuses_what_does_not_fit(satl: Satl, run: Path, folder: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", images=["a"], features=np.zeros((1, 9)))
    writer = FeatureWriter(tmp_path / "half", ["a", "b"], DIM, 1, {}, part_rows=1)
    writer.write_part(0, ["a"], np.zeros((1, DIM)))
    (tmp_path / "pictures").mkdir()
    for given, told in (
        ("other.npz", "has features of 9 numbers, and the run was trained on 8"),
        ("pictures", "holds no image"),
        ("nothing.npz", "does not exist"),
        ("half", "run the same `satl embed` again to resume"),
    ):
        code, _, err = satl("predict", run, tmp_path / given, "-o", tmp_path / "p.csv")
        assert code == 2
        assert told in err
    assert not (tmp_path / "p.csv").exists()


def test_onnx_takes_features(satl: Satl, run: Path, folder: Path, tmp_path: Path) -> None:
    code, out, err = satl("onnx", run, "-o", tmp_path / "m.onnx")
    assert (code, err) == (0, ""), err
    assert out.splitlines()[0] == f"Input   features       float32 (N, {VIEWS}, {DIM})"
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    about = session.get_modelmeta().custom_metadata_map
    assert (about["feature_size"], about["views"]) == (str(DIM), str(VIEWS))
    assert json.loads(about["features_made_by"]) == {"backbone": "toy"}
    found, _ = session.run(None, {"features": np.load(folder / "new.npy")})
    satl("predict", run, folder / "new.npy", "-o", tmp_path / "new.csv")
    expected = predictions(tmp_path / "new.csv")
    for row in range(7):
        # Features of a file are kept in half precision, those of the program are as they come.
        assert found[row, 1] == pytest.approx(expected[f"new {row}", "dog"], abs=2e-3)


def test_a_grid_of_runs_and_its_report(satl: Satl, folder: Path, tmp_path: Path) -> None:
    base = yaml.safe_load((folder / "run.yaml").read_text())
    base["data"] = {"table": str(folder / "labels.csv"), "features": str(folder / "features")}
    grid = {"base": base, "methods": ["ignore", "satl+"], "proportions": [0.5], "seeds": [0, 1]}
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(grid))
    code, _, err = satl("experiment", tmp_path / "grid.yaml", "-o", tmp_path / "out", "--quiet")
    assert code == 0, err
    with (tmp_path / "out" / "results.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert {row["method"] for row in rows} == {"ignore", "satl+"}
    assert {row["backbone"] for row in rows} == {"features"}
    assert all(float(row["mAP"]) > 0.8 for row in rows)


def test_two_processes_train_what_one_trains(satl: Satl, folder: Path, tmp_path: Path) -> None:
    settings = [
        "--set",
        "training.epochs=2",
        "--set",
        "data.holdout=false",
        "--set",
        "data.holdout_fraction=null",
    ]
    assert satl("train", folder / "run.yaml", "-o", tmp_path / "one", "--quiet", *settings)[0] == 0
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command += [
        "-m",
        "satl",
        "train",
        str(folder / "run.yaml"),
        "-o",
        str(tmp_path / "two"),
        "--quiet",
        *settings,
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    one, two = (
        load_file(tmp_path / name / "checkpoints" / "last" / "learner.safetensors") for name in ("one", "two")
    )
    assert one.keys() == two.keys()
    for name, value in one.items():
        if name.endswith(".counts"):  # histograms since the last update, of each process its own
            continue
        torch.testing.assert_close(two[name], value, rtol=1e-3, atol=1e-4, msg=name)

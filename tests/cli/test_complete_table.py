"""`satl complete TABLE --images DIR`: from a table to a completed table in one command."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cli.conftest import Outcome
from satl.completion.workflow.from_table import BACKBONE
from satl.labels import mask_table, read_table, write_table
from satl.models import Backbone
from satl.runs.run_folder import RunFolder
from satl.runs.run_lock import RunLock
from satl.scenes import write_scenes

Satl = Callable[..., Outcome]
NUM = 90
QUICK = ("--set", "training.epochs=3", "--set", "training.stage1_epochs=1", "--quiet")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures, a table of which half of the cells are known, and weights of a tiny backbone; do not change it."""
    place = tmp_path_factory.mktemp("own")
    write_scenes(place / "scenes", NUM, size=32, seed=3)
    table = read_table(place / "scenes" / "labels.csv").with_truth(None)
    write_table(mask_table(table, 0.5, seed=0), place / "labels.csv", encoding="blank")
    Backbone("satl_tiny").save_weights(place / "tiny.safetensors")
    return place


@pytest.fixture
def own(place: Path, tmp_path: Path) -> Path:
    for name in ("labels.csv", "tiny.safetensors"):
        shutil.copy(place / name, tmp_path / name)
    (tmp_path / "photos").symlink_to(place / "scenes")
    return tmp_path


def command(own: Path, *further: object) -> tuple[object, ...]:
    return (
        *("complete", own / "labels.csv", "--images", own / "photos", "-o", own / "out"),
        *("--backbone", "satl_tiny", "--weights", own / "tiny.safetensors"),
        *QUICK,
        *further,
    )


REVIEW = "--review-only"
"""So few cells cannot carry a certificate."""


def test_a_compressed_table_comes_back_compressed(own: Path, satl: Satl) -> None:
    table = read_table(own / "labels.csv")
    write_table(table, own / "labels.csv.gz", encoding="blank")
    _, _, *further = command(own, REVIEW)
    code, out, err = satl("complete", own / "labels.csv.gz", *further)
    assert (code, err) == (0, "")
    assert f"Table   {own / 'out' / 'completed.csv.gz'}" in out
    completed = read_table(own / "out" / "completed.csv.gz", "blank")
    assert (completed.images, completed.classes) == (table.images, table.classes)
    assert "-o merged.csv.gz" in (own / "out" / "report.html").read_text(encoding="utf-8")


def test_a_table_is_completed_and_nothing_is_computed_twice(own: Path, satl: Satl) -> None:
    code, out, err = satl(*command(own, REVIEW))
    assert (code, err) == (0, "")
    assert f"Table   {own / 'out' / 'completed.csv'}" in out
    before, after = read_table(own / "labels.csv"), read_table(own / "out" / "completed.csv")
    np.testing.assert_array_equal(after.cells[before.known], before.cells[before.known])
    model = own / "out-model"
    made = {path: path.stat().st_mtime_ns for path in (model / "features").rglob("*.npy")}
    metrics = (model / "run" / "metrics.jsonl").read_bytes()
    assert len(made) == 1
    assert len(metrics.splitlines()) == 3
    first = (own / "out" / "changes.csv").read_bytes()

    shutil.rmtree(own / "out")
    code, _, err = satl(*command(own, REVIEW))
    assert (code, err) == (0, "")
    assert {path: path.stat().st_mtime_ns for path in (model / "features").rglob("*.npy")} == made
    assert (model / "run" / "metrics.jsonl").read_bytes() == metrics
    assert (own / "out" / "changes.csv").read_bytes() == first


def test_cells_are_held_out_of_training_for_the_certificates(own: Path, satl: Satl) -> None:
    code, _, err = satl(*command(own, "--set", "data.holdout_fraction=0.3"))
    assert (code, err) == (0, "")
    assert (own / "out-model" / "run" / "held_out.npz").is_file()
    assert (own / "out" / "evidence.npz").is_file()


def test_features_made_before_need_no_images(own: Path, satl: Satl) -> None:
    ids = read_table(own / "labels.csv").images
    draw = np.random.default_rng(0).normal(size=(len(ids), 8)).astype(np.float32)
    np.savez(own / "mine.npz", ids=np.array(ids), features=draw)
    code, out, err = satl(
        *("complete", own / "labels.csv", "--features", own / "mine.npz", "-o", own / "out", REVIEW, *QUICK)
    )
    assert (code, err) == (0, "")
    assert "Report" in out
    assert not (own / "out-model" / "features").exists()


def test_a_changed_table_is_not_completed_with_the_old_model(own: Path, satl: Satl) -> None:
    assert satl(*command(own, REVIEW)).code == 0
    table = read_table(own / "labels.csv")
    cells = table.cells.copy()
    cells[0] = np.where(cells[0] == 0, -1, cells[0])
    write_table(table.with_cells(cells, encoding="signed"), own / "labels.csv", encoding="blank")
    shutil.rmtree(own / "out")
    code, out, err = satl(*command(own, REVIEW))
    assert (code, out) == (2, "")
    assert "was trained on other labels or features than there are now" in err
    assert "--force" in err
    assert "--model" in err
    assert not (own / "out").exists()
    made = {path: path.stat().st_mtime_ns for path in (own / "out-model").rglob("*.npy")}
    assert satl(*command(own, REVIEW, "--force")).code == 0
    assert {path: path.stat().st_mtime_ns for path in (own / "out-model").rglob("*.npy")} == made


def test_other_settings_are_told_before_any_work(own: Path, satl: Satl) -> None:
    assert satl(*command(own, REVIEW)).code == 0
    shutil.rmtree(own / "out")
    code, _, err = satl(*command(own, REVIEW, "--set", "training.seed=5"))
    assert code == 2
    assert "was trained with another training.seed (was 0, now 5)" in err


def test_too_few_labels_are_told_before_any_picture_is_read(
    own: Path, satl: Satl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satl.inference.embedding.embed", lambda *_, **__: pytest.fail("embeds"))
    code, _, err = satl(*command(own))
    assert (code, err.count("\n")) == (2, 1)
    assert "labels.csv: no class has enough known cells" in err
    assert "pass --review-only" in err
    assert "--precision 0.8 and --set data.holdout_fraction=0.3" in err
    # What it does not say: that training on all cells would do.
    code, _, err = satl(*command(own, "--set", "data.holdout=false"))
    assert (code, err.count("\n")) == (2, 1)
    assert "data.holdout: is false" in err
    assert "pass --review-only" in err
    assert not (own / "out-model").exists()


def test_the_remedies_for_too_few_labels_work(own: Path, satl: Satl) -> None:
    code, out, _ = satl(*command(own, "--precision", "0.8", "--set", "data.holdout_fraction=0.3"))
    assert code == 0
    assert "without the" in out
    code, out, _ = satl(*command(own, REVIEW, "--force"))
    assert code == 0
    assert "Only proposals were asked for" in out


def test_a_run_that_is_being_trained_is_never_removed(own: Path, satl: Satl) -> None:
    assert satl(*command(own, REVIEW)).code == 0
    shutil.rmtree(own / "out")
    run = RunFolder.open(own / "out-model" / "run")
    lock = RunLock(run.path)
    try:
        code, _, err = satl(*command(own, REVIEW, "--set", "training.seed=5", "--force"))
    finally:
        lock.release()
    assert code == 2
    assert "is being trained by" in err
    assert run.config.is_file()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("labels.csv", "-o", "out"), "needs the images of the table, or features of them"),
        (
            ("labels.csv", "-o", "out", "--features", "f.npz", "--backbone", "resnet50"),
            "--backbone makes features, and --features has them; leave out one of the two.",
        ),
        (("missing.csv", "--images", "photos", "-o", "out"), "missing.csv"),
        (("labels.csv", "--images", "photos", "--labels", "labels.csv", "-o", "out"), "is the table already"),
        (
            ("--scores", "s.csv", "--labels", "labels.csv", "--backbone", "resnet50", "-o", "out"),
            "--backbone",
        ),
        (("labels.csv", "--images", "nowhere", "-o", "out", REVIEW), "nowhere"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    own: Path, satl: Satl, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], part: str
) -> None:
    monkeypatch.chdir(own)
    before = sorted(own.iterdir())
    code, out, err = satl("complete", *arguments, "--quiet")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert part in err
    assert sorted(own.iterdir()) == before


def test_the_layout_of_a_first_resnet_reaches_the_network(own: Path, satl: Satl) -> None:
    code, _, err = satl(*command(own, REVIEW, "--stride-in-1x1"))
    assert code == 2
    assert "--stride-in-1x1: needs a ResNet with bottleneck blocks, and satl_tiny is not one" in err
    for option in ("--stride-in-1x1", "--bfloat16"):
        code, _, err = satl("complete", own / "run", "-o", own / "out", option)
        assert code == 2
        assert f"{option} belongs to TABLE" in err


def test_a_table_is_embedded_in_bfloat16(own: Path, satl: Satl) -> None:
    code, _, err = satl(*command(own, REVIEW, "--bfloat16"))
    assert code == 0, err
    made_by = json.loads((own / "out-model" / "features" / "features.json").read_text())["made_by"]
    assert made_by["bfloat16"] is True
    shutil.rmtree(own / "out")
    code, out, err = satl(*command(own, REVIEW))
    assert (code, out) == (2, "")
    assert f"{own / 'out-model' / 'features'}: holds features made in another way; pass --force" in err
    assert "--model FOLDER" in err
    assert "--out" not in err
    assert not (own / "out").exists()


def test_without_weights_at_hand_it_says_how_to_name_them(
    own: Path, satl: Satl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, _, err = satl(
        *("complete", own / "labels.csv", "--images", own / "photos", "-o", own / "out", REVIEW, *QUICK)
    )
    assert code == 2
    assert BACKBONE in err
    assert "--weights" in err
    assert err.count("\n") == 1
    assert not (own / "out").exists()

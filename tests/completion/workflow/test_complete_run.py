from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from satl.completion.statistics.assessment import CompletionSettings
from satl.completion.workflow.complete import Completion, complete
from satl.completion.workflow.from_run import _open_other_table, case_from_run
from satl.errors import RunError, TableError
from satl.inference.recogniser import Recogniser
from satl.inference.run_evaluation import evaluate_run
from satl.labels import LabelTable, mask_table, read_table, write_table
from satl.labels.holdout import HeldOut
from satl.runs.reading import make_config
from satl.scenes import write_scenes
from satl.scores import read_scores
from training.tiny import TINY, tiny_config, train

PROMISE = CompletionSettings(0.6, 0.6)
HOLDOUT = {"holdout": True, "holdout_fraction": 0.4}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pictures and a half-filled ``half.csv``; do not change it."""
    folder = tmp_path_factory.mktemp("pictures")
    write_scenes(folder, 150, size=32)
    table = mask_table(read_table(folder / "labels.csv"), 0.6).with_truth(None)
    split = np.array(["train"] * 120 + ["val"] * 20 + ["spare"] * 10)
    write_table(table.with_split(split), folder / "half.csv", "signed")
    return folder


@pytest.fixture(scope="module")
def run(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on that table with a hold-out; do not change it."""
    folder = tmp_path_factory.mktemp("runs") / "own"
    content: dict[str, Any] = {
        **TINY,
        "data": {
            "table": str(pictures / "half.csv"),
            "images": str(pictures),
            "encoding": "signed",
            **HOLDOUT,
        },
        "images": {**TINY["images"], "store_size": 32},
        "training": {**TINY["training"], "epochs": 3, "stage1_epochs": 1},
    }
    train(folder, make_config(content, "test"))
    return folder


def complete_run(
    run: Path, out: Path, settings: CompletionSettings | None = None, **options: Any
) -> Completion:
    review_only = settings is not None and settings.review_only
    return complete(case_from_run(run, review_only=review_only, **options), out, settings)


def see_well(patch: pytest.MonkeyPatch, pictures: Path) -> None:
    """Let the network see what is there: the tiny one has learned too little to be sure of anything."""
    truth = read_table(pictures / "labels.csv").cells[:140]
    noise = np.random.default_rng(0).random(truth.shape) / 3
    patch.setattr(
        Recogniser, "probabilities", lambda *_: (np.maximum(truth, 0) / 2 + noise).astype(np.float32)
    )


def test_a_run_completes_its_own_table(
    run: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    see_well(monkeypatch, pictures)
    done = complete_run(run, tmp_path / "out", PROMISE)
    before = read_table(pictures / "half.csv", "signed")
    after = read_table(done.folder.completed, "signed")
    assert (after.images, after.classes) == (before.images, before.classes)
    np.testing.assert_array_equal(after.cells[before.known], before.cells[before.known])
    assert done.present + done.absent == int(after.known.sum() - before.known.sum()) > 0
    assert done.report["images"] == str(pictures)
    assert "(checkpoint best), which was trained without the" in done.report["model"]
    assert done.report["notes"] == [
        "10 of 150 images have no score, such as 'scene-00140.png': their cells stay unknown."
    ]
    assert not (after.known & ~before.known)[140:].any()


def test_certificates_rest_on_the_cells_held_out_of_training(
    run: Path, pictures: Path, tmp_path: Path
) -> None:
    case = case_from_run(run)
    trained = read_table(run / "labels.npz")
    mask = HeldOut.load(run / "held_out.npz", trained.images, trained.classes).mask
    assert case.tested is not None
    np.testing.assert_array_equal(case.tested[:140], mask)
    assert not case.tested[140:].any()
    table = read_table(pictures / "half.csv", "signed")
    recogniser = Recogniser.load(run)
    from satl.images import FolderImages

    expected = recogniser.probabilities(FolderImages(pictures, table.images[:140], 32))
    np.testing.assert_allclose(case.scores[:140], expected, atol=1e-6)
    assert np.isnan(case.scores[140:]).all()


def test_the_scores_are_kept_and_can_be_used_without_the_run(run: Path, tmp_path: Path) -> None:
    from satl.completion.workflow.from_scores import case_from_scores

    done = complete_run(run, tmp_path / "out", PROMISE)
    table = done.folder.read_labels()
    found = read_scores(done.folder.scores, table)
    assert found.held_out is not None
    again = complete(case_from_scores(done.folder.scores, done.folder.labels), tmp_path / "again", PROMISE)
    assert read_table(again.folder.completed) == read_table(done.folder.completed, "signed")


def write_filled(done: Completion, folder: Path) -> Path:
    write_table(read_table(done.folder.completed, "signed"), folder / "filled.npz")
    return folder / "filled.npz"


def test_what_was_filled_in_later_is_no_evidence(
    run: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    see_well(monkeypatch, pictures)
    done = complete_run(run, tmp_path / "out", PROMISE)
    later = tmp_path / "later.csv"
    shutil.copy(done.folder.completed, later)
    case = case_from_run(run, later, encoding="signed")
    first = case_from_run(run)
    np.testing.assert_array_equal(case.basis, first.basis)
    np.testing.assert_array_equal(case.tested, first.tested)
    again = complete_run(run, tmp_path / "again", PROMISE, labels=done.folder.labels)
    thresholds = [
        [entry[side]["threshold"] for entry in one.report["classes"] for side in ("present", "absent")]
        for one in (done, again)
    ]
    assert thresholds[0] == thresholds[1]
    filled = complete_run(run, tmp_path / "filled", PROMISE, labels=write_filled(done, tmp_path))
    assert (filled.present, filled.absent) == (0, 0)


def test_columns_that_are_no_classes_to_a_run_are_none_later(run: Path, tmp_path: Path) -> None:
    table = case_from_run(run).table
    bare, aged = tmp_path / "bare.csv", tmp_path / "aged.csv"
    write_table(table, bare)
    head, *lines = bare.read_text().splitlines()
    aged.write_text("\n".join([f"{head},Age", *(f"{line},40" for line in lines)]) + "\n")
    with pytest.raises(TableError, match="ignore_columns='Age'"):
        case_from_run(run, aged)
    assert case_from_run(run, aged, ignore_columns=("Age",)).table == table
    # Those of the run are passed over by themselves, and may be gone.
    for file in (aged, bare):
        assert _open_other_table(file, None, (), ("Age",)).table == table


def test_a_run_without_a_hold_out_can_only_propose(tmp_path: Path) -> None:
    train(tmp_path / "run", tiny_config("training.epochs=1", "training.stage1_epochs=1"))
    with pytest.raises(
        RunError, match=r"trained on all its known cells.*data\.holdout=true.*review_only=True"
    ):
        complete_run(tmp_path / "run", tmp_path / "out")
    done = complete_run(tmp_path / "run", tmp_path / "out", CompletionSettings(review_only=True))
    assert (done.present, done.absent) == (0, 0)
    assert done.review > 0
    assert "nothing was left to test it on" in done.report["model"]
    for entry in done.report["classes"]:
        assert entry["present"]["reason"] == (
            f"'{entry['name']}' has no threshold for present: only proposals were asked for, and none of its cells was "
            "tested."
        )
    page = done.folder.page.read_text(encoding="utf-8")
    assert "The promise rests on" not in page
    assert "satl plan" not in page  # which finds nothing to plan where nothing was tested


def test_a_study_and_scenes_without_a_file_are_completed_as_csv(tmp_path: Path) -> None:
    settings = (
        "data.holdout=true",
        "data.holdout_fraction=0.4",
        "training.epochs=1",
        "training.stage1_epochs=1",
    )
    train(tmp_path / "run", tiny_config(*settings))
    done = complete_run(tmp_path / "run", tmp_path / "out", PROMISE, images=tmp_path / "pictures")
    assert done.folder.completed.name == "completed.csv"
    assert done.report["images"] == str(tmp_path / "pictures")
    before = read_table(tmp_path / "run" / "labels.npz")
    after = read_table(done.folder.completed)
    np.testing.assert_array_equal(after.cells[before.known], before.cells[before.known])
    page = done.folder.page.read_text(encoding="utf-8")
    assert f"satl merge {tmp_path / 'out'} {tmp_path / 'out'}/labels.npz" in page


def test_a_study_hides_from_its_completion_what_it_hid_from_training(pictures: Path, tmp_path: Path) -> None:
    content = yaml.safe_load(yaml.safe_dump(TINY))
    content["data"] = {
        "table": str(pictures / "labels.csv"),
        "images": str(pictures),
        "proportion": 0.5,
        **HOLDOUT,
    }
    content["images"]["store_size"] = 32
    content["training"] |= {"epochs": 1, "stage1_epochs": 1}
    trainer = train(tmp_path / "run", make_config(content, "test"))
    case = case_from_run(tmp_path / "run")
    table: LabelTable = case.table
    np.testing.assert_array_equal(table.cells, trainer.data.known_cells)
    assert 0.4 < (table.cells[trainer.data.rows("train")] != 0).mean() < 0.6


def test_a_class_that_the_run_does_not_know_is_told(run: Path, pictures: Path, tmp_path: Path) -> None:
    table = read_table(pictures / "half.csv", "signed")
    wider = LabelTable(
        table.images,
        (*table.classes, "new, later"),
        np.hstack([table.cells, np.ones((table.num_images, 1), dtype=np.int8)]),
        table.split,
        encoding="signed",
    )
    write_table(wider, tmp_path / "wider.npz")
    case = case_from_run(run, tmp_path / "wider.npz")
    assert (
        f"1 of {wider.num_classes} classes has no score, such as 'new, later': its cells stay unknown."
        in (case.notes)
    )
    assert np.isnan(case.scores[:, -1]).all()


@pytest.mark.parametrize("key", ["table", "images"])
def test_what_was_moved_since_the_run_is_named_with_where_to_write_its_new_place(
    run: Path, pictures: Path, tmp_path: Path, key: str
) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(run, moved)
    content = yaml.safe_load((moved / "config.yaml").read_text(encoding="utf-8"))
    place, content["data"][key] = content["data"][key], str(tmp_path / "gone")
    (moved / "config.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    sentence = (
        rf"gone, its data\.{key}, does not exist; put it back, or write its new place into .*config\.yaml"
    )
    # With --labels as well: the images of a run and their order are those of its own table.
    for ask in (
        lambda: case_from_run(moved, pictures / "half.csv", encoding="signed"),
        lambda: evaluate_run(moved),
    ):
        with pytest.raises(RunError, match=sentence):
            ask()
    content["data"][key] = place
    (moved / "config.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    assert evaluate_run(moved)[1] == "val"

from __future__ import annotations

import gc
import json
import shutil
import weakref
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from experiments.grids import BASE
from satl.errors import RunError
from satl.evaluation import evaluate_scores
from satl.experiments.experiment_folder import RESULT, ExperimentFolder
from satl.experiments.grid import GridRun
from satl.experiments.grid_run import DataCache, keep_models, run_facts, train_and_test
from satl.experiments.worker import run_task
from satl.inference.recogniser import Recogniser
from satl.inference.run_evaluation import evaluate_run
from satl.methods import Learner
from satl.runs import data as training_data
from satl.runs.data import load_data
from satl.runs.reading import apply_overrides, make_config
from satl.training.trainer import Trainer
from training.tiny import KillAt, Killed, assert_same_run


def config_of(*settings):
    return make_config(apply_overrides(BASE, ("data.proportion=0.3", *settings)), "tiny")


def without_time(path):
    result = json.loads((path / RESULT).read_text())
    return {key: value for key, value in result.items() if key != "train_seconds"}


def test_a_run_notes_whether_it_has_word_vectors():
    assert not run_facts(config_of("method.name=sst"))["word_vectors"]
    assert run_facts(config_of("method.name=sst", "model.word_vectors=glove.txt"))["word_vectors"]


def test_a_run_cut_off_anywhere_ends_like_one_left_alone(tmp_path):
    config = config_of("method.name=sst+satl", "method.thresholds.rate=0.5")
    data = load_data(config)
    alone, cut = tmp_path / "alone", tmp_path / "cut"
    train_and_test(config, alone, data)
    for place in ((0, 0), (0, 2), (2, 1)):  # before any checkpoint, within stage 1, within stage 2
        with pytest.raises(Killed):
            train_and_test(config, cut, data, KillAt(*place))
        assert not (cut / RESULT).exists()
    train_and_test(config, cut, data)
    assert_same_run(alone, cut)
    assert without_time(alone) == without_time(cut)


def test_a_trained_run_whose_test_was_cut_off_is_only_tested(tmp_path, monkeypatch):
    config = config_of("method.name=ignore")
    data = load_data(config)
    with monkeypatch.context() as patch:
        patch.setattr("satl.experiments.grid_run._test_models", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            train_and_test(config, tmp_path / "run", data)
    monkeypatch.setattr(
        "satl.training.trainer.Trainer.fit", lambda _: (_ for _ in ()).throw(AssertionError("trained again"))
    )
    assert train_and_test(config, tmp_path / "run", data)["models"]["last"]["epoch"] == 3


def test_a_compiled_network_does_not_stay_in_memory_beside_those_that_are_tested(tmp_path, monkeypatch):
    compile_step, fit = Learner.compile_step, Trainer.fit
    trained, left = [], []

    def quick(learner, **options):
        compile_step(learner, backend="eager")

    def note(trainer):
        trained.append(weakref.ref(trainer.learner.network))
        fit(trainer)

    def test_none(*_):
        left.append(trained[0]() is not None)
        raise Killed

    monkeypatch.setattr(Learner, "compile_step", quick)
    monkeypatch.setattr(Trainer, "fit", note)
    monkeypatch.setattr("satl.experiments.grid_run._test_models", test_none)
    config = config_of(
        "method.name=sst", "training.compile=true", "training.epochs=1", "training.stage1_epochs=1"
    )
    gc.disable()
    try:
        with pytest.raises(Killed):
            train_and_test(config, tmp_path / "run", load_data(config))
    finally:
        gc.enable()
    assert left == [False]


def test_both_models_are_tested_and_the_last_is_the_average_of_weights(tmp_path):
    config = config_of("method.name=sst", "training.ema=0.9", "method.thresholds.end=0.2")
    data = load_data(config)
    result = train_and_test(config, tmp_path / "run", data, jobs=2)
    assert (result["split"], result["jobs"], result["device"]) == ("test", 2, "cpu")
    assert result["models"]["last"]["epoch"] == 3
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    best = max(rows, key=lambda row: row["val"]["mAP"])
    assert result["models"]["best"]["epoch"] == best["epoch"] + 1
    assert result["pseudo_labels"] == rows[-1]["pseudo_labels"]["union"]
    assert result["train_seconds"] == pytest.approx(sum(row["train_seconds"] for row in rows), abs=1e-3)
    evaluation, _ = evaluate_run(tmp_path / "run", "test")
    assert result["models"]["best"]["mAP"] == evaluation.mAP
    # The validation mAP of the last epoch is that of the averaged weights, which the result must use too.
    rows = data.rows("test")
    measured = []
    for averaged in (True, False):
        model = Recogniser.load(tmp_path / "run", "last", averaged=averaged)
        scores = model.probabilities(data.source, rows)
        measured.append(evaluate_scores(scores, data.table.cells[rows], data.table.classes).mAP)
    assert result["models"]["last"]["mAP"] == measured[0] != measured[1]
    assert (tmp_path / "run" / "record.npz").is_file()


def checkpoints(run):
    return sorted(entry.name for entry in (run / "checkpoints").glob("*"))


@pytest.mark.parametrize(("keep", "kept"), [("all", ["best", "last"]), ("best", ["best"]), ("none", [])])
def test_models_that_are_not_kept_go_when_everything_is_measured(keep, kept, tmp_path):
    config = config_of("method.name=sst", "training.epochs=2", "training.checkpoint_epochs=9")
    events = []
    task = {"run": "sst", "path": str(tmp_path / "run"), "config": config.resolved(), "jobs": 1}
    ending = run_task({**task, "models": keep}, DataCache(), events.append)
    assert ending["event"] == "done"
    run = tmp_path / "run"
    assert checkpoints(run) == kept
    assert (run / "checkpoints").exists() == bool(kept)
    assert set(without_time(run)["models"]) == {"best", "last"}
    assert (run / "record.npz").is_file()
    for name in ("best", "last"):
        if name in kept:
            assert evaluate_run(run, "test", name)[0].mAP == ending["result"]["models"][name]["mAP"]
        else:
            sentence = (
                rf"'{name}'; its experiment did not keep it .*train\('{run}/config.yaml', out='NEW'\)\.$"
            )
            with pytest.raises(RunError, match=sentence):
                evaluate_run(run, "test", name)


def end_removal_with(error, patch):
    """Let the removal of models end half-way; other removals are left alone."""
    remove = shutil.rmtree

    def half(path, **options):
        if not path.name.endswith(".removed") or ".previous" in path.name:
            return remove(path, **options)
        next(path.iterdir()).unlink()
        raise error

    patch.setattr("satl.runs.checkpoint_folders.shutil.rmtree", half)


@pytest.mark.parametrize("keep", ["best", "none"])
@pytest.mark.parametrize("error", [Killed, PermissionError])
def test_a_run_whose_models_are_half_removed_is_done(error, keep, tmp_path, monkeypatch):
    config = config_of("method.name=ignore", "training.epochs=1")
    folder = ExperimentFolder(tmp_path)
    grid_run = GridRun("ignore", 0.3, 0)
    run = folder.run_path(grid_run)
    with monkeypatch.context() as patch:
        end_removal_with(error, patch)
        # What the system refuses fails no run.
        with pytest.raises(Killed) if error is Killed else nullcontext():
            train_and_test(config, run, load_data(config), keep=keep)
    assert folder.state(grid_run) == "done"
    # What is half removed is no checkpoint any more.
    (gone,) = (name for name in checkpoints(run) if name.endswith(".removed"))
    with pytest.raises(RunError, match="did not keep it"):
        Recogniser.load(run, gone.removesuffix(".removed"))
    # The next call ends it, also if the run was trained again meanwhile.
    shutil.copytree(run / "checkpoints" / gone, run / "checkpoints" / gone.removesuffix(".removed"))
    unsorted = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter(sorted(unsorted(folder))))
    keep_models(run, keep)
    assert checkpoints(run) == (["best"] if keep == "best" else [])


def test_without_test_images_the_validation_images_are_used(tmp_path):
    config = config_of("method.name=ignore", "data.scenes.test=0", "training.epochs=1")
    assert train_and_test(config, tmp_path / "run", load_data(config))["split"] == "val"


def test_pictures_are_read_once_and_labels_follow_the_run(tmp_path, monkeypatch):
    from satl.scenes import write_scenes

    write_scenes(tmp_path, 30, size=32)
    settings = (
        f"data={{table: {tmp_path / 'labels.csv'}, images: {tmp_path}}}",
        "images.store_size=32",
        "method.name=ignore",
    )
    first = config_of(*settings, "data.proportion=0.5", "training.seed=0")
    second = config_of(*settings, "data.proportion=0.2", "training.seed=1")
    decoded = []
    original = training_data.cached

    def counted(source, **options):
        decoded.append(options["limit_bytes"])
        return original(source, **options)

    monkeypatch.setattr(training_data, "cached", counted)
    shared = DataCache()
    one, two = shared.load(first), shared.load(second)
    assert two.source is one.source
    assert decoded[0] > 0
    assert decoded[1] == 0
    alone = load_data(second)
    assert two.table.cells.tolist() == alone.table.cells.tolist()
    assert list(two.table.split) == list(alone.table.split)
    np.testing.assert_array_equal(two.source.image(7), alone.source.image(7))
    # Cells are held out in every run of a grid, not in the first alone.
    holdout = (*settings, "data.holdout=true", "data.holdout_fraction=0.3")
    held = [shared.load(config_of(*holdout, f"training.seed={seed}")) for seed in (0, 1)]
    assert held[1].source is held[0].source
    for data in held:
        assert data.held_out is not None
        assert (data.held_out_cells != 0).any()
        assert not (data.table.cells[data.held_out_cells != 0]).any()
    # Another size of picture is another source.
    assert shared.load(config_of(*settings, "images.store_size=40")).source.size == 40

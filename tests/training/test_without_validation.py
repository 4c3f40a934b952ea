"""Training without validation images: the last epoch's model is the best one, and everything says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import call
from experiments.grids import BASE, write_grid
from satl.completion.statistics.assessment import CompletionSettings
from satl.completion.workflow.complete import complete
from satl.completion.workflow.from_run import case_from_run
from satl.errors import RunError
from satl.experiments.grid_run import train_and_test
from satl.inference.run_evaluation import evaluate_run
from satl.runs.data import load_data
from satl.runs.reading import apply_overrides, make_config, save_config
from satl.runs.run_folder import RunFolder
from satl.training.checkpoints import LEARNER, STATE, load_state
from training.tiny import KillAt, Killed, assert_same_run, metrics, resume, tiny_config, train

NONE = ("data.scenes.val=0", "data.validation=0")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    trainer = train(folder, tiny_config(*NONE))
    assert trainer.best == {"epoch": 3, "mAP": None}
    return folder


def test_nothing_is_validated_and_the_last_model_is_kept_as_the_best(run: Path) -> None:
    assert not any("val" in row for row in metrics(run))
    log = (run / "train.log").read_text()
    assert log.count("no validation images: the model of the last epoch is kept as the best") == 1
    folder = RunFolder.open(run)
    assert load_state(folder.checkpoint("best") / STATE)["best"] == {"epoch": 3, "mAP": None}
    models = [(folder.checkpoint(name) / LEARNER).read_bytes() for name in ("best", "last")]
    assert models[0] == models[1]
    assert folder.read_config().data.validation == 0


def test_a_run_that_is_cut_off_ends_like_one_left_alone(run: Path, tmp_path: Path) -> None:
    config = tiny_config(*NONE, "training.checkpoint_steps=1")
    train(tmp_path / "alone", config)
    with pytest.raises(Killed):
        train(tmp_path / "cut", config, KillAt(epoch=2, step=2))
    with pytest.raises(RunError, match=r"'best'; no model was kept yet.*train\(resume="):
        evaluate_run(tmp_path / "cut")
    resume(tmp_path / "cut")
    assert_same_run(tmp_path / "alone", tmp_path / "cut")


def test_it_is_evaluated_on_test_or_training_images(run: Path) -> None:
    evaluation, split = evaluate_run(run)
    assert (split, evaluation.num_images) == ("test", 24)
    with pytest.raises(RunError, match=r"no row of split 'val'; use split='train'"):
        evaluate_run(run, "val")


def test_it_completes_a_table(run: Path, tmp_path: Path) -> None:
    case = case_from_run(run, review_only=True)
    assert case.table.num_images == 88
    done = complete(case, tmp_path / "completed", CompletionSettings(review_only=True))
    assert done.review > 0


def test_a_grid_run_has_one_model_under_both_names(tmp_path: Path) -> None:
    config = make_config(apply_overrides(BASE, (*NONE, "data.proportion=0.3")), "test")
    result = train_and_test(config, tmp_path / "run", load_data(config))
    assert result["split"] == "test"
    assert result["models"]["best"] == result["models"]["last"]
    assert result["models"]["best"]["epoch"] == 3
    assert result["facts"]["validated"] is False


def test_the_report_of_an_experiment_says_it(tmp_path: Path) -> None:
    base = apply_overrides(BASE, NONE)
    grid = write_grid(tmp_path / "grid.yaml", base=base, methods=["ignore"], seeds=[0])
    assert call("experiment", grid, "--out", tmp_path / "out", "--quiet").code == 0
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "what stands here as the best validated epoch is the last one" in page


def test_a_grid_run_without_any_images_to_test_on_is_refused_before_it_trains(tmp_path: Path) -> None:
    config = make_config(apply_overrides(BASE, (*NONE, "data.scenes.test=0")), "test")
    with pytest.raises(RunError, match="neither test nor validation images"):
        train_and_test(config, tmp_path / "run", load_data(config))
    assert not (tmp_path / "run").exists()


def test_the_command_line_says_which_model_is_kept(tmp_path: Path) -> None:
    save_config(tiny_config(*NONE, "training.epochs=2"), tmp_path / "tiny.yaml")
    done = call("train", tmp_path / "tiny.yaml", "--out", tmp_path / "run")
    assert "64 training and no validation images" in done.err
    assert "The model of the last epoch will be kept." in done.err
    assert "No validation images, so the model of the last epoch (2) is the one that is kept" in done.out
    again = call("train", "--resume", tmp_path / "run")
    assert "was finished before" in again.out
    assert "the model of the last epoch (2)" in again.out

"""Models of chosen epochs are kept, change nothing, and figure 8 can look at them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from satl.errors import ConfigError, RunError
from satl.experiments.finished_runs import find_runs
from satl.experiments.grid_run import train_and_test
from satl.inference.recogniser import Recogniser
from satl.inference.run_evaluation import evaluate_split
from satl.inference.run_record import collect_run, read_record
from satl.reports.paper_figures.figure_files import draw_each
from satl.runs.data import load_data
from satl.runs.run_folder import RunFolder
from training.tiny import KillAt, Killed, metrics, resume, tiny_config, train

SHORT = (
    "training.epochs=3",
    "training.stage1_epochs=1",
    "data.scenes.train=48",
    "method.thresholds.rate=0.5",
)
KEEPING = (*SHORT, "training.keep_epochs=[2]")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished run that kept its second epoch; do not change it."""
    folder = tmp_path_factory.mktemp("kept") / "run"
    train(folder, tiny_config(*KEEPING))
    return folder


def test_the_kept_model_is_that_of_the_epoch(run: Path, tmp_path: Path) -> None:
    rows = RunFolder(run).read_metrics()
    kept, last = (Recogniser.load(run, name) for name in ("epoch-2", "last"))
    for name, values in kept.learner.thresholds().items():
        np.testing.assert_allclose(values.cpu(), rows[1]["thresholds"][name], atol=1e-6)
    assert any(
        (kept.learner.thresholds()[name] != values).any()
        for name, values in last.learner.thresholds().items()
    )
    # Validated again, its network is the one of which metrics.jsonl has the mAP.
    data = load_data(kept.config)
    assert evaluate_split(kept, data, "val").mAP == pytest.approx(rows[1]["val"]["mAP"], abs=1e-6)


def test_keeping_changes_no_number_and_a_resumed_run_keeps_too(run: Path, tmp_path: Path) -> None:
    train(tmp_path / "plain", tiny_config(*SHORT))
    assert not (tmp_path / "plain" / "checkpoints" / "epoch-2").exists()
    with pytest.raises(Killed):
        train(tmp_path / "cut", tiny_config(*KEEPING), KillAt(1, 1))
    resume(tmp_path / "cut")
    weights = [
        (folder / "checkpoints" / "epoch-2" / "learner.safetensors").read_bytes()
        for folder in (run, tmp_path / "cut")
    ]
    assert weights[0] == weights[1]
    rows = [metrics(folder) for folder in (run, tmp_path / "plain", tmp_path / "cut")]
    assert rows[0] == rows[1] == rows[2]


def test_figure_8_looks_at_the_epoch(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    said: list[str] = []
    (drawn,) = draw_each([folder], tmp_path / "figures", ["svg"], [8], said.append, epoch=2)
    assert [file.name for file in drawn.files] == ["figure-08-thresholds-epoch-2.svg"]
    assert "after epoch 2" in drawn.title
    assert len(said) == 1  # the images were scored
    (finished,), _ = find_runs([folder])
    record = read_record(folder, 2)
    kept = Recogniser.load(folder, "epoch-2")
    for name, values in kept.learner.thresholds().items():
        np.testing.assert_array_equal(record.method.thresholds[name], values.cpu().numpy())
    assert finished.record_after(2).quality.keys() == record.quality.keys()
    assert (folder / "record-epoch-2.npz").is_file()
    assert not (folder / "record.npz").exists()


def test_an_epoch_that_was_not_kept_says_how_to_keep_it(run: Path, tmp_path: Path) -> None:
    (drawn,) = draw_each([run], tmp_path, ["svg"], [8], epoch=1)
    assert not drawn.files
    assert "the model of epoch 1 was not kept" in str(drawn.missing)
    assert "training.keep_epochs=[1]" in str(drawn.missing)
    with pytest.raises(RunError, match="use best or last"):
        Recogniser.load(run, "epoch-x")
    for wrong in (0, 9):
        with pytest.raises(
            ConfigError, match=f"keep_epochs has epoch {wrong}, but they are counted from 1 to 3"
        ):
            tiny_config(*SHORT, f"training.keep_epochs=[{wrong}]")


def test_an_experiment_measures_kept_epochs_before_it_removes_the_models(tmp_path: Path) -> None:
    config = tiny_config(*KEEPING, "training.ema=0.9")
    train_and_test(config, tmp_path / "run", load_data(config), keep="none")
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert read_record(tmp_path / "run", 2).method.generators == ("intra", "cross")
    (drawn,) = draw_each([tmp_path / "run"], tmp_path / "figures", ["svg"], [8], epoch=2)
    assert drawn.files


def test_with_an_average_of_weights_scores_are_those_the_thresholds_were_learned_on(tmp_path: Path) -> None:
    train(tmp_path / "run", tiny_config(*KEEPING, "training.ema=0.9"))
    record = collect_run(RunFolder(tmp_path / "run"), 2)
    model = Recogniser.load(tmp_path / "run", "epoch-2", averaged=False)
    data = load_data(model.config)
    scores = model.scores(data, data.rows("train"))
    np.testing.assert_allclose(record.method.scores["cross"], scores["cross"], rtol=1e-3, atol=1e-3)

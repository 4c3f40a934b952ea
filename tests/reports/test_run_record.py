from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reports.synthetic import write_run
from satl.errors import RunError
from satl.evaluation.pseudo_quality import pseudo_label_table
from satl.experiments.finished_runs import find_runs
from satl.inference import run_record
from satl.inference.recogniser import Recogniser
from satl.inference.run_evaluation import evaluate_run
from satl.inference.run_record import (
    MOST_IMAGES,
    RECORD,
    collect_run,
    drawn_images,
    measure_run,
    read_record,
)
from satl.reports.comparison import compare
from satl.reports.training_images import run_pixels
from satl.runs.data import load_data
from satl.runs.run_folder import RunFolder
from training.tiny import tiny_config, train

SHORT = ("training.epochs=2", "training.stage1_epochs=1", "data.scenes.train=48")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Return a finished run; do not change it."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(folder, tiny_config(*SHORT))
    return folder


@pytest.fixture(scope="module")
def record(run):
    return collect_run(RunFolder(run))


def test_the_record_is_what_the_last_model_says(run, record):
    last = Recogniser.load(run, "last")
    data = load_data(last.config)
    rows = data.rows("train")
    scores = last.scores(data, rows)
    assert record.method.generators == ("intra", "cross")
    for name in record.method.generators:
        np.testing.assert_allclose(record.method.scores[name], scores[name], rtol=1e-3, atol=1e-3)
        expected = last.learner.thresholds()[name].cpu().numpy()
        np.testing.assert_array_equal(record.method.thresholds[name], expected)
    np.testing.assert_allclose(record.probability, scores["probability"], rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(record.cells, data.table.cells[rows])
    np.testing.assert_array_equal(record.truth, data.table.truth[rows])
    np.testing.assert_array_equal(record.rows, rows)
    assert record.images == tuple(data.table.images[row] for row in rows)
    assert record.classes == data.table.classes
    assert record.counts == {"train": 48, "val": 24, "test": 24}
    evaluation, _ = evaluate_run(run, "test", "last")
    assert record.method.summary == evaluation.summary()
    assert [row["epoch"] for row in record.method.epochs] == [0, 1]
    assert record.method.seconds == sum(row["train_seconds"] for row in record.method.epochs)
    assert record.proportion == pytest.approx(data.proportion)


def test_the_quality_is_that_of_all_unknown_cells_in_full_precision(run, record):
    measured = measure_run(RunFolder(run))
    pseudo = measured.method.pseudo_labels(measured.cells)
    expected = pseudo_label_table(pseudo, measured.cells, measured.truth)
    assert list(record.quality) == ["intra", "cross", "union"]
    for name, quality in record.quality.items():
        for counts in ("tp", "fp", "fn"):
            np.testing.assert_array_equal(getattr(quality, counts), getattr(expected[name], counts))
    np.testing.assert_array_equal(record.known_positives, (measured.cells > 0).sum(0))
    np.testing.assert_array_equal(record.positives, (measured.truth > 0).sum(0))


def test_reading_needs_no_model_and_gives_the_same(run, record, monkeypatch):
    monkeypatch.setattr(Recogniser, "load", lambda *_: pytest.fail("the model was loaded"))
    again = read_record(run)
    assert again.agrees_with(record)
    assert again.method.summary == record.method.summary
    for name, values in record.method.scores.items():
        np.testing.assert_array_equal(again.method.scores[name], values)
    (found,), _ = find_runs([run])
    assert found.record.images == record.images
    assert found.proportion == 0.3


def test_a_run_without_a_record_is_measured_once(tmp_path):
    train(tmp_path / "run", tiny_config(*SHORT, "method.name=ignore"))
    said: list[str] = []
    (found,), _ = find_runs([tmp_path / "run"], said.append)
    assert found.record.method.generators == ()
    assert found.record.quality == {}
    assert found.record.probability.shape == found.record.cells.shape
    assert said == [f"Scoring the training images of {tmp_path / 'run'} (once)"]
    (found,), _ = find_runs([tmp_path / "run"], said.append)
    assert found.record.method.name == "ignore"
    assert len(said) == 1


def test_without_pseudo_labels_only_kept_images_are_scored_and_all_are_counted(tmp_path, monkeypatch):
    train(tmp_path / "run", tiny_config(*SHORT, "method.name=ignore"))
    kept = np.array([1, 5, 40])
    monkeypatch.setattr(
        run_record, "drawn_images", lambda total: kept if total == 48 else np.arange(min(total, 3))
    )
    seen: list[int] = []
    score = Recogniser.probabilities

    def count(self, source, rows, *further):
        seen.append(len(rows))
        return score(self, source, rows, *further)

    monkeypatch.setattr(Recogniser, "probabilities", count)
    record = collect_run(RunFolder(tmp_path / "run"))
    assert 3 in seen
    assert 48 not in seen
    data = load_data(RunFolder(tmp_path / "run").read_config())
    rows = data.rows("train")
    np.testing.assert_array_equal(record.rows, rows[kept])
    np.testing.assert_array_equal(record.cells, data.table.cells[rows[kept]])
    np.testing.assert_array_equal(record.known_positives, (data.table.cells[rows] > 0).sum(0))
    np.testing.assert_array_equal(record.positives, (data.table.truth[rows] > 0).sum(0))


def test_the_pictures_are_those_of_the_training_rows(run, record):
    picture = run_pixels(record.config, record.rows)
    assert picture(0).shape == (224, 224, 3)
    small = load_data(RunFolder(run).read_config()).source.image(int(record.rows[5]))
    large = picture(5).reshape(32, 7, 32, 7, 3).mean((1, 3))
    assert np.abs(large - small).mean() < 12  # the same scene, painted larger


def test_a_record_keeps_at_most_so_many_images(tmp_path):
    folder = write_run(tmp_path / "run", "sst+satl", classes=("a", "b", "c"), images=MOST_IMAGES + 300)
    record = read_record(folder)
    assert len(record.rows) == len(record.images) == len(record.cells) == MOST_IMAGES
    assert (np.diff(record.rows) > 0).all()
    np.testing.assert_array_equal(record.rows, drawn_images(MOST_IMAGES + 300))
    assert record.images[-1] == f"scene-{record.rows[-1]:05d}.png"
    # Counts are over all images, so those of the kept ones are fewer.
    assert (record.known_positives >= (record.cells > 0).sum(0)).all()
    assert record.known_positives.sum() > (record.cells > 0).sum()


def test_methods_on_the_same_labels_can_be_compared(tmp_path):
    one = read_record(write_run(tmp_path / "one", "sst", seed=1, images=80))
    two = read_record(write_run(tmp_path / "two", "sst+satl", seed=1, images=80))
    other = read_record(write_run(tmp_path / "other", "sst", seed=2, images=80))
    comparison = compare(one, two)
    assert [method.name for method in comparison.methods] == ["sst", "sst+satl"]
    assert (comparison.seed, comparison.counts["train"]) == (1, 80)
    assert not one.agrees_with(other)


def test_an_unfinished_run_is_refused(run, tmp_path):
    folder = write_run(tmp_path / "cut", "sst", images=40)
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text(lines[0])
    with pytest.raises(RunError, match=r"not finished \(1 of 8 epochs\).*continue it with train\(resume="):
        collect_run(RunFolder(folder))


@pytest.mark.parametrize("damage", [b"", b"no zip", None])
def test_a_record_that_cannot_be_read(tmp_path, damage):
    folder = write_run(tmp_path / "run", "sst", images=40)
    file = folder / RECORD
    if damage is None:
        file.write_bytes(file.read_bytes()[:-900])
    else:
        file.write_bytes(damage)
    with pytest.raises(RunError, match=r"record\.npz: cannot be read; remove it"):
        read_record(folder)
    file.unlink()
    with pytest.raises(RunError, match=r"is missing; make it with figures\("):
        read_record(folder)


@pytest.mark.parametrize("content", ["", "[1, 2]", "method: sst\ntraining: 3\n", "a: [", "training: {}\n"])
def test_a_configuration_that_cannot_be_read(tmp_path, content):
    folder = write_run(tmp_path / "run", "sst", images=40)
    (folder / "config.yaml").write_text(content)
    with pytest.raises(RunError, match=r"config\.yaml: cannot be read"):
        find_runs([folder])

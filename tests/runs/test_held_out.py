"""Known cells that training must not see: hidden everywhere, recorded, and the same after a break."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from satl.errors import ConfigError, RunError, TableError
from satl.inference.run_evaluation import score_training_data
from satl.labels import read_table, write_table
from satl.labels.holdout import HeldOut
from satl.runs.data import RunData, load_data
from satl.runs.run_folder import RunFolder
from training.tiny import KillAt, Killed, assert_same_run, resume, tiny_config, train

HOLDOUT = ("data.holdout=true", "data.holdout_fraction=0.3")


def test_held_out_cells_are_known_training_cells_that_the_table_does_not_know() -> None:
    before, data = load_data(tiny_config()), load_data(tiny_config(*HOLDOUT))
    assert data.held_out is not None
    assert data.held_out_cells is not None
    mask = data.held_out.mask
    known = before.table.cells != 0
    assert (mask <= known).all()
    assert not mask[data.rows("val")].any()
    assert not mask[data.rows("test")].any()
    rows = data.rows("train")
    assert 0.2 < mask[rows].sum() / known[rows].sum() < 0.4
    np.testing.assert_array_equal(data.table.cells, np.where(mask, 0, before.table.cells))
    np.testing.assert_array_equal(data.held_out_cells != 0, mask)
    np.testing.assert_array_equal(data.known_cells, before.table.cells)
    np.testing.assert_array_equal(before.known_cells, before.table.cells)


def test_the_choice_has_its_own_seed() -> None:
    def chosen(*settings: str) -> np.ndarray:
        data = load_data(tiny_config(*HOLDOUT, "data.mask_seed=0", *settings))
        assert data.held_out is not None
        return data.held_out.mask

    first = chosen()
    np.testing.assert_array_equal(first, chosen("training.seed=5"))
    assert (first != chosen("data.holdout_seed=1")).any()


def test_only_cells_that_an_earlier_table_knows_are_held_out(tmp_path: Path) -> None:
    known = load_data(tiny_config()).table
    earlier = known.with_cells(
        np.where(np.arange(known.num_images)[:, None] % 2 == 0, known.cells, 0), encoding="signed"
    )
    changed = np.flatnonzero((earlier.cells != 0).any(axis=1) & (known.split == "train"))[:5]
    cells = np.array(earlier.cells)
    cells[changed] *= -1  # a person has corrected these since
    write_table(earlier.with_cells(cells, encoding="signed").with_truth(None), tmp_path / "before.npz")
    data = load_data(tiny_config(*HOLDOUT, f"data.holdout_from={tmp_path / 'before.npz'}"))
    assert data.held_out is not None
    mask = data.held_out.mask
    assert (mask <= (earlier.cells != 0)).all()
    assert not mask[changed].any()
    assert mask.any()
    np.testing.assert_array_equal(data.known_cells, known.cells)
    with pytest.raises(ConfigError, match="holdout_from needs holdout: true"):
        tiny_config("data.holdout_from=before.npz")


def test_classes_that_cannot_be_certified_keep_their_cells() -> None:
    with pytest.raises(TableError, match=r"no class has enough known cells.*data\.holdout_fraction"):
        load_data(tiny_config("data.holdout=true"))
    with pytest.raises(ConfigError, match="holdout_fraction needs holdout: true"):
        tiny_config("data.holdout_fraction=0.3")
    large = load_data(tiny_config("data.holdout=true", "data.scenes.train=900", "data.proportion=0.9"))
    assert large.held_out is not None
    assert (large.held_out.fraction > 0).any()
    hidden = large.held_out.mask.any(axis=0)
    np.testing.assert_array_equal(hidden, large.held_out.fraction > 0)


def with_other_hidden_labels(data: RunData) -> RunData:
    """The same data, but every held-out label is the opposite."""
    assert data.held_out_cells is not None
    return replace(data, held_out_cells=-data.held_out_cells)


def test_nothing_that_is_learned_depends_on_held_out_labels(tmp_path: Path) -> None:
    config = tiny_config(*HOLDOUT, "model.prior_bias=true")
    data = load_data(config)
    train(tmp_path / "one", config, data=data)
    train(tmp_path / "two", config, data=with_other_hidden_labels(data))
    assert_same_run(tmp_path / "one", tmp_path / "two")


def test_the_choice_is_recorded_and_survives_a_break(tmp_path: Path) -> None:
    config = tiny_config(*HOLDOUT, "training.checkpoint_steps=1")
    train(tmp_path / "alone", config)
    with pytest.raises(Killed):
        train(tmp_path / "cut", config, KillAt(epoch=2, step=2))
    resume(tmp_path / "cut")
    assert_same_run(tmp_path / "alone", tmp_path / "cut")
    data = load_data(config)
    for run in ("alone", "cut"):
        folder = RunFolder.open(tmp_path / run)
        labels = read_table(folder.labels)
        np.testing.assert_array_equal(labels.cells, data.known_cells)
        assert data.held_out is not None
        found = HeldOut.load(folder.held_out, labels.images, labels.classes)
        np.testing.assert_array_equal(found.mask, data.held_out.mask)
    config_file = tmp_path / "cut" / "config.yaml"
    config_file.write_text(config_file.read_text().replace("holdout_seed: 0", "holdout_seed: 7"))
    with pytest.raises(RunError, match="labels or the split are not those"):
        resume(tmp_path / "cut")


def test_held_out_cells_count_where_thresholds_are_chosen_by_a_run(tmp_path: Path) -> None:
    train(tmp_path / "run", tiny_config(*HOLDOUT, "training.epochs=1", "training.stage1_epochs=1"))
    table, scores = score_training_data(tmp_path / "run")
    before = load_data(tiny_config()).table
    np.testing.assert_array_equal(table.cells, before.cells[before.split != "test"])
    assert scores.shape == table.cells.shape


def test_without_a_hold_out_nothing_is_recorded(tmp_path: Path) -> None:
    train(tmp_path / "run", tiny_config("training.epochs=1", "training.stage1_epochs=1"))
    folder = RunFolder.open(tmp_path / "run")
    assert not folder.labels.exists()
    assert not folder.held_out.exists()

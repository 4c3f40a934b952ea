"""The training on a table: enough steps for a small one, and what the user has set stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from satl.completion.workflow.from_table import LEAST_STEPS, config_of_table
from satl.labels import LabelTable, write_table


def content(folder: Path, rows: int, **data: Any) -> dict[str, Any]:
    cells = np.where(np.arange(2 * rows).reshape(rows, 2) % 3 == 0, 1, -1).astype(np.int8)
    table = LabelTable([f"{row}.jpg" for row in range(rows)], ("cat", "dog"), cells, encoding="signed")
    write_table(table, folder / "labels.npz")
    return {"data": {"table": str(folder / "labels.npz"), **data}}


@pytest.mark.parametrize("rows", [1, 30, 1000, 3000, 10_000])
def test_a_small_table_of_features_has_as_many_steps_as_a_larger_one(rows: int, tmp_path: Path) -> None:
    training = config_of_table(content(tmp_path, rows, features="f.npz"), (), "here").training
    images = rows - -(-rows // 10)  # a tenth validates
    assert training.epochs * max(1, images // training.batch_size) >= LEAST_STEPS
    assert training.stage1_epochs == round(training.epochs / 4)
    if rows < 10_000:
        assert training.evaluate_every == training.epochs
    else:
        assert (training.epochs, training.batch_size, training.evaluate_every) == (20, 128, 1)
    if rows >= 1000:
        assert training.epochs <= 56


def test_what_is_set_stays(tmp_path: Path) -> None:
    table = content(tmp_path, 1000, features="f.npz")
    training = config_of_table(table, ["training.epochs=8"], "here").training
    assert (training.epochs, training.stage1_epochs, training.evaluate_every) == (8, 5, 1)
    table["training"] = {"batch_size": 100}
    training = config_of_table(table, ["training.evaluate_every=2"], "here").training
    assert (training.epochs, training.batch_size, training.evaluate_every) == (112, 100, 2)


def test_on_images_only_the_batches_are_smaller(tmp_path: Path) -> None:
    usual = config_of_table(content(tmp_path, 1000, images="photos"), (), "here").training
    few = config_of_table(content(tmp_path, 40, images="photos"), (), "here").training
    assert few.batch_size == 9
    assert (few.epochs, few.evaluate_every) == (usual.epochs, usual.evaluate_every)

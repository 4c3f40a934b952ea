"""The same seed gives the same bits with any number of worker processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from satl.features import FeatureFolder
from satl.runs.reading import make_config
from training.tiny import assert_same_run, tiny_config, train

NUM = 48


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    draw = np.random.default_rng(0)
    lines = ["image,split,cat,dog"]
    for row in range(NUM):
        pixels = draw.integers(0, 256, (24, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{row}.jpg")
        cells = ("", "1", "0")[row % 3], ("1", "0", "")[row // 2 % 3]
        lines.append(f"{row}.jpg,{'val' if row % 4 == 0 else 'train'},{','.join(cells)}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    ids = [f"{row}.jpg" for row in range(NUM)]
    FeatureFolder.write(folder / "features", ids, draw.normal(size=(NUM, 2, 6)), part_rows=20)
    return folder


def test_on_images(data: Path, tmp_path: Path) -> None:
    for workers in (0, 1, 2):
        config = tiny_config(
            *("data.scenes=null", "data.proportion=null", f"data.table={data / 'labels.csv'}"),
            *(f"data.images={data}", "data.encoding=blank", "images.store_size=32", "images.jitter=0.2"),
            *("images.cache_gb=0", f"images.workers={workers}", "method.name=sst+satl"),
            *("training.batch_size=12", "training.epochs=3", "training.stage1_epochs=1"),
        )
        train(tmp_path / str(workers), config)
    assert_same_run(tmp_path / "0", tmp_path / "1")
    assert_same_run(tmp_path / "0", tmp_path / "2")


def test_on_features(data: Path, tmp_path: Path) -> None:
    for workers in (0, 1, 2):
        config = make_config(
            {
                "data": {
                    "table": str(data / "labels.csv"),
                    "features": str(data / "features"),
                    "encoding": "blank",
                },
                "images": {"cache_gb": 0, "workers": workers},  # from their files, where a thread reads ahead
                "model": {"embedding_dim": 8, "feature_dim": 8},
                "training": {"epochs": 3, "stage1_epochs": 1, "batch_size": 12, "device": "cpu"},
            },
            "features",
        )
        train(tmp_path / str(workers), config)
    assert_same_run(tmp_path / "0", tmp_path / "1")
    assert_same_run(tmp_path / "0", tmp_path / "2")

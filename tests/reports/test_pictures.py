"""The pictures of figures come from wherever the run found its images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from satl.images import FolderImages, packed_images
from satl.images.pack import pack_images
from satl.images.store import Kind
from satl.labels import read_table
from satl.reports.training_images import run_pixels
from satl.runs.reading import make_config
from satl.scenes import write_scenes
from training.tiny import TINY


@pytest.mark.parametrize("kind", ["jpeg", "raw"])
def test_the_pictures_of_a_run_on_a_packed_store_are_those_of_the_store(kind: Kind, tmp_path: Path) -> None:
    write_scenes(tmp_path / "scenes", 24, size=32)
    labels, store = tmp_path / "scenes" / "labels.csv", tmp_path / "store"
    images = read_table(labels).images
    pack_images(FolderImages(tmp_path / "scenes", images, 32), images, store, kind=kind)
    data = {"table": str(labels), "images": str(store)}
    content = {**TINY, "data": data, "images": {**TINY["images"], "store_size": 32}}
    config = make_config(content, "config.yaml").model_dump(mode="json")
    picture = run_pixels(config, np.array([7, 2]))
    for row, place in enumerate((7, 2)):
        np.testing.assert_array_equal(picture(row), packed_images(store).image(place))

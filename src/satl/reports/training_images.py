"""Pixels of training images for a person: as large as a figure needs them, in their own proportions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.errors import RunError

Picture = Callable[[int], npt.NDArray[np.uint8]]
"""From a row of the training images to its pixels, uint8 (H, W, 3)."""
_PIXELS = 224


def scene_pictures(rows: npt.NDArray[np.int64], size: int, seed: int) -> Picture:
    """Return what paints a training scene, larger than the network sees it."""
    from satl.scenes import render_scene

    def picture(row: int) -> npt.NDArray[np.uint8]:
        # Scenes are numbered like the rows of the table and look the same at every size.
        return render_scene(int(rows[row]), size=max(size, _PIXELS), seed=seed)[0]

    return picture


def run_pictures(config: Mapping[str, Any], rows: npt.NDArray[np.int64]) -> Picture:
    """Return what paints the training images of a run, whose configuration is given as plain data.

    Raises:
        SatlError: the images are no longer where the run found them.
    """
    scenes = config["data"].get("scenes")
    if scenes:
        return scene_pictures(rows, int(scenes["size"]), int(scenes["seed"]))
    from satl.runs.data import load_data
    from satl.runs.reading import make_config

    # Only a few images are wanted, so none is read ahead.
    lazy = {**config, "images": {**(config.get("images") or {}), "cache_gb": 0}}
    data = load_data(make_config(lazy, "config.yaml"))
    if len(rows) and int(rows.max()) >= len(data.source):
        raise RunError("the table has fewer rows than the run was trained on; restore it.")
    files = getattr(data.source, "files", None)

    def picture(row: int) -> npt.NDArray[np.uint8]:
        place = int(rows[row])
        if files is None:
            return data.source.image(place)
        from satl.images.decode import decode_image

        return decode_image(files[place], None)

    return picture

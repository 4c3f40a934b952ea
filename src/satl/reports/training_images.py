"""Pixels of training images for figures: as large as a figure needs them, in their own proportions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.errors import RunError

PixelsOf = Callable[[int], npt.NDArray[np.uint8]]
"""From a row of the training images to its pixels, uint8 (H, W, 3)."""
_PIXELS = 224


def scene_pixels(rows: npt.NDArray[np.int64], size: int, seed: int) -> PixelsOf:
    """Return a function that renders a training scene, larger than the network sees it."""
    from satl.scenes import render_scene

    def pixels_of(row: int) -> npt.NDArray[np.uint8]:
        # Scenes are numbered like the rows of the table and look the same at every size.
        return render_scene(int(rows[row]), size=max(size, _PIXELS), seed=seed)[0]

    return pixels_of


def run_pixels(config: Mapping[str, Any], rows: npt.NDArray[np.int64]) -> PixelsOf:
    """Return a function that reads a training image of a run, whose configuration is given as plain data.

    Raises:
        SatlError: the images are no longer where the run found them.
    """
    scenes = config["data"].get("scenes")
    if scenes:
        return scene_pixels(rows, int(scenes["size"]), int(scenes["seed"]))
    from satl.runs.data import load_data
    from satl.runs.reading import make_config

    # Only a few images are wanted, so none is read ahead.
    lazy = {**config, "images": {**(config.get("images") or {}), "cache_gb": 0}}
    data = load_data(make_config(lazy, "config.yaml"))
    if len(rows) and int(rows.max()) >= len(data.source):
        raise RunError("the table has fewer rows than the run was trained on", remedy="restore it")
    files = getattr(data.source, "files", None)

    def pixels_of(row: int) -> npt.NDArray[np.uint8]:
        place = int(rows[row])
        if files is None:
            return data.source.image(place)
        from satl.images.decode import decode_image

        return decode_image(files[place], None)

    return pixels_of

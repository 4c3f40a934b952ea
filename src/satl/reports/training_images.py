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


def scene_pixels(rows: npt.NDArray[np.int64], size: int, seed: int, objects: str = "few") -> PixelsOf:
    """Return a function that renders a training scene, larger than the network sees it."""
    from satl.scenes import render_scene

    def pixels_of(row: int) -> npt.NDArray[np.uint8]:
        # Scenes are numbered like the rows of the table and look the same at every size.
        return render_scene(int(rows[row]), size=max(size, _PIXELS), seed=seed, objects=objects)[0]

    return pixels_of


def run_pixels(
    config: Mapping[str, Any], rows: npt.NDArray[np.int64], broken: Mapping[str, str] | None = None
) -> PixelsOf:
    """Return a function that reads a training image of a run.

    Args:
        config: of the run, as plain data.
        rows: of the images, as the run counts them.
        broken: images that the run left out, as ``RunFolder.read_broken`` gives them; None: none.

    Raises:
        SatlError: the images are no longer where the run found them.
    """
    scenes = config["data"].get("scenes")
    if scenes:
        return scene_pixels(rows, int(scenes["size"]), int(scenes["seed"]), scenes.get("objects", "few"))
    from satl.runs.data import load_data, open_images
    from satl.runs.reading import make_config

    # Only a few images are wanted, so none is read ahead.
    lazy = {**config, "images": {**(config.get("images") or {}), "cache_gb": 0}}
    run = make_config(lazy, "config.yaml")
    if run.on_features and run.data.images is None:
        raise RunError(
            "the run is trained on features and knows no folder of images",
            remedy="name it as data.images in its config.yaml",
        )
    data = load_data(run, recorded=broken or {})
    if len(rows) and int(rows.max()) >= len(data.source):
        raise RunError("the table has fewer rows than the run was trained on", remedy="restore it")
    if run.on_features and run.data.images is not None:
        chosen = [data.table.images[row] for row in rows.tolist()]
        source = open_images(run.data.images, chosen, run.images.store_size, (rows + 1).tolist())
        rows = np.arange(len(rows))
    else:
        source = data.images
    files = getattr(source, "files", None)

    def pixels_of(row: int) -> npt.NDArray[np.uint8]:
        place = int(rows[row])
        if files is None:
            return source.image(place)
        from satl.images.decode import decode_image

        return decode_image(files[place], None)

    return pixels_of

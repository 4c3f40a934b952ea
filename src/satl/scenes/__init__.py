"""``scenes``: an endless data set of drawn pictures with complete, true labels.

Twenty-four categories of everyday objects in seven contexts, 2 to 4 of them in a picture, or 8 to 14
(``objects="many"``). Scene ``index`` depends on ``(seed, index)`` and is painted at any size; nothing is downloaded.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from satl.errors import Argument, ConfigError, Sentence
from satl.files import atomic_path, check_out_folder
from satl.labels import LabelTable, write_table
from satl.scenes.contexts import CROWDS
from satl.scenes.objects import CATEGORIES
from satl.scenes.render import LARGEST_SIZE, SMALLEST_SIZE, compose, compose_object, paint

SCENE_CLASSES: tuple[str, ...] = tuple(CATEGORIES)
"""Names of the categories, in the order of the columns."""

_CHUNK = 64
_FORMATS = {"png": "PNG", "jpg": "JPEG"}


def render_scene(
    index: int, size: int = 64, seed: int = 0, objects: str = "few"
) -> tuple[NDArray[np.uint8], NDArray[np.int8]]:
    """Render one scene.

    Returns pixels, shape (size, size, 3), uint8 RGB, and labels, shape (C,), int8: +1 present, -1 absent. Both
    depend on ``(seed, index, size, objects)`` only; the labels do not depend on the size. ``objects`` is ``few`` (2 to
    4 categories in a picture) or ``many`` (8 to 14, smaller).

    >>> pixels, labels = render_scene(0, size=32)
    >>> pixels.shape, 2 <= int((labels == 1).sum()) <= 4
    ((32, 32, 3), True)
    """
    _check(size, seed, index, objects=objects)
    scene = compose(index, seed, objects)
    labels = np.full(len(SCENE_CLASSES), -1, dtype=np.int8)
    labels[[SCENE_CLASSES.index(name) for name in scene.categories]] = 1
    return paint(scene, size), labels


def render_object(index: int, size: int = 64, seed: int = 0) -> tuple[NDArray[np.uint8], int]:
    """Render a picture of one object alone, which is never a scene.

    Returns pixels, shape (size, size, 3), uint8 RGB, and the number of its category in :data:`SCENE_CLASSES`.

    >>> pixels, category = render_object(0, size=32)
    >>> pixels.shape, SCENE_CLASSES[category] in CATEGORIES
    ((32, 32, 3), True)
    """
    _check(size, seed, index)
    scene = compose_object(index, seed)
    return paint(scene, size), SCENE_CLASSES.index(scene.categories[0])


def make_scenes(
    count: int,
    size: int = 64,
    seed: int = 0,
    start: int = 0,
    workers: int | None = None,
    objects: str = "few",
) -> tuple[NDArray[np.uint8], LabelTable]:
    """Render scenes ``start`` to ``start + count - 1`` into memory.

    Returns pixels, shape (N, size, size, 3), uint8 RGB, and a complete table with the images
    ``scene-00000.png`` and so on. ``workers`` greater than 1 renders in as many processes, with the same result;
    a script that asks for them needs the usual ``if __name__ == "__main__":``. ``objects`` is that of
    :func:`render_scene`.

    >>> pixels, table = make_scenes(3, size=32, start=10)
    >>> pixels.shape, table.images
    ((3, 32, 32, 3), ('scene-00010.png', 'scene-00011.png', 'scene-00012.png'))
    """
    _check(size, seed, start, count, objects)
    pixels = np.empty((count, size, size, 3), dtype=np.uint8)
    cells = np.empty((count, len(SCENE_CLASSES)), dtype=np.int8)
    for row, (image, labels) in enumerate(_rendered(count, size, seed, start, workers, objects)):
        pixels[row], cells[row] = image, labels
    return pixels, LabelTable(
        images=_names(count, start), classes=SCENE_CLASSES, cells=cells, encoding="signed"
    )


def write_scenes(
    folder: str | Path,
    count: int,
    size: int = 96,
    seed: int = 0,
    start: int = 0,
    workers: int | None = None,
    image_format: str = "png",
    *,
    objects: str = "few",
    force: bool = False,
) -> LabelTable:
    """Render scenes into ``folder``: the images and, last, ``labels.csv`` with the complete labels.

    ``image_format`` is ``png`` or ``jpg``, ``objects`` that of :func:`render_scene`. Returns the table. Whoever finds
    a ``labels.csv`` finds all its images.
    A folder that holds one already is refused; with ``force`` it is replaced, and so are images of the same names.
    """
    _check(size, seed, start, count, objects)
    if image_format not in _FORMATS:
        raise ConfigError(
            "scenes are written as png or jpg",
            where=Argument("image_format", image_format),
            remedy=f"use {' or '.join(_FORMATS)}",
        )
    target = Path(folder)
    check_out_folder(target)
    labels_file = target / "labels.csv"
    if labels_file.exists():
        if not force:
            raise ConfigError(
                "holds a labels.csv already",
                where=Argument("out", target),
                remedy=Sentence(
                    "give another folder, or pass {force} to replace it and images of the same names",
                    force=Argument("force", True),
                ),
            )
        if labels_file.is_dir():
            raise ConfigError(
                "its labels.csv is a folder", where=Argument("out", target), remedy="give another folder"
            )
        labels_file.unlink()  # first: the old labels must not stand beside new images, if this is interrupted
    names = _names(count, start, image_format)
    cells = np.empty((count, len(SCENE_CLASSES)), dtype=np.int8)
    for row, (image, labels) in enumerate(_rendered(count, size, seed, start, workers, objects)):
        with atomic_path(target / names[row]) as temporary:
            Image.fromarray(image).save(temporary, format=_FORMATS[image_format], quality=92)
        cells[row] = labels
    table = LabelTable(images=names, classes=SCENE_CLASSES, cells=cells, encoding="signed")
    write_table(table, labels_file)
    return table


def _names(count: int, start: int, suffix: str = "png") -> tuple[str, ...]:
    return tuple(f"scene-{index:05d}.{suffix}" for index in range(start, start + count))


def _check(size: int, seed: int, start: int, count: int = 1, objects: str = "few") -> None:
    if objects not in CROWDS:
        raise ConfigError(
            "scenes show few objects or many",
            where=Argument("objects", objects),
            remedy=f"use {' or '.join(CROWDS)}",
        )
    if not SMALLEST_SIZE <= size <= LARGEST_SIZE:
        raise ConfigError(
            f"scenes can be rendered at {SMALLEST_SIZE} to {LARGEST_SIZE} pixels",
            where=Argument("size", size),
            remedy=f"use {SMALLEST_SIZE} to {LARGEST_SIZE}",
        )
    for name, value, least, what in (
        ("seed", seed, 0, "must not be negative"),
        ("count", count, 1, "no scene would be rendered"),
        ("start", start, 0, "must not be negative"),
    ):
        if value < least:
            raise ConfigError(what, where=Argument(name, value), remedy=f"use {least} or more")


def _rendered(
    count: int, size: int, seed: int, start: int, workers: int | None, objects: str
) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int8]]]:
    """Yield the scenes in order; in other processes where that was asked for and can work."""
    draw = partial(render_scene, size=size, seed=seed, objects=objects)
    indices = range(start, start + count)
    done = 0
    if workers is not None and workers > 1 and count > 1:
        # A fresh interpreter per worker: a fork would copy the threads' locks of whoever calls.
        context = multiprocessing.get_context("spawn")
        try:
            with ProcessPoolExecutor(min(workers, count), mp_context=context) as pool:
                for result in pool.map(draw, indices, chunksize=min(_CHUNK, -(-count // workers))):
                    yield result
                    done += 1
        except (BrokenProcessPool, OSError, ImportError):
            pass  # no other process can be started (no memory, no importable main module): continue in this one
    for index in indices[done:]:
        yield draw(index)

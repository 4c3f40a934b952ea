"""NumPy ``.npz``: ``images``, ``classes``, ``cells`` and, optionally, ``split``, ``truth``, ``encoding``."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.errors import TableError
from satl.labels.encodings import NOT_A_LABEL, Encoding, array_codes
from satl.labels.io.registry import Format, TableFile, register_format
from satl.labels.io.wide import Coded, decode_coded, not_a_label, split_names, unique_images
from satl.labels.table import LabelTable

# The first name is ours; the others are met in files of other projects.
IMAGE_KEYS = ("images", "image", "ids", "filenames")
CLASS_KEYS = ("classes", "names", "class_names")
CELL_KEYS = ("cells", "labels")


def read_npz(path: Path, encoding: str | None) -> TableFile:
    """Read an ``.npz`` file; ``truth`` is read in the encoding of ``cells``."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise ValueError("a single array, as numpy.save writes it")
        with loaded as file:
            arrays = {key: file[key] for key in file.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        if "Object arrays" in str(error):
            raise TableError(
                f"{path} holds Python objects, which are not loaded for safety: save names as text arrays, "
                f"np.array(names, dtype=str)."
            ) from None
        raise TableError(f"{path} is not a readable .npz file: save it with numpy.savez.") from None
    images = unique_images(tuple(_texts(arrays, IMAGE_KEYS, path)), path)
    classes = tuple(_texts(arrays, CLASS_KEYS, path))
    key, cells = _pick(arrays, CELL_KEYS, path)
    shape = (len(images), len(classes))
    codes = _codes(cells, key, shape, images, classes, path)
    truth = None
    if "truth" in arrays:
        truth = _codes(arrays["truth"], "truth", shape, images, classes, path)
    split = None
    if "split" in arrays:
        if arrays["split"].shape != (len(images),):
            raise TableError(f"{path}: 'split' has shape {arrays['split'].shape}, not ({len(images)},).")
        split = split_names(arrays["split"].tolist(), images, path)
    stated = str(arrays["encoding"]) if "encoding" in arrays else None
    return decode_coded(Coded(images, classes, codes, split, truth), path, "npz", encoding, stated)


def write_npz(table: LabelTable, path: Path, encoding: Encoding | None) -> None:
    """Write an ``.npz`` file with int8 cells; it states its encoding, ``signed`` unless another is given."""
    name = "signed" if encoding is None else encoding.name
    if name not in ("signed", "csl"):
        raise TableError(
            f"an .npz table holds numbers, not '{name}': write it in encoding 'signed' or 'csl'."
        )
    lookup = np.array([-1, 0, 1] if name == "signed" else [0, -1, 1], dtype=np.int8)
    arrays: dict[str, npt.NDArray[Any]] = {
        "images": np.array(table.images, dtype=np.str_),
        "classes": np.array(table.classes, dtype=np.str_),
        "cells": lookup[table.cells + 1],
        "encoding": np.array(name),
    }
    if table.split is not None:
        arrays["split"] = table.split
    if table.truth is not None:
        arrays["truth"] = lookup[table.truth + 1]
    with path.open("wb") as stream:
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]


def _pick(
    arrays: dict[str, npt.NDArray[Any]], names: tuple[str, ...], path: Path
) -> tuple[str, npt.NDArray[Any]]:
    for name in names:
        if name in arrays:
            return name, arrays[name]
    raise TableError(
        f"{path}: there is no array called {' or '.join(repr(n) for n in names)} "
        f"(arrays: {', '.join(map(repr, arrays)) or 'none'}): add it to the file."
    )


def _texts(arrays: dict[str, npt.NDArray[Any]], names: tuple[str, ...], path: Path) -> list[str]:
    key, values = _pick(arrays, names, path)
    if values.ndim != 1 or values.dtype.kind not in "Ui":
        raise TableError(f"{path}: {key!r} must be a list of texts, not {values.dtype} {values.shape}.")
    return [str(value).strip() for value in values.tolist()]


def _codes(
    values: npt.NDArray[Any],
    key: str,
    shape: tuple[int, int],
    images: tuple[str, ...],
    classes: tuple[str, ...],
    path: Path,
) -> npt.NDArray[np.uint8]:
    if values.shape != shape:
        raise TableError(f"{path}: {key!r} has shape {values.shape}, but the names say {shape}.")
    if values.dtype.kind not in "iufbU":
        raise TableError(f"{path}: {key!r} must hold numbers or words, not {values.dtype}.")
    codes = array_codes(values)
    wrong = codes == NOT_A_LABEL
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        raise not_a_label(path, row, images[row], classes[column], values[row, column])
    return codes


register_format(Format("npz", (".npz",), read_npz, write_npz, holds_truth=True))

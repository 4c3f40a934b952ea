"""NumPy ``.npz``: ``images``, ``classes``, ``cells`` and, optionally, ``split``, ``truth``, ``encoding``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from satl.errors import TableError
from satl.labels.encodings import NOT_A_LABEL, Encoding, array_codes
from satl.labels.io.arrays import ArrayFile, label_arrays
from satl.labels.io.registry import Format, TableFile, register_format
from satl.labels.io.wide import Coded, decode_coded, not_a_label, split_names, unique_images
from satl.labels.table import LabelTable

# The first name is ours; the others occur in files of other projects.
IMAGE_KEYS = ("images", "image", "ids", "filenames")
CLASS_KEYS = ("classes", "names", "class_names")
CELL_KEYS = ("cells", "labels")


def read_npz(path: Path, encoding: str | None) -> TableFile:
    """Read an ``.npz`` file; ``truth`` is read in the encoding of ``cells``."""
    with ArrayFile(path) as arrays:
        images = unique_images(_texts(arrays, IMAGE_KEYS), path)
        classes = _texts(arrays, CLASS_KEYS)
        split = None
        if "split" in arrays:
            if arrays.shape("split") != (len(images),):
                raise TableError(f"{path}: 'split' has shape {arrays.shape('split')}, not ({len(images)},).")
            split = split_names(arrays.read("split").tolist(), images, path)
        return read_label_arrays(arrays, _require(arrays, CELL_KEYS), images, classes, encoding, split)


def read_label_arrays(
    arrays: ArrayFile,
    key: str,
    images: tuple[str, ...],
    classes: tuple[str, ...],
    encoding: str | None,
    split: list[str] | None = None,
) -> TableFile:
    """Read the array of labels called ``key``, with ``truth`` and ``encoding`` where the file has them."""
    cells = _codes(arrays, key, images, classes)
    truth = _codes(arrays, "truth", images, classes) if "truth" in arrays else None
    stated = str(arrays.read("encoding")) if "encoding" in arrays else None
    return decode_coded(Coded(images, classes, cells, split, truth), arrays.path, "npz", encoding, stated)


def write_npz(table: LabelTable, path: Path, encoding: Encoding | None) -> None:
    """Write an ``.npz`` file with int8 cells; it states its encoding, ``signed`` unless another is given."""
    name = "signed" if encoding is None else encoding.name
    if name not in ("signed", "csl"):
        raise TableError(
            f"an .npz table holds numbers, not '{name}': write it in encoding 'signed' or 'csl'."
        )
    arrays = label_arrays(table, table.cells, name)
    if table.truth is not None:
        arrays["truth"] = label_arrays(table, table.truth, name)["cells"]
    with path.open("wb") as stream:
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]


def _require(arrays: ArrayFile, names: tuple[str, ...]) -> str:
    found = arrays.first(names)
    if found is None:
        raise TableError(
            f"{arrays.path}: there is no array called {' or '.join(map(repr, names))} ({arrays.listed}): add it to "
            "the file."
        )
    return found


def _texts(arrays: ArrayFile, names: tuple[str, ...]) -> tuple[str, ...]:
    key = _require(arrays, names)
    values = arrays.read(key)
    if values.ndim != 1 or values.dtype.kind not in "Ui":
        raise TableError(
            f"{arrays.path}: {key!r} must be a list of texts, not {values.dtype} {values.shape}."
        )
    return tuple(str(value).strip() for value in values.tolist())


def _codes(
    arrays: ArrayFile, key: str, images: tuple[str, ...], classes: tuple[str, ...]
) -> npt.NDArray[np.uint8]:
    values = arrays.read(key)
    shape = (len(images), len(classes))
    if values.shape != shape or values.dtype.kind not in "iufbU":
        raise TableError(
            f"{key!r} must hold labels of the shape {shape}, not {values.dtype} {values.shape}.",
            where=arrays.path,
        )
    codes = array_codes(values)
    wrong = codes == NOT_A_LABEL
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        raise not_a_label(arrays.path, row, images[row], classes[column], values[row, column])
    return codes


register_format(Format("npz", (".npz",), read_npz, write_npz, holds_truth=True))

"""Word vectors of the class names, from a GloVe text file or an array file of the user."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from satl.errors import ConfigError, TableError
from satl.labels.io.arrays import BROKEN, ArrayFile, map_array_file

# Class names of PASCAL VOC that are two words written as one.
_COMPOUNDS = {"diningtable": "dining table", "pottedplant": "potted plant", "tvmonitor": "tv monitor"}
VECTOR_NORM = 6.0
"""Norm of a typical GloVe vector of a category name; other vectors of classes are made as long."""


def load_word_vectors(
    path: str | Path,
    classes: Sequence[str],
    missing: Literal["error", "random"] = "error",
    seed: int = 0,
) -> NDArray[np.float32]:
    """One vector per class name: (C, E) float32.

    A name is split into lower-case words at spaces, underscores and hyphens (and the three compounds of VOC);
    its vector is the mean of its words' vectors.

    Args:
        path: a GloVe text file (a word and its numbers per line, read as a stream), or an ``.npz`` file with
            ``names`` (M,) and ``vectors`` (M, E), in which a whole class name is looked up before its words,
            or an ``.npy`` file (C, E) with one row per class, in the order of the classes (the layout in which
            the vectors of VG-200, whose classes have no names, are handed around).
        classes: the class names.
        missing: what to do with a word that the file does not have: ``"error"``, or ``"random"``, which takes
            the mean of the words that are there and, where there is none, a random vector of norm 6.
        seed: seed of the random vectors; a class gets the same one whatever the other classes are.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = Path(folder.name) / "glove.txt"
    >>> _ = file.write_text("traffic 1 2\\nlight 3 4\\n")
    >>> load_word_vectors(file, ["Traffic_Light", "light"]).tolist()
    [[2.0, 3.0], [3.0, 4.0]]
    >>> folder.cleanup()
    """
    path = Path(path)
    if missing not in ("error", "random"):
        raise ConfigError(f"missing is '{missing}', but must be 'error' or 'random'.")
    if not path.is_file():
        raise ConfigError(
            f"word vectors {path} do not exist: correct the path, or leave it out to learn the embeddings."
        )
    if path.suffix == ".npy":
        return _read_rows(path, len(classes))
    words = {name: _words(name) for name in classes}
    needed = {word for parts in words.values() for word in parts} | {_whole(name) for name in classes}
    from_archive = path.suffix == ".npz"
    vectors = _read_archive(path, needed) if from_archive else _read_text(path, needed)
    if not vectors:
        raise ConfigError(
            f"word vectors {path} have no word of any class name: give a GloVe text file, or an .npz file "
            "with 'names' and 'vectors'."
        )
    dim = next(iter(vectors.values())).shape[0]
    rows = np.empty((len(classes), dim), dtype=np.float64)
    for row, name in enumerate(classes):
        if from_archive and _whole(name) in vectors:
            rows[row] = vectors[_whole(name)]
            continue
        absent = [word for word in words[name] if word not in vectors]
        if missing == "error" and (absent or not words[name]):
            raise ConfigError(
                f"word vectors {path} have no word '{absent[0] if absent else name}' of the class '{name}': "
                "rename the class, add the word to the file, or pass missing='random' "
                "(model.missing_words=random) for a random vector."
            )
        found = [vectors[word] for word in words[name] if word in vectors]
        rows[row] = np.mean(found, axis=0) if found else _random_vector(name, dim, seed)
    return rows.astype(np.float32)


def _whole(name: str) -> str:
    return " ".join(re.split(r"[\s_\-]+", name.lower().strip(" _-")))


def _words(name: str) -> list[str]:
    pieces = _whole(name).split()
    return [word for piece in pieces for word in _COMPOUNDS.get(piece, piece).split()]


def _random_vector(name: str, dim: int, seed: int) -> NDArray[np.float64]:
    generator = np.random.default_rng([seed, *name.encode()])
    direction = generator.standard_normal(dim)
    return direction * (VECTOR_NORM / np.linalg.norm(direction))


def _read_rows(path: Path, count: int) -> NDArray[np.float32]:
    try:
        # Mapped, so that no memory is taken for what a header claims and the file does not hold.
        mapped = map_array_file(path)
    except BROKEN:
        mapped = np.empty(0, dtype=np.str_)
    if mapped.dtype.kind not in "fiub":
        raise ConfigError(
            f"word vectors {path} are not an .npy file of numbers: write it with np.save(path, vectors)."
        )
    if mapped.ndim != 2 or len(mapped) != count:
        raise ConfigError(
            f"word vectors {path} have the shape {mapped.shape}, but there are {count} classes: give one row per "
            "class, in the order of the classes, or an .npz file with names."
        )
    with np.errstate(over="ignore"):
        table = np.asarray(mapped, dtype=np.float64)
    broken = np.flatnonzero(~np.isfinite(table).all(axis=1))
    if len(broken):
        raise ConfigError(f"word vectors {path}, row {broken[0] + 1} have a NaN or infinite number.")
    return table.astype(np.float32)


def _read_archive(path: Path, needed: set[str]) -> Mapping[str, NDArray[np.float64]]:
    try:
        with ArrayFile(path) as archive:
            names, table = archive.read("names"), np.asarray(archive.read("vectors"), dtype=np.float64)
    except (KeyError, TableError, *BROKEN) as error:
        raise ConfigError(
            f"word vectors {path} are not an .npz file with 'names' (M,) and numeric 'vectors' (M, E): "
            "write it with np.savez(path, names=..., vectors=...)."
        ) from error
    if names.ndim != 1 or table.ndim != 2 or len(names) != len(table):
        raise ConfigError(
            f"word vectors {path} have 'names' of shape {names.shape} and 'vectors' of shape {table.shape}: "
            "give (M,) and (M, E)."
        )
    found: dict[str, NDArray[np.float64]] = {}
    for row, name in enumerate(names):
        key = _whole(str(name))
        if key not in needed or key in found:
            continue
        if not np.isfinite(table[row]).all():
            raise ConfigError(f"word vectors {path}, row {row + 1} ('{name}') have a NaN or infinite number.")
        found[key] = table[row]
    return found


def _read_text(path: Path, needed: set[str]) -> Mapping[str, NDArray[np.float64]]:
    found: dict[str, NDArray[np.float64]] = {}
    dim: int | None = None
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            word, _, rest = line.partition(" ")
            if word not in needed or word in found:
                continue
            try:
                vector = np.array([float(text) for text in rest.split()], dtype=np.float64)
            except ValueError as error:
                raise ConfigError(
                    f"word vectors {path}, line {number} ('{word}') have a value that is not a number: "
                    "each line must be a word and its numbers, separated by spaces."
                ) from error
            if dim is None:
                dim = len(vector)
            if len(vector) != dim or dim == 0:
                raise ConfigError(
                    f"word vectors {path}, line {number} ('{word}') have {len(vector)} numbers where others "
                    f"have {dim or 'some'}: repair the file or download it again."
                )
            if not np.isfinite(vector).all():
                raise ConfigError(
                    f"word vectors {path}, line {number} ('{word}') have a NaN or infinite number: "
                    "repair the line."
                )
            found[word] = vector
            if len(found) == len(needed):
                break
    return found

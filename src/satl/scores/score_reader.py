"""The kinds of files that hold scores: one registry.

A new kind is one new file in ``satl.scores.readers`` that ends in a call of :func:`register_reader`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.errors import TableError
from satl.files import nearest_file
from satl.labels import TableFile

SCORE_KEYS = ("scores", "probabilities")
"""Names of the array of scores; the first is ours, the others occur in files of other projects."""
SCORE_COLUMNS = ("score", "probability")
"""Names of the column of scores in a long file, beside ``image`` and ``label``."""

Block = tuple[Sequence[str] | None, npt.NDArray[Any]]
"""Ids of the next n images, or None where the file names none, and their scores (n, K)."""


@dataclass
class ScoreFile:
    """An open file of scores.

    Attributes:
        classes: names of the columns, those that the blocks hold first; None: the file names no classes.
        columns: number of columns.
        blocks: the scores, some images at a time.
        rows: number of images; None: not known before the end.
        held_out: bool (rows,) or (rows, columns), see :class:`satl.scores.ScoreTable`.
        folds: number of models in cross-fitting.
        read_uncertainty: returns (rows, columns); None: there is none.
        read_labels: takes image ids, class names and the encoding asked for, returns the labels; None: there are none.
    """

    classes: Sequence[str] | None
    columns: int
    blocks: Iterator[Block]
    rows: int | None = None
    held_out: npt.NDArray[np.bool_] | None = None
    folds: int = 0
    read_uncertainty: Callable[[], npt.NDArray[np.float32]] | None = None
    read_labels: Callable[[tuple[str, ...], tuple[str, ...], str | None], TableFile] | None = None


OpenScores = Callable[[Path, Sequence[str] | None], AbstractContextManager[ScoreFile]]
"""Takes a path and the classes that are wanted (None: all) and opens the file."""


@dataclass(frozen=True)
class ScoreReader:
    """A kind of file: what it is called, which paths are of it, how it is opened.

    Attributes:
        name: for messages, ".csv" or "a folder of predictions".
        reads: whether a path is of this kind.
        open: opens it; see :data:`OpenScores`.
    """

    name: str
    reads: Callable[[Path], bool]
    open: OpenScores


READERS: dict[str, ScoreReader] = {}


def register_reader(reader: ScoreReader) -> ScoreReader:
    """Add a kind of file; a name is taken once."""
    if reader.name in READERS:
        raise ValueError(f"a reader of {reader.name!r} exists already")
    READERS[reader.name] = reader
    return reader


def has_extension(*extensions: str) -> Callable[[Path], bool]:
    """Return a test for :attr:`ScoreReader.reads`: a file with one of these extensions."""
    return lambda path: path.suffix.lower() in extensions and not path.is_dir()


def find_reader(path: Path) -> ScoreReader:
    """Return the reader of a path.

    Raises:
        TableError: nothing is there, or no reader reads it.
    """
    import satl.scores.readers  # noqa: F401  (registers every reader)

    if not path.exists():
        raise TableError(
            f"does not exist{nearest_file(path)}", where=path, remedy="check the path of the scores"
        )
    for reader in READERS.values():
        if reader.reads(path):
            return reader
    if path.is_dir():
        raise TableError("is a folder", where=path, remedy="name the file of scores in it")
    raise TableError(
        f"scores are read from {', '.join(READERS)}, not from '{path.suffix.lower()}'",
        where=path,
        remedy="convert it to one of those",
    )

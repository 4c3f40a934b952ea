"""The kinds of files that hold features: one registry.

A new kind is one new file in ``satl.features.readers`` that ends in a call of :func:`register_feature_reader`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from satl.errors import TableError
from satl.files import nearest_file

FEATURE_NAMES = ("features", "feature", "embeddings", "embedding", "vectors", "vector")
"""Names of the array or column of features; the first is ours, the others occur in files of other projects."""


@dataclass
class FeatureFile:
    """An open file of features.

    Attributes:
        ids: of the pictures, in the order of the rows.
        blocks: the features, some rows at a time: floating (n, D), or (n, V, D) for V views.
        mapped: whether the blocks are mapped into memory and may be kept after the file is closed.
        verify: compares the file with its checksums, for one that is read as a whole; None: it has none.
        made_by: what made the features, where the file says so.
    """

    ids: Sequence[str]
    blocks: Iterable[npt.NDArray[Any]]
    mapped: bool = False
    verify: Callable[[], None] | None = None
    made_by: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FeatureReader:
    """A kind of file: what it is called, which paths are of it, how it is opened.

    Attributes:
        name: for messages, ".npz" or "a folder of features".
        reads: whether a path is of this kind.
        open: opens it.
    """

    name: str
    reads: Callable[[Path], bool]
    open: Callable[[Path], AbstractContextManager[FeatureFile]]


FEATURE_READERS: dict[str, FeatureReader] = {}


def register_feature_reader(reader: FeatureReader) -> FeatureReader:
    """Add a kind of file; a name is taken once."""
    if reader.name in FEATURE_READERS:
        raise ValueError(f"a reader of {reader.name!r} exists already")
    FEATURE_READERS[reader.name] = reader
    return reader


def find_feature_reader(path: Path) -> FeatureReader:
    """Return the reader of a path.

    Raises:
        TableError: nothing is there, or no reader reads it.
    """
    import satl.features.readers  # noqa: F401  (registers every reader)

    if not path.exists():
        raise TableError(
            f"does not exist{nearest_file(path)}", where=path, remedy="check the path of the features"
        )
    for reader in FEATURE_READERS.values():
        if reader.reads(path):
            return reader
    kind = "a folder of other files" if path.is_dir() else f"'{path.suffix.lower()}'"
    raise TableError(
        f"features are read from {', '.join(FEATURE_READERS)}, not from {kind}",
        where=path,
        remedy="convert it to one of those",
    )


def is_feature_file(path: Path) -> bool:
    """Whether some reader of features reads a path that exists."""
    import satl.features.readers  # noqa: F401  (registers every reader)

    return path.exists() and any(reader.reads(path) for reader in FEATURE_READERS.values())

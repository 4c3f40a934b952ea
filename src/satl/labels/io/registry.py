"""The file formats of label tables: one small registry, looked up by extension.

A new format is one new file in this folder that ends in a call of :func:`register_format`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from satl.errors import Argument, Sentence, TableError, nearest
from satl.files import file_ending
from satl.labels.encodings import Encoding
from satl.labels.table import LabelTable


@dataclass(frozen=True)
class TableFile:
    """A table as it was read, with the reading: which format and encoding, and which values were seen.

    Attributes:
        encoding: None for a format that names what is present and absent.
        detected: whether the encoding was found from the values, not given.
        counts: plain value -> number of cells, most frequent first; a blank is ``""``.
    """

    table: LabelTable
    path: Path
    format: str
    encoding: str | None = None
    detected: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)


Reader = Callable[..., TableFile]
Writer = Callable[[LabelTable, Path, Encoding | None], None]


@dataclass(frozen=True)
class Format:
    """A file format: how to read and write it.

    Attributes:
        read: (path, encoding name or None) -> TableFile; also takes ``ignore``, names of columns that are not
            classes, where ``ignores_columns``.
        write: (table, temporary path, encoding or None for the format's own choice); None: read only.
        holds_truth: whether one file carries the hidden truth as well.
        encoded: whether its cells are values that need an encoding.
        recognises: for formats that share an extension (``.json``), tells from the file itself. One without it is
            what the extension means otherwise.
    """

    name: str
    extensions: tuple[str, ...]
    read: Reader
    write: Writer | None = None
    holds_truth: bool = False
    encoded: bool = True
    recognises: Callable[[Path], bool] | None = None
    ignores_columns: bool = False

    def writes(self, path: Path) -> bool:
        """Whether a file called ``path`` can be written in it."""
        return self.write is not None and file_ending(path) in self.extensions


FORMATS: dict[str, Format] = {}


def register_format(format: Format) -> Format:
    """Add a format under its name; a name is taken once."""
    if format.name in FORMATS:
        raise ValueError(f"a format called {format.name!r} exists already")
    FORMATS[format.name] = format
    return format


def find_format(path: Path, *, writing: bool = False, name: str | None = None) -> Format:
    """Return the format of a path: the one called ``name``, or by extension and then, among several, by content.

    A file that is yet to be written has no content: there the format without ``recognises`` is taken.
    """
    extension = file_ending(path)
    usable = [f for f in FORMATS.values() if f.write is not None or not writing]
    if name is not None:
        return _named(path, name, usable)
    found = [f for f in usable if extension in f.extensions]
    if len(found) > 1:
        recognised = [] if writing else [f for f in found if f.recognises is not None and f.recognises(path)]
        found = recognised or [f for f in found if f.recognises is None] or found
    if len(found) == 1:
        return found[0]
    verb = "writes" if writing else "reads"
    known = sorted({e for f in usable for e in f.extensions})
    if found:
        names = ", ".join(f.name for f in found)
        remedy = (
            Sentence(
                "pass {format}, or choose .csv, .jsonl or .npz", format=Argument("format", found[0].name)
            )
            if writing
            else "rename or convert it"
        )
        raise TableError(f"could be any of {names}", where=path, remedy=remedy)
    what = f"'{extension}' files" if extension else "a file without extension"
    raise TableError(
        f"{path}: satl {verb} {', '.join(known)}, not {what}{nearest(extension, known)}: "
        f"{'choose' if writing else 'convert to'} one of those."
    )


def _named(path: Path, name: str, usable: list[Format]) -> Format:
    by_name = {f.name: f for f in usable}
    if name not in by_name:
        raise TableError(
            f"is not a format{nearest(name, by_name)}",
            where=Argument("format", name),
            remedy=f"choose one of {', '.join(by_name)}",
        )
    format = by_name[name]
    if file_ending(path) not in format.extensions:
        raise TableError(
            f"{path}: format '{name}' is for {' or '.join(format.extensions)} files: give it such a name."
        )
    return format

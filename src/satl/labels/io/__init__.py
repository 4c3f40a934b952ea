"""Read and write label tables; every file of this folder is imported, so a new format is one file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from satl.checks.formulas import warn_of_formulas
from satl.errors import Argument, EncodingError, Sentence, TableError
from satl.files import atomic_paths, file_ending, nearest_file, split_ending
from satl.labels.encodings import find_encoding
from satl.labels.io.registry import FORMATS, Format, TableFile, find_format, register_format
from satl.labels.io.text_files import unreadable
from satl.labels.table import LabelTable, aligned_cells

__all__ = [
    "FORMATS",
    "Format",
    "TableFile",
    "check_alike",
    "check_new_files",
    "find_format",
    "open_table",
    "read_other_table",
    "read_table",
    "register_format",
    "table_files",
    "truth_path",
    "write_alike",
    "write_table",
]

PathLike = str | os.PathLike[str]


def read_table(
    path: PathLike,
    encoding: str | None = None,
    *,
    truth: PathLike | None = None,
    ignore_columns: Sequence[str] = (),
) -> LabelTable:
    """Read a label table; the extension chooses the format, and the content where several share it.

    Args:
        path: ``.csv``, ``.tsv`` or ``.jsonl``, each also with ``.gz``; ``.parquet``, ``.feather``, ``.arrow``,
            ``.xlsx``, ``.json`` or ``.npz``.
        encoding: a name in ``ENCODINGS``; without it the values must leave only one reading.
        truth: a second table with the hidden truth, matched by image id and class name. Unless it says
            itself how it is to be read (words, JSONL, a stated encoding), it is read in ``encoding`` as
            well. Images that it lacks have unknown truth; a class that it lacks is an error.
        ignore_columns: columns of a wide file that are not classes, such as an age or a date.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "pets.csv"
    >>> _ = file.write_text("image,cat,dog\\na.jpg,1,\\nb.jpg,0,1\\n")
    >>> read_table(file).cells.tolist()
    [[1, 0], [-1, 1]]
    """
    return open_table(path, encoding, truth=truth, ignore_columns=ignore_columns).table


def read_other_table(
    path: PathLike, encoding: str | None = None, ignore_columns: Sequence[str] = ()
) -> LabelTable:
    """Read a further table of the same images, such as the one from before a review.

    Args:
        path: the table.
        encoding: that of the first table, for a further one that can be read in several ways.
        ignore_columns: columns of the first table that are not classes; the further one may have lost them.
    """
    try:
        try:
            return open_table(path, ignore_columns=ignore_columns).table
        except EncodingError:
            if encoding is None:
                raise
            return open_table(path, encoding, ignore_columns=ignore_columns).table
    except TableError:
        if not ignore_columns:
            raise
        return read_other_table(path, encoding)


def open_table(
    path: PathLike,
    encoding: str | None = None,
    *,
    truth: PathLike | None = None,
    ignore_columns: Sequence[str] = (),
) -> TableFile:
    """Read like :func:`read_table` and also return format, encoding and the values seen."""
    file = Path(path)
    if encoding is not None:
        find_encoding(encoding)
    try:
        format = _format_to_read(file)
        if ignore_columns and not format.ignores_columns:
            raise TableError(
                f"is not a wide table with one column per class ({format.name})",
                where=file,
                remedy=Sentence("leave out {ignore}", ignore=Argument("ignore_columns")),
            )
        names = (ignore_columns,) if isinstance(ignore_columns, str) else tuple(ignore_columns)
        opened = format.read(file, encoding, ignore=names) if names else format.read(file, encoding)
    except OSError as error:
        raise unreadable(file, error) from None
    if truth is None:
        return opened
    hidden = _open_truth(Path(truth), encoding).table
    return replace(
        opened,
        table=opened.table.with_truth(aligned_cells(hidden, opened.table, truth, all_classes=True), "signed"),
    )


def write_table(
    table: LabelTable,
    path: PathLike,
    encoding: str | None = None,
    *,
    truth: PathLike | None = None,
    format: str | None = None,
) -> tuple[Path, ...]:
    """Write a label table; the extension chooses the format. Returns the files written.

    Args:
        encoding: without it, one that :func:`read_table` reads back without an option: ``blank`` for CSV
            (``words`` where nothing is unknown, because 1 and 0 alone are ambiguous); Parquet and ``.npz``
            files state their encoding.
        truth: where the hidden truth goes if the table has one and the format holds a single table;
            without it, beside the file as :func:`truth_path` says.
        format: the name of the format where the extension has several: ``long`` or ``positives`` for CSV (which is
            wide otherwise), ``coco`` or ``lvis`` for JSON.

    Each file appears completely or not at all.

    >>> import tempfile
    >>> import numpy as np
    >>> table = LabelTable(("a.jpg", "b.jpg"), ("cat", "dog"), np.array([[1, 0], [-1, 1]]))
    >>> file = Path(tempfile.mkdtemp()) / "pets.csv"
    >>> _ = write_table(table, file)
    >>> file.read_text().split()
    ['image,cat,dog', 'a.jpg,1,', 'b.jpg,0,1']
    >>> read_table(file) == table
    True
    """
    target = Path(path)
    kind = find_format(target, writing=True, name=format)
    chosen = None if encoding is None else find_encoding(encoding)
    warn_of_formulas(target, table.images, table.classes)
    jobs = [(table, target, kind)]
    if table.truth is not None and (truth is not None or not kind.holds_truth):
        hidden_path = truth_path(target) if truth is None else Path(truth)
        if hidden_path == target:
            raise TableError(f"{target} cannot hold both the table and its truth: name another file.")
        hidden = LabelTable(table.images, table.classes, table.truth, table.split, encoding="signed")
        same = format if file_ending(hidden_path) in kind.extensions else None
        jobs = [
            (table.with_truth(None), target, kind),
            (hidden, hidden_path, find_format(hidden_path, writing=True, name=same)),
        ]
    # All of them or none, and the truth first, because a table whose truth is missing would pass unnoticed.
    destination = target
    try:
        with atomic_paths([place for _, place, _ in jobs]) as places:
            for (content, destination, used), temporary in zip(jobs, places, strict=True):
                # One encoding for both, so that one option reads both; JSON lines need none.
                use = chosen if used.encoded or destination == target else None
                assert used.write is not None
                used.write(content, temporary, use)
    except TableError as error:
        # Writers see a temporary name; the error names the file that the user asked for.
        raise error.at(destination) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise TableError(f"{destination} cannot be written ({reason}): choose another place.") from None
    return tuple(destination for _, destination, _ in jobs)


def table_files(path: PathLike, format: Format, with_truth: bool) -> tuple[Path, ...]:
    """Return the files that :func:`write_table` writes for a table with or without a hidden truth."""
    target = Path(path)
    return (target, truth_path(target)) if with_truth and not format.holds_truth else (target,)


def check_new_files(files: Iterable[Path], *, force: bool, inputs: Iterable[Path | None]) -> None:
    """Refuse files of a table that must not be written.

    Args:
        force: files that exist may be overwritten.
        inputs: files that the command reads, or None; they are never overwritten.
    """
    read = {file.resolve() for file in inputs if file is not None}
    for file in files:
        if file.is_dir():
            raise TableError(f"{file} is a folder: name the file to write.")
        if file.resolve() in read:
            raise TableError(
                f"{file} belongs to the inputs of this command and would be overwritten: choose another name."
            )
        if file.exists() and not force:
            raise TableError(
                "exists already",
                where=file,
                remedy=Sentence(
                    "choose another name, or pass {force} to overwrite it", force=Argument("force", True)
                ),
            )


def check_alike(source: TableFile, path: Path, *, force: bool, inputs: Iterable[Path | None]) -> None:
    """Refuse files that :func:`write_alike` must not write, before any work is done; see :func:`check_new_files`."""
    own = FORMATS[source.format]
    format = own if own.writes(path) else find_format(path, writing=True)
    check_new_files(table_files(path, format, source.table.truth is not None), force=force, inputs=inputs)


def write_alike(source: TableFile, table: LabelTable, path: Path) -> tuple[Path, ...]:
    """Write ``table`` in the format and encoding of ``source``, or as the extension says if it is another."""
    if not FORMATS[source.format].writes(path):
        return write_table(table, path)
    # A foreign .npz may be read in an encoding in which satl writes none; its own states how it is to be read.
    unwritable = source.format == "npz" and source.encoding not in ("signed", "csl")
    return write_table(table, path, None if unwritable else source.encoding, format=source.format)


def truth_path(path: PathLike) -> Path:
    """Return where the hidden truth of a single-table file goes.

    >>> truth_path("out/masked.csv").name
    'masked.truth.csv'
    """
    target = Path(path)
    stem, ending = split_ending(target)
    return target.with_name(f"{stem}.truth{ending}")


def _open_truth(path: Path, encoding: str | None) -> TableFile:
    if encoding is None:
        return open_table(path)
    try:
        opened = open_table(path)
    except EncodingError:
        return open_table(path, encoding)
    # Numbers that could be detected are still read as the user says; words and stated encodings are certain.
    return open_table(path, encoding) if opened.detected and opened.encoding != "words" else opened


def _format_to_read(path: Path) -> Format:
    if not path.exists():
        raise TableError(f"{path} does not exist{nearest_file(path)}: check the path of the table.")
    if path.is_dir():
        raise TableError(f"{path} is a folder: name the table file in it.")
    return find_format(path)


for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

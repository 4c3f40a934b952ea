"""Shared by the data sets: look for files, join splits, check lists."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from satl.errors import TableError
from satl.files import nearest_file
from satl.labels.datasets.registry import Option
from satl.labels.io.text_files import read_lines
from satl.labels.table import Cells, LabelTable


def splits_option(choices: tuple[str, ...], default: tuple[str, ...], meaning: str) -> Option:
    """Return the option that chooses which published parts to read."""
    return Option("splits", "choices", list(default), meaning, choices)


def require_file(path: Path, remedy: str) -> Path:
    """Return ``path`` if it is a file, or say which is missing, its nearest neighbour, and the remedy."""
    if path.is_file():
        return path
    if path.is_dir():
        raise TableError(f"{path} is a folder, but must be a file: {remedy}.")
    raise TableError(f"{path} is missing{nearest_file(path)}: {remedy}.")


def require_one(root: Path, names: Sequence[str], remedy: str) -> Path:
    """Return the first of several names that is a file, or say that all are missing."""
    for name in names:
        if (root / name).is_file():
            return root / name
    return require_file(root / names[0], remedy)


def relative(path: Path, root: Path) -> str:
    """Return a path below ``root`` relative to it, with ``/``; ``""`` for the root itself, else the whole path."""
    try:
        text = path.relative_to(root).as_posix()
    except ValueError:
        return path.as_posix()
    return "" if text == "." else text


def within(folder: str, name: str) -> str:
    """Return the image id of a file in a folder.

    >>> within("train2014", "a.jpg"), within("", "a.jpg")
    ('train2014/a.jpg', 'a.jpg')
    """
    return f"{folder}/{name}" if folder else name


def read_list(path: Path, remedy: str) -> list[str]:
    """Return the entries of a list of images or classes, one per line and none twice."""
    lines = read_lines(require_file(path, remedy))
    first: dict[str, int] = {}
    for number, entry in lines:
        if entry in first:
            raise TableError(
                f"{path}: lines {first[entry]} and {number} both name {entry!r}: remove one of them."
            )
        first[entry] = number
    return list(first)


def file_names(folder: Path) -> frozenset[str]:
    """Return the names in a folder, read once; nothing where there is no such folder."""
    if not folder.is_dir():
        return frozenset()
    with os.scandir(folder) as entries:
        return frozenset(entry.name for entry in entries)


def joined(
    origin: Path, classes: Sequence[str], parts: Sequence[tuple[str, Sequence[str], Cells]]
) -> LabelTable:
    """Return one table of (split, image ids, cells) parts, in their order.

    An image that two parts share is an error: it would be trained and tested on.
    """
    images = tuple(image for _, names, _ in parts for image in names)
    if len(set(images)) != len(images):
        of: dict[str, str] = {}
        for split, names, _ in parts:
            for image in names:
                if image in of:
                    where = f"twice in '{split}'" if of[image] == split else f"in '{of[image]}' and '{split}'"
                    raise TableError(f"{origin}: image {image!r} is {where}: remove it from one list.")
                of[image] = split
    splits = np.repeat([name for name, _, _ in parts], [len(names) for _, names, _ in parts])
    try:
        return LabelTable(
            images, tuple(classes), np.concatenate([cells for _, _, cells in parts]), splits, None, "signed"
        )
    except TableError as error:
        raise error.at(origin) from None

"""Data sets in their published layouts: one small registry, and options that are checked before any file is read.

A new data set is one new file in this folder that ends in a call of :func:`register_dataset`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from satl.errors import ConfigError, TableError, nearest
from satl.labels.io.text_files import unreadable
from satl.labels.table import LabelTable

Kind = Literal["flag", "choice", "choices", "integer", "path"]


@dataclass(frozen=True)
class Option:
    """A setting of a data set.

    Attributes:
        kind: ``flag`` is true or false; ``choice`` one of ``choices``, ``choices`` several of them; ``integer`` a
            number from 0 on; ``path`` a file or folder, relative to the root of the data set.
        default: what holds without it; None where there is nothing.
        meaning: a sentence for the documentation.
    """

    name: str
    kind: Kind
    default: Any
    meaning: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dataset:
    """A data set: how to read its labels from its folder.

    Attributes:
        summary: a sentence. layout: the files it looks for, relative to the root.
        read: (root, one keyword per option) -> table, whose image ids are paths relative to the root.
    """

    name: str
    summary: str
    layout: tuple[str, ...]
    read: Callable[..., LabelTable]
    options: tuple[Option, ...] = ()


DATASETS: dict[str, Dataset] = {}


def register_dataset(dataset: Dataset) -> Dataset:
    """Add a data set under its name; a name is taken once."""
    if dataset.name in DATASETS:
        raise ValueError(f"a data set called {dataset.name!r} exists already")
    DATASETS[dataset.name] = dataset
    return dataset


def find_dataset(name: str) -> Dataset:
    """Return the data set called ``name``, or an error that lists the names."""
    try:
        return DATASETS[name]
    except KeyError:
        raise ConfigError(
            f"there is no data set {name!r}{nearest(name, DATASETS)}: choose one of {', '.join(DATASETS)}."
        ) from None


def check_options(dataset: Dataset, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of every option of ``dataset`` as plain data; an error names the choices.

    Text as it comes from a command line is understood: ``"true"``, ``"3"``, ``"train,test"``.
    """
    known = {option.name: option for option in dataset.options}
    for name in given:
        if name not in known:
            choices = ", ".join(known) or "none"
            raise ConfigError(
                f"data set '{dataset.name}' has no option {name!r}{nearest(name, known)}: its options are {choices}."
            )
    return {
        name: option.default if given.get(name) is None else _plain(dataset.name, option, given[name])
        for name, option in known.items()
    }


def read_dataset(name: str, root: str | os.PathLike[str], **options: Any) -> LabelTable:
    """Read the labels of a data set from the folder ``root`` in which it was unpacked.

    Args:
        name: a name in ``DATASETS``; options: those of the data set, as its page in the documentation lists them.
        Returns a table with splits, whose image ids are paths relative to ``root``.

    >>> read_dataset("coco2014", "/no/such/folder")
    Traceback (most recent call last):
    satl.errors.TableError: /no/such/folder does not exist: pass the folder that holds ...
    """
    dataset = find_dataset(name)
    values = check_options(dataset, options)
    folder = Path(root).expanduser()
    if not folder.is_dir():
        holds = " and ".join(dataset.layout[:2])
        what = "is not a folder" if folder.exists() else "does not exist"
        raise TableError(f"{folder} {what}: pass the folder that holds {holds}.")
    paths = {option.name for option in dataset.options if option.kind == "path"}
    for key in paths:
        if values[key] is not None:
            values[key] = folder / Path(values[key]).expanduser()
    try:
        return dataset.read(folder, **values)
    except OSError as error:
        raise unreadable(error.filename or folder, error) from None


def _plain(dataset: str, option: Option, value: Any) -> Any:
    """Return one value as the reader wants it, or refuse it."""
    if option.kind == "flag":
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if isinstance(value, bool):
            return value
        expected = "true or false"
    elif option.kind == "choice":
        if value in option.choices:
            return value
        expected = f"one of {', '.join(option.choices)}{nearest(str(value), option.choices)}"
    elif option.kind == "choices":
        names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
        if isinstance(names, (list, tuple)) and names and all(name in option.choices for name in names):
            return [name for name in option.choices if name in names]
        expected = f"some of {', '.join(option.choices)}"
    elif option.kind == "integer":
        if isinstance(value, str) and value.isdecimal():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        expected = "a whole number from 0 on"
    else:
        if isinstance(value, (str, os.PathLike)) and os.fspath(value):
            return os.fspath(value)
        expected = "a path"
    raise ConfigError(f"option {option.name} of data set '{dataset}' must be {expected}, not {value!r}.")

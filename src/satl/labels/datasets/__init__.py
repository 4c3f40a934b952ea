"""Data sets as they are published: from the folder of the unpacked archive to a label table.

Every file of this folder is imported, so a new data set is one file.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from satl.labels.datasets.registry import (
    DATASETS,
    Dataset,
    Option,
    check_options,
    find_dataset,
    read_dataset,
    register_dataset,
)

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = [
    "DATASETS",
    "Dataset",
    "Option",
    "check_options",
    "find_dataset",
    "read_dataset",
    "register_dataset",
]

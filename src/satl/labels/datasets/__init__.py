"""Data sets as they are published: from the folder of the unpacked archive to a label table."""

from __future__ import annotations

from satl.labels.datasets import chexpert, coco, openimages, vg, voc
from satl.labels.datasets.registry import (
    DATASETS,
    Dataset,
    Option,
    check_options,
    find_dataset,
    read_dataset,
    register_dataset,
)

__all__ = [
    "DATASETS",
    "Dataset",
    "Option",
    "check_options",
    "chexpert",
    "coco",
    "find_dataset",
    "openimages",
    "read_dataset",
    "register_dataset",
    "vg",
    "voc",
]

"""Label tables: what is known, encodings, files, data sets, masks, splits, hold-out, inspection."""

from __future__ import annotations

from satl.labels.datasets import DATASETS, read_dataset
from satl.labels.encodings import ENCODINGS, Encoding
from satl.labels.inspection import Inspection, inspect_table
from satl.labels.io import TableFile, open_table, read_other_table, read_table, truth_path, write_table
from satl.labels.masking import mask_table
from satl.labels.splits import split_table
from satl.labels.table import ABSENT, PRESENT, UNKNOWN, LabelTable, aligned_cells

__all__ = [
    "ABSENT",
    "DATASETS",
    "ENCODINGS",
    "PRESENT",
    "UNKNOWN",
    "Encoding",
    "Inspection",
    "LabelTable",
    "TableFile",
    "aligned_cells",
    "inspect_table",
    "mask_table",
    "open_table",
    "read_dataset",
    "read_other_table",
    "read_table",
    "split_table",
    "truth_path",
    "write_table",
]

"""To other tools and back: known cells as annotations, suggestions as predictions and never as annotations."""

from __future__ import annotations

from satl.export import coco, cvat, fiftyone, huggingface, label_studio
from satl.export import plain_tables as tables
from satl.export.content import Source, read_source
from satl.export.importing import ImportReport, import_file, read_export
from satl.export.registry import TOOLS, Imported, ToolFormat, find_tool, register_tool
from satl.export.suggestions import Suggestions
from satl.export.writing import export
from satl.labels.bands import SUGGESTED_BANDS

__all__ = [
    "SUGGESTED_BANDS",
    "TOOLS",
    "ImportReport",
    "Imported",
    "Source",
    "Suggestions",
    "ToolFormat",
    "coco",
    "cvat",
    "export",
    "fiftyone",
    "find_tool",
    "huggingface",
    "import_file",
    "label_studio",
    "read_export",
    "read_source",
    "register_tool",
    "tables",
]

"""Export to other tools and import from them: known cells as annotations, suggestions only as predictions.

Every file of this folder is imported, so a new format is one file.

Written by hand, not with datumaro or the packages of the tools: a label of datumaro can only say present, so absent
and unknown cells would be lost, and the others bring a server or a database. The formats are small, and
``benchmarks/check_exports.py`` reads what is written with the tools' own code.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from satl.export.content import Source, read_source
from satl.export.importing import ImportReport, import_file, import_project, read_export
from satl.export.registry import (
    TOOLS,
    Imported,
    Sent,
    ServerProject,
    ToolFormat,
    ToolServer,
    find_tool,
    register_tool,
)
from satl.export.suggestions import Suggestions
from satl.export.writing import export, send

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = [
    "TOOLS",
    "ImportReport",
    "Imported",
    "Sent",
    "ServerProject",
    "Source",
    "Suggestions",
    "ToolFormat",
    "ToolServer",
    "export",
    "find_tool",
    "import_file",
    "import_project",
    "read_export",
    "read_source",
    "register_tool",
    "send",
]

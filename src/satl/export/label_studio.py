"""Label Studio: files of tasks with their labelling config, and projects on a server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from satl.export.content import Source
from satl.export.escaping import open_text, require_xml, write_json_lines
from satl.export.label_studio_export import read_label_studio
from satl.export.label_studio_project import fetch_from_label_studio, send_to_label_studio
from satl.export.label_studio_tasks import labelling_config, tasks_of
from satl.export.registry import MAIN, ToolFormat, ToolServer, register_tool

CONFIG = "config"


def write_label_studio(source: Source, files: Mapping[str, Path]) -> None:
    """Write the tasks and the labelling config."""
    require_xml(source.table.classes, "class")
    files[CONFIG].write_text(labelling_config(source.table.classes), encoding="utf-8", newline="\n")
    with open_text(files[MAIN]) as stream:
        write_json_lines(stream, tasks_of(source))
        stream.write("\n")


register_tool(
    ToolFormat(
        "label-studio",
        "Label Studio tasks (.json) with annotations and predictions, and the labelling config (.xml)",
        (".json",),
        lambda path: {MAIN: path, CONFIG: path.with_suffix(".xml")},
        lambda source: (MAIN, CONFIG),
        write_label_studio,
        read_label_studio,
        takes_address=True,
        server=ToolServer(send_to_label_studio, fetch_from_label_studio),
    )
)

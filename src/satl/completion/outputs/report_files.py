"""Write the report of a completion: ``report.json``, ``report.html`` and ``thresholds.csv``."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from satl.completion.outputs.completed_folder import CompletedFolder
from satl.completion.outputs.report_page import render_report
from satl.inference.threshold_files import CERTIFIED_COLUMNS


def write_report(folder: CompletedFolder, report: dict[str, Any], out: Path) -> None:
    """Write the three files.

    Args:
        folder: where they are written.
        report: from :func:`satl.completion.workflow.report_content.build_report`.
        out: the folder as the user names it, for the commands on the page.
    """
    with folder.thresholds.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(CERTIFIED_COLUMNS)
        writer.writerows(_threshold_rows(report))
    # One class a line: Python indents slowly, and a class is long.
    rest = {key: value for key, value in report.items() if key != "classes"}
    head = json.dumps(rest, ensure_ascii=False, allow_nan=False, indent=1).removesuffix("\n}")
    lines = (json.dumps(entry, ensure_ascii=False, allow_nan=False) for entry in report["classes"])
    text = f'{head},\n "classes": [\n' + ",\n".join(lines) + "\n]}\n"
    folder.report.write_text(text, encoding="utf-8")
    folder.page.write_text(render_report(report, out), encoding="utf-8")


def _threshold_rows(report: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    for entry in report["classes"]:
        for direction in ("present", "absent"):
            side = entry[direction]
            yield (
                entry["name"],
                direction,
                "" if side["threshold"] is None else repr(side["threshold"]),
                report["target_precision"],
                report["confidence"],
                "" if side["precision_lower_bound"] is None else side["precision_lower_bound"],
                side["held_out"],
                side["errors"],
                side["accepted"],
                side["reason"],
                "" if side["more_labels"] is None else side["more_labels"],
            )

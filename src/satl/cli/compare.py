"""``satl compare``."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from satl.checks.formulas import warn_of_formulas
from satl.cli.json_output import JsonOption, print_json
from satl.cli.wording import percent
from satl.errors import ConfigError

_WORDS = {
    "last": "last epoch",
    "best": "best epoch",
    "pseudo_labels": "pseudo-labels",
    "train_seconds": "training, seconds",
}


def compare(
    run: Annotated[list[Path], typer.Argument(help="Folders of two or more runs.")],
    as_json: JsonOption = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV instead of a table, one row a run.")
    ] = False,
) -> None:
    """Show runs side by side: settings that differ, metrics of the last and the best epoch, pseudo-labels, time.

    Validation metrics are those of the training, others those of the last `satl evaluate`; nothing is computed.
    """
    if as_json and as_csv:
        raise ConfigError("satl compare: --json and --csv exclude each other.")
    from satl.inference.side_by_side import METRICS, QUALITY, runs_side_by_side
    from satl.runs.config import flat_settings

    found = runs_side_by_side(run)
    if as_json:
        print_json({"runs": found})
        return
    rows = [flat_settings(entry) for entry in found]
    keys = _in_order(rows)
    if as_csv:
        # Who prints CSV puts it into a file, and spreadsheets open that.
        warn_of_formulas(Path("standard output.csv"), (str(row["run"]) for row in rows))
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(keys)
        writer.writerows([_text(row.get(key)) for key in keys] for row in rows)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table()
    table.add_column("", overflow="fold")
    for row in rows:
        table.add_column(row["run"], justify="right", overflow="fold")
    section = "settings"
    for key in keys[1:]:
        if key.split(".")[0] != section:
            table.add_section()
            section = key.split(".")[0]
        share = key.split(".")[-1] in (*METRICS, *QUALITY) and section != "settings"
        table.add_row(_label(key), *(_shown(row, key, share) for row in rows))
    console = Console(highlight=False, markup=False)
    console.print(table)
    if not any(entry["settings"] for entry in found):
        console.print("All settings that can change a result are the same.")


def _in_order(rows: list[dict[str, Any]]) -> list[str]:
    """Return the keys of all rows, section by section.

    >>> _in_order([{"run": "a", "last.mAP": 1}, {"run": "b", "settings.training.lr": 2, "last.mAP": 1}])
    ['run', 'settings.training.lr', 'last.mAP']
    """
    sections = ("run", "settings", "epochs", "last", "best", "pseudo_labels", "evaluations", "train_seconds")
    keys = dict.fromkeys(key for row in rows for key in row)
    return sorted(keys, key=lambda key: sections.index(key.split(".")[0]))


def _label(key: str) -> str:
    """Return what the row of a quantity is called.

    >>> _label("settings.training.lr"), _label("last.epoch"), _label("best.mAP"), _label("evaluations.test.OF1")
    ('training.lr', 'last epoch', 'best epoch: mAP', 'test: OF1')
    """
    section, _, name = key.partition(".")
    if section == "settings":
        return name
    if section == "epochs":
        return f"epochs {name}"
    if section == "evaluations":
        return name.replace(".", ": ", 1)
    words = _WORDS[section]
    return words if name in ("", "epoch") else f"{words}: {name.replace('_', ' ')}"


def _shown(row: dict[str, Any], key: str, share: bool) -> str:
    value = row.get(key)
    if value is None:
        return "null" if key in row and key.startswith("settings.") else "-"
    return percent(value, 2) if share else _text(value)


def _text(value: Any) -> str:
    """Return a value as text: names as they are, anything else as in JSON, and nothing for None."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

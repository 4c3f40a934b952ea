"""The commands of docs/export.md work in the order in which the page gives them, and nothing is left unsaid."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from review.synthetic import small_folder
from satl.cli import add_commands
from satl.export import TOOLS
from satl.labels import read_table, write_table

PAGE = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")


def decide(exported: Path, back: Path) -> None:
    """Do what a person does in Label Studio: take over every prediction."""
    tasks = json.loads(exported.read_text(encoding="utf-8"))
    for task in tasks:
        task["annotations"] = [{"result": task["predictions"][0]["result"], "lead_time": 1.5}]
    back.write_text(json.dumps(tasks), encoding="utf-8")


def test_the_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # Labels that the model contradicts would ask for --replace-known, which is another story.
    done = small_folder(Path("out"))
    kept = [row for row in done.rows if row[6] != "label-error"]
    lines = Path("out/changes.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    errors = [line for line in lines if ",label-error," in line]
    Path("out/changes.csv").write_text("".join(x for x in lines if x not in errors), encoding="utf-8")
    assert len(errors) == len(done.rows) - len(kept)
    write_table(done.table, "labels.csv")
    write_table(done.table, "decided.csv", format="long")
    app = typer.Typer()
    add_commands(app, "export", "import")
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
    commands = [line for line in blocks.splitlines() if line.startswith(("satl export ", "satl import "))]
    commands = [line for line in commands if "SOURCE" not in line and not line.startswith("satl import FILE")]
    commands = [line for line in commands if "[" not in line and "--server" not in line]
    assert len(commands) == 14
    last = Path()
    for command in commands:
        _, verb, *arguments = shlex.split(command)
        file = Path(arguments[0])
        if verb == "import" and not file.exists():
            if "label-studio" in arguments:
                decide(last, file)
            else:
                shutil.copy(last, file)
        result = CliRunner().invoke(app, [verb, *arguments, *(["--force"] if "new.csv" in command else [])])
        assert result.exit_code == 0, (command, result.output, result.exception)
        if verb == "export":
            last = Path(arguments[arguments.index("-o") + 1])
    assert read_table("full.csv").known.sum() > done.table.known.sum()


def test_every_format_and_option_is_explained() -> None:
    for name in TOOLS:
        assert f"| `{name}` |" in PAGE
    source = (Path(__file__).parents[2] / "src" / "satl" / "cli" / "export.py").read_text(encoding="utf-8")
    for option in set(re.findall(r'"(--[a-z-]+)"', source)) - {"--format", "--out"}:
        assert f"`{option}" in PAGE, option

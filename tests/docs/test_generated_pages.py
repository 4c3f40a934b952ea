"""Pages that are written from the code are up to date, and the reference of Python leaves no public name out."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from programs import ROOT, load_program
from satl.cli import add_commands

DOCS = ROOT / "docs"


def test_the_page_of_the_commands_is_up_to_date() -> None:
    program = "tools/write_cli_page.py"
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert page == load_program(program).page(), f"run `python {program}`"


def test_every_option_of_a_command_is_in_its_help() -> None:
    """The page is written from the functions; what Typer makes of them has the same options."""
    program = load_program("tools/write_cli_page.py")
    app = typer.Typer(rich_markup_mode=None)
    add_commands(app, "complete", "train")
    for name in ("complete", "train"):
        shown = CliRunner().invoke(app, [name, "--help"], terminal_width=200).output
        for parameter in program.parameters(program.commands()[name]):
            assert all(word in shown for word in parameter.names), parameter.names


def test_the_names_of_the_package_are_in_the_reference() -> None:
    index = (DOCS / "api" / "index.md").read_text(encoding="utf-8")
    stub = (ROOT / "src" / "satl" / "__init__.pyi").read_text(encoding="utf-8")
    names = re.findall(r"^from \.\S+ import (\w+) as", stub, re.MULTILINE)
    assert len(names) > 8
    assert [name for name in names if f"[`{name}`]" not in index] == []


@pytest.mark.parametrize("page", sorted((DOCS / "api").glob("*.md")), ids=lambda page: page.stem)
def test_what_the_reference_describes_exists(page: Path) -> None:
    for path in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        module, _, name = path.rpartition(".")
        assert hasattr(importlib.import_module(module), name), path

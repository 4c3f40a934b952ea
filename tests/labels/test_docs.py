"""The examples of docs/labels.md give what the page says they give."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from satl.cli import add_commands
from satl.cli.wording import shell_words
from satl.errors import SatlError
from satl.labels import ENCODINGS
from satl.labels.io import FORMATS

PAGE = (Path(__file__).parents[2] / "docs" / "labels.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, content in re.findall(r"^`([\w.]+)`:\n\n```\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE):
        (tmp_path / name).write_text(content, encoding="utf-8")
    return tmp_path


def run(command: str) -> str:
    program, *arguments = command.split()
    if program == "cat":
        return Path(arguments[0]).read_text(encoding="utf-8")
    assert program == "satl"
    app = typer.Typer()
    add_commands(app, "inspect", "mask", "convert")
    result = CliRunner().invoke(app, arguments)
    return result.stdout + (
        result.exception.worded(shell_words) if isinstance(result.exception, SatlError) else ""
    )


def test_console_blocks() -> None:
    blocks = re.findall(r"```console\n\$ (.*?)\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 7
    for command, expected in blocks:
        assert run(command).split() == expected.split(), command


def test_python_blocks() -> None:
    examples = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    test = doctest.DocTestParser().get_doctest(examples, {}, "labels.md", "docs/labels.md", 0)
    report: list[str] = []
    result = doctest.DocTestRunner().run(test, out=report.append)
    assert result.attempted >= 8
    assert result.failed == 0, "".join(report)


def test_every_encoding_and_format_has_a_row() -> None:
    assert all(f"| `{name}` |" in PAGE for name in ENCODINGS)
    for name, format in FORMATS.items():
        extensions = ", ".join(f"`{extension}`" for extension in format.extensions)
        assert f"| `{name}` | {extensions} |" in PAGE

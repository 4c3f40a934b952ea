"""The notebooks run as they stand, and what they print on the site is what they print."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from programs import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
NUMBER = re.compile(r"[\d,.%]*\d[\d,.%]*")


def printed(cell: nbformat.NotebookNode) -> list[str]:
    """Return the words that a cell printed, without numbers: those of another processor differ in their last digits."""
    text = "".join(output.get("text", "") for output in cell.outputs)
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    return [word for word in NUMBER.sub(" ", text).split() if len(word) > 1]


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) == 2


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Commands of a notebook are those of this environment.
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    before = [printed(cell) for cell in code]
    assert sum(map(bool, before)) >= len(code) - 1
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    for cell, words in zip(code, before, strict=True):
        assert set(printed(cell)[:8]) >= set(words[:3]), cell.source
    assert path.stat().st_size < 50_000

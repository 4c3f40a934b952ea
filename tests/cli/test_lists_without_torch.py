"""What only prints a list does not load torch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import satl
from satl.methods import METHODS
from satl.recipes.method_list import FILE, declared_methods, method_list

TOOL = Path(__file__).parents[2] / "tools" / "write_method_list.py"


def run(*arguments: str, package: Path | None = None) -> list[str]:
    """Run a command and return its lines, the last of which says whether torch was loaded."""
    before = f"sys.path.insert(0, {str(package)!r}); " if package else ""
    code = (
        f"import atexit, sys; {before}sys.argv = ['satl', *{list(arguments)!r}]\n"
        "atexit.register(lambda: print('torch' in sys.modules))\n"
        "from satl.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "arguments", [("--help",), ("methods",), ("recipes",), ("recipes", "coco/sst+satl"), ("train", "--help")]
)
def test_lists_do_not_load_torch(arguments: tuple[str, ...]) -> None:
    assert run(*arguments)[-1] == "False"


def test_the_list_is_that_of_the_declarations() -> None:
    lines = run("methods")
    assert all(any(line.startswith(f"{name} ") for line in lines) for name in METHODS)
    kept = json.loads(FILE.read_text(encoding="utf-8"))
    assert kept == method_list(), f"run python tools/{TOOL.name}"
    assert list(declared_methods()) == list(METHODS)


def test_a_method_in_a_new_file_is_listed_although_the_list_is_older(tmp_path: Path) -> None:
    package = tmp_path / "satl"
    shutil.copytree(
        Path(satl.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "static")
    )
    (package / "methods" / "mine.py").write_text(
        "from satl.methods.method import Method\nfrom satl.methods.registry import register_method\n\n"
        'register_method(Method("mine", "A method of one file.", "Ours.", ("classification",), ("classification",)))\n',
        encoding="utf-8",
    )
    lines = run("methods", package=tmp_path)
    assert any(line.startswith("mine ") and "A method of one file." in line for line in lines)

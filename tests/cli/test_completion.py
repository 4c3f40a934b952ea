"""Completion in shells: their scripts, and what they are answered when they ask as a shell does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from satl.cli import _COMMANDS, completion
from satl.export import TOOLS
from satl.labels import DATASETS
from satl.labels.encodings import ENCODINGS
from satl.methods import METHODS, RULES
from satl.recipes import recipe_names
from satl.recipes.method_list import FILE

SHELLS = ("bash", "zsh", "fish")
LOADED = (
    "import atexit, sys; sys.argv[0] = 'satl'\n"
    "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
    "from satl.cli import main; main()"
)
HEAVY = ("torch", "numpy", "timm", "pyarrow", "PIL", "matplotlib")


def environment(shell: str, line: str) -> dict[str, str]:
    """What the script of a shell sets before it asks for words after this line."""
    own = {"_SATL_COMPLETE": f"complete_{shell}"}
    if shell == "bash":
        return own | {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    return own | {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}


def ask(shell: str, line: str) -> list[str]:
    """The words that a shell is given, without what it would show beside them."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED],
        env={**os.environ, **environment(shell, line)},
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert not set(done.stderr.split()) & set(HEAVY), done.stderr[:200]
    if shell in ("bash", "fish"):
        return [answer.split("\t")[0] for answer in done.stdout.splitlines() if answer]
    assert done.stdout.startswith("_arguments '*: :((") or done.stdout == "_files\n"
    return [answer.split('"')[1] for answer in done.stdout.splitlines() if '"' in answer]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("satl pl", ["plan"]),
        ("satl evaluate --check", ["--checkpoint"]),
        ("satl evaluate --checkpoint ", ["best", "last"]),
        ("satl methods sst+s", [name for name in METHODS if name.startswith("sst+s")]),
        ("satl methods --rules ", list(RULES)),
        ("satl thresholds --rule ma", ["mat"]),
        ("satl recipes voc", [name for name in recipe_names() if name.startswith("voc")]),
        ("satl train --recipe coco/hst", [name for name in recipe_names() if name.startswith("coco/hst")]),
        ("satl inspect --dataset voc", ["voc2007", "voc2012"]),
        ("satl import x.json --format lab", ["label-studio"]),
        ("satl audit out ", ["draw", "read"]),
        ("satl train conf", []),  # the shell names files
    ],
)
def test_words_are_those_that_can_follow(shell: str, line: str, words: list[str]) -> None:
    assert words or "conf" in line
    assert ask(shell, line) == words


def test_every_command_is_offered() -> None:
    assert ask("bash", "satl ") == list(_COMMANDS)


def test_the_names_are_those_that_are_registered() -> None:
    assert tuple(ENCODINGS) == completion.ENCODINGS
    assert tuple(DATASETS) == completion.DATASETS
    assert tuple(TOOLS) == completion.TOOLS
    assert f'"{next(iter(RULES))}"' in FILE.read_text(encoding="utf-8")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder with the program ``satl``, as an installation makes one."""
    path = tmp_path / "bin" / "satl"
    path.parent.mkdir()
    path.write_text(f"#!{sys.executable}\nfrom satl.cli import main\nmain()\n")
    path.chmod(0o755)
    return path.parent


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_a_real_bash_completes_after_installation(tmp_path: Path, program: Path) -> None:
    home = {**os.environ, "HOME": str(tmp_path), "PATH": f"{program}{os.pathsep}{os.environ['PATH']}"}
    asked = (
        "satl --install-completion\n"
        "source ~/.bashrc\n"
        "COMP_WORDS=(satl thresholds --rule se); COMP_CWORD=3\n"
        '"$(complete -p satl | sed "s/.*-F \\([^ ]*\\).*/\\1/")" satl\n'
        'echo "found ${COMPREPLY[*]}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", asked], env=home, capture_output=True, text=True, check=True, timeout=600
    )
    assert done.stdout.splitlines()[-1] == "found semantic"


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_shown(program: Path, shell: str) -> None:
    """Where the shell cannot be told from the processes above, as here, it is named."""
    done = subprocess.run(
        [program / "satl", "--show-completion", shell],
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert f"_SATL_COMPLETE=complete_{shell}" in done.stdout

"""The Dockerfile: its instructions are known ones, and every file that it copies is there and is sent to the builder.

No image is built here: that needs an engine and a network.
"""

from __future__ import annotations

import json
import re
import tomllib
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import NamedTuple

from programs import ROOT

KNOWN = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "ENTRYPOINT", "CMD"}


class Instruction(NamedTuple):
    word: str
    rest: str


def parse(text: str) -> list[Instruction]:
    """Return the instructions of a Dockerfile: comments are lines of their own, a backslash joins lines."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\s*\n", " ", "\n".join(lines))
    found = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        word, _, rest = line.partition(" ")
        assert word in KNOWN, line
        assert rest.strip(), line
        found.append(Instruction(word, rest.strip()))
    return found


INSTRUCTIONS = parse((ROOT / "Dockerfile").read_text(encoding="utf-8"))


def of(word: str) -> list[str]:
    return [one.rest for one in INSTRUCTIONS if one.word == word]


def copied() -> list[str]:
    """Return the files and folders that are copied from the project."""
    sources = []
    for rest in of("COPY"):
        *some, _ = rest.split()
        assert some, rest
        sources += some
    return sources


def is_sent(path: str) -> bool:
    """Whether a path is sent to the builder: of the lines of .dockerignore the last one that fits decides."""
    parts = PurePosixPath(path).parts
    sent = True
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = line.removeprefix("!")
        if pattern.startswith("**/"):
            fits = any(fnmatch(part, pattern.removeprefix("**/")) for part in parts)
        else:
            fits = fnmatch(parts[0], pattern)
        if fits:
            sent = line.startswith("!")
    return sent


def test_it_begins_with_one_plain_image_that_satl_runs_on() -> None:
    assert INSTRUCTIONS[0].word == "FROM"
    (image,) = of("FROM")
    assert re.fullmatch(r"python:\d+\.\d+-slim", image)  # no address of a registry
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = image.removeprefix("python:").removesuffix("-slim")
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]


def test_every_file_that_is_copied_exists_and_is_sent() -> None:
    assert copied()
    for name in copied():
        assert (ROOT / name).exists(), name
        assert is_sent(name), name
    assert is_sent("src/satl/cli/__init__.py")
    for name in (".git", ".venv/bin/python", "runs/first/config.yaml", "src/satl/__pycache__/files.pyc"):
        assert not is_sent(name), name


def test_what_the_build_of_the_package_reads_is_copied() -> None:
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = content["project"]
    needed = {"pyproject.toml", "setup.py", "README.md", *project["license-files"]}
    needed |= set(content["tool"]["setuptools"]["packages"]["find"]["where"])
    assert needed <= set(copied())


def test_it_installs_extras_that_exist_with_the_tested_versions() -> None:
    (install,) = [line for line in of("RUN") if line.startswith("pip install ")]
    extras = re.search(r"'\.\[([\w,]+)\]'", install)
    assert extras is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"web", "onnx"} == set(extras[1].split(",")) <= set(project["optional-dependencies"])
    assert " -c constraints.txt " in install
    assert "://" not in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_it_runs_satl_and_not_as_root() -> None:
    words = [one.word for one in INSTRUCTIONS]
    (user,) = of("USER")
    assert user not in ("root", "0")
    assert any(line.startswith("useradd ") and f" {user} " in f"{line} " for line in of("RUN"))
    assert words.index("USER") > max(n for n, word in enumerate(words) if word in ("RUN", "COPY"))
    (entry,) = of("ENTRYPOINT")
    assert json.loads(entry) == ["satl"]
    (default,) = of("CMD")
    assert json.loads(default) == ["--help"]

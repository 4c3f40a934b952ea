"""What is built of satl: everything is in it, and its description has no link that leads nowhere."""

from __future__ import annotations

import email
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from programs import ROOT

PARTS = ("docs", "examples", "tests", "tools", "benchmarks", "experiments", "src")
BUILD = (
    "import sys; from setuptools import build_meta\n"
    "out = sys.argv[1]; build_meta.build_sdist(out); build_meta.build_wheel(out)"  # which change sys.argv
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a source distribution and a wheel, built from a copy."""
    folder = tmp_path_factory.mktemp("package")
    copy = folder / "copy"
    for part in PARTS:
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, copy)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder / "dist")],
        cwd=copy,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / "dist"


def test_the_wheel_has_every_file_of_the_package(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    package = ROOT / "src" / "satl"
    files = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    wanted = {f"satl/{path.relative_to(package).as_posix()}" for path in files}
    found = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("satl/")}
    assert found == wanted
    assert {Path(name).suffix for name in found} >= {".py", ".pyi", ".yaml", ".json", ".html", ".js"}


def test_the_source_distribution_has_what_belongs_to_it(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        found = {name.partition("/")[2] for name in opened.getnames()}
    for name in (
        "CHANGELOG.md",
        "SECURITY.md",
        "LICENSE",
        "setup.py",
        "Makefile",
        "constraints.txt",
        "mkdocs.yml",
    ):
        assert name in found
    for part in PARTS:
        files = [
            path for path in (ROOT / part).rglob("*") if path.is_file() and "__pycache__" not in path.parts
        ]
        ours = {path.relative_to(ROOT).as_posix() for path in files if ".egg-info" not in str(path)}
        assert ours - found == set()


def test_the_description_has_no_link_into_the_repository(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (name for name in opened.namelist() if name.endswith("dist-info/METADATA"))
        metadata = email.message_from_bytes(opened.read(name))
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = metadata.get_payload()
    assert isinstance(text, str)
    assert re.findall(r"\]\((?!https?:)[^)]*\)", text) == []
    # Nothing else is missing: every heading and every line of code is there.
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for line in readme.splitlines():
        if line.startswith(("#", "    ")) and "](" not in line:
            assert line in text

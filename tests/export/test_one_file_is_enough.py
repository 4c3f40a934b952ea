"""A reader, a data set and an exporter take one file each: satl finds it in its folder."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import satl

FORMAT = """
from satl.labels.io.registry import Format, TableFile, register_format
from satl.labels.table import LabelTable


def read(path, encoding):
    rows = [line.split() for line in path.read_text().splitlines()]
    cells = [[int(value) for value in row[1:]] for row in rows[1:]]
    return TableFile(LabelTable(tuple(row[0] for row in rows[1:]), tuple(rows[0]), cells), path, "grid")


def write(table, path, encoding):
    lines = [" ".join(table.classes)]
    lines += [f"{image} {' '.join(map(str, row))}" for image, row in zip(table.images, table.cells.tolist())]
    path.write_text("\\n".join(lines))


register_format(Format("grid", (".grid",), read, write, encoded=False))
"""

DATASET = """
from satl.labels.datasets.registry import Dataset, register_dataset
from satl.labels.table import LabelTable


def read(root):
    return LabelTable(("a.jpg", "b.jpg"), ("cat", "dog"), [[1, 0], [-1, 1]])


register_dataset(Dataset("toys", "Toys.", ("labels/",), read))
"""

TOOL = """
from satl.export.registry import MAIN, Imported, ToolFormat, register_tool
from satl.export.suggestions import Suggestions
from satl.labels import read_table


def write(source, files):
    files[MAIN].write_text("".join(f"{image.image} {image.present}\\n" for image in source.images()))


register_tool(
    ToolFormat(
        "tags", "Tags.", (".tags",), lambda path: {MAIN: path}, lambda source: (MAIN,), write,
        lambda path, encoding: Imported(read_table(path), Suggestions.of(())),
    )
)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(Path(satl.__file__).parent, folder / "satl", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "satl" / "labels" / "io" / "grid.py").write_text(FORMAT)
    (folder / "satl" / "labels" / "datasets" / "toys.py").write_text(DATASET)
    (folder / "satl" / "export" / "tags.py").write_text(TOOL)
    return folder


def run(package: Path, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "satl", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_new_file_is_found(package: Path, tmp_path: Path) -> None:
    (tmp_path / "labels").mkdir()
    run(package, tmp_path, "convert", ".", "t.grid", "--dataset", "toys")
    assert (tmp_path / "t.grid").read_text() == "cat dog\na.jpg 1 0\nb.jpg -1 1"
    assert "2 images, 2 classes" in run(package, tmp_path, "inspect", "t.grid")
    run(package, tmp_path, "export", "t.grid", "-f", "tags", "-o", "t.tags")
    assert (tmp_path / "t.tags").read_text() == "a.jpg [0]\nb.jpg [1]\n"

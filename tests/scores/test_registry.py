"""A new kind of file is one file in ``satl.scores.readers``; nothing else changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

READER = """
from contextlib import contextmanager

import numpy as np

from satl.scores.score_reader import ScoreFile, ScoreReader, has_extension, register_reader


@contextmanager
def open_words(path, classes):
    names, *lines = [line.split() for line in path.read_text().splitlines()]
    blocks = [([line[0]], np.array([line[1:]], dtype=np.float32)) for line in lines]
    yield ScoreFile(names, len(names), iter(blocks))


register_reader(ScoreReader(".words", has_extension(".words"), open_words))
"""
PROGRAM = """
import importlib.util
import sys

from satl.cli import main

# The folder of the new file counts as satl/scores/readers does.
spec = importlib.util.find_spec("satl.scores.readers")
spec.submodule_search_locations.append(sys.argv.pop(1))
module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
main()
"""


def test_a_file_in_the_folder_of_readers_is_enough_for_both_commands(tmp_path: Path) -> None:
    folder = tmp_path / "readers"
    folder.mkdir()
    (folder / "words.py").write_text(READER)
    (tmp_path / "s.words").write_text("cat dog\na.jpg 0.25 0.75\nb.jpg 0.5 0.125\n")
    (tmp_path / "l.csv").write_text("image,cat,dog\na.jpg,yes,no\nb.jpg,no,\n")

    def run(*options: object) -> str:
        command = [sys.executable, "-c", PROGRAM, folder, *options, "--scores", tmp_path / "s.words"]
        done = subprocess.run(
            [*map(str, command), "--labels", str(tmp_path / "l.csv")],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "2 images, rule fixed" in run("thresholds", "--rule", "fixed")
    assert "of 1 unknown cells" in run("complete", "-o", tmp_path / "out", "--review-only")

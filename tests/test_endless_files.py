"""Pipes and devices in a folder from a stranger: nobody waits for one, and a lock empties no file elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from completion.drawn import Drawn
from satl.completion.outputs.completed_folder import CompletedFolder
from satl.completion.workflow.complete import complete
from satl.completion.workflow.from_scores import case_from_scores
from satl.errors import RunError, SatlError
from satl.features.feature_folder import FeatureFolder
from satl.images import ArrayImages
from satl.images.pack import pack_images
from satl.images.store import open_store
from satl.runs.run_folder import RunFolder
from satl.runs.run_lock import NAME, RunLock
from satl.scores.prediction_folder import MANIFEST, part_files

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes and devices have names on POSIX systems")


def _run(place: Path) -> Callable[[], object]:
    (place / "checkpoints" / "best").mkdir(parents=True)
    (place / "config.yaml").write_text("{}\n")
    (place / "checkpoints" / "best" / "learner.safetensors").touch()
    return lambda: RunFolder.open(place)


def _completion(place: Path) -> Callable[[], object]:
    labels, scores = Drawn(60, ("boat", "cat")).write(place.parent, scores="s.npz")
    complete(case_from_scores(scores, labels), place)
    return lambda: CompletedFolder.open(place)


def _features(place: Path) -> Callable[[], object]:
    FeatureFolder.write(place, ["a", "b"], np.zeros((2, 3), dtype=np.float16))
    return lambda: FeatureFolder.open(place)


def _store(place: Path) -> Callable[[], object]:
    pack_images(ArrayImages(np.zeros((2, 8, 8, 3), dtype=np.uint8)), ["a", "b"], place)
    return lambda: open_store(place)


def _predictions(place: Path) -> Callable[[], object]:
    place.mkdir()
    (place / MANIFEST).write_text('{"images": 1, "part_size": 1}')
    (place / "part-000000.parquet").touch()
    return lambda: part_files(place)


MAKERS = {
    "run": _run,
    "completion": _completion,
    "features": _features,
    "store": _store,
    "predictions": _predictions,
}


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("maker", list(MAKERS))
def test_what_never_ends_is_refused_before_it_is_opened(maker: str, kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    read = MAKERS[maker](folder)
    read()  # it is whole
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = file.read_bytes()
        file.unlink()
        if kind == "pipe":
            os.mkfifo(file)
        else:
            file.symlink_to(os.devnull)
        with pytest.raises(SatlError):
            read()
        file.unlink()
        file.write_bytes(content)
    read()


def test_a_lock_that_leads_elsewhere_empties_nothing(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / NAME).symlink_to(tmp_path / "own.txt")
    with pytest.raises(OSError, match="symbolic links"):
        RunLock(tmp_path / "run")
    with pytest.raises(RunError, match="cannot be written"):
        RunFolder(tmp_path / "run").lock()
    assert (tmp_path / "own.txt").read_text() == "mine"

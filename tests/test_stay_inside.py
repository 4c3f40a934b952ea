"""A folder or an archive from a stranger names files elsewhere: nothing outside it is read or written."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from completion.drawn import Drawn
from satl.completion.outputs.completed_folder import CompletedFolder
from satl.completion.workflow.complete import complete
from satl.completion.workflow.from_scores import case_from_scores
from satl.errors import RunError, SatlError, TableError
from satl.features.feature_folder import RECORD, FeatureFolder
from satl.files import CHECKSUMS
from satl.images import ArrayImages
from satl.images.pack import pack_images
from satl.images.store import HEADER, INDEX, open_store, write_index
from satl.labels import LabelTable, read_table, write_table
from satl.runs.checkpoint_folders import DamagedError, require_whole
from satl.scores.prediction_folder import MANIFEST, part_files
from satl.scores.score_reading import read_scores

ELSEWHERE = ["../outside.npy", "/dev/zero", "sub/../../outside.npy", "..", "..\\outside.npy", "C:outside.npy"]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A proper file of features beside the stranger's folder."""
    file = tmp_path / "outside.npy"
    np.save(file, np.ones((2, 1, 3), dtype=np.float16))
    return file


@pytest.mark.parametrize("name", [*ELSEWHERE, "ABSOLUTE"])
def test_a_folder_of_features(name: str, tmp_path: Path, secret: Path) -> None:
    FeatureFolder.write(tmp_path / "features", ["a", "b"], np.zeros((2, 3), dtype=np.float16))
    record = tmp_path / "features" / RECORD
    content = json.loads(record.read_text())
    content["parts"][0]["file"] = str(secret) if name == "ABSOLUTE" else name
    content["parts"][0]["sha256"] = hashlib.sha256(secret.read_bytes()).hexdigest()
    record.write_text(json.dumps(content))
    with pytest.raises(TableError, match="names a file that is not in its folder"):
        FeatureFolder.open(tmp_path / "features")


@pytest.mark.parametrize("name", ELSEWHERE)
def test_checksums_of_a_checkpoint(name: str, tmp_path: Path) -> None:
    (tmp_path / "last").mkdir()
    (tmp_path / "last" / CHECKSUMS).write_text(json.dumps({name: 0}))
    with pytest.raises(DamagedError, match="cannot be read"):
        require_whole(tmp_path / "last")


@pytest.fixture
def completed(tmp_path: Path) -> CompletedFolder:
    labels, scores = Drawn(60, ("boat", "cat")).write(tmp_path, scores="s.npz")
    return complete(case_from_scores(scores, labels), tmp_path / "out").folder


@pytest.mark.parametrize("name", ELSEWHERE)
def test_checksums_of_a_completed_folder(name: str, completed: CompletedFolder) -> None:
    (completed.path / CHECKSUMS).write_text(json.dumps({name: 0}))
    with pytest.raises(RunError, match="cannot be read"):
        CompletedFolder.open(completed.path)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_completion_that_was_cut_off(name: str, completed: CompletedFolder, secret: Path) -> None:
    """What stands in ``.new`` is moved into the folder, and names of old files are removed there, never elsewhere."""
    fresh = completed.path / ".new"
    fresh.mkdir()
    (fresh / CHECKSUMS).write_text(json.dumps({name: 0}))
    (fresh / "stale").write_text(f"{name}\n")
    before = secret.read_bytes()
    with pytest.raises(RunError):
        CompletedFolder.open(completed.path)
    assert secret.read_bytes() == before


@pytest.mark.parametrize("count", [-1, 0, 1])
def test_a_folder_of_predictions_has_names_of_its_own(count: int, tmp_path: Path) -> None:
    """Its files are numbered, so no manifest can name another one."""
    content = {"images": count, "part_size": 1, "files": ["../outside.parquet"], "path": "/etc"}
    (tmp_path / MANIFEST).write_text(json.dumps(content))
    try:
        found = part_files(tmp_path)
    except SatlError:
        found = []
    assert all(file.parent == tmp_path for file in found)


@pytest.mark.parametrize("name", ["../cells.npy", "/cells.npy", "sub/../../cells.npy"])
def test_members_of_an_archive(name: str, tmp_path: Path) -> None:
    """Arrays are read in memory, by their names: nothing is unpacked, and a member with a path is no array of ours."""
    table = LabelTable(("a", "b"), ("cat",), np.array([[1], [-1]]))
    write_table(table, tmp_path / "good.npz")
    folder = tmp_path / "stranger"
    folder.mkdir()
    with zipfile.ZipFile(tmp_path / "good.npz") as good, zipfile.ZipFile(folder / "bad.npz", "w") as bad:
        for member in good.namelist():
            bad.writestr(member, good.read(member))
        bad.writestr(name, good.read(good.namelist()[0]))
    before = sorted(tmp_path.rglob("*"))
    for read in (read_table, read_scores):
        try:
            read(folder / "bad.npz")
        except SatlError:
            continue
    assert sorted(tmp_path.rglob("*")) == before
    assert not Path("/cells.npy").exists()


def test_ids_of_a_packed_store_are_names_and_no_paths(tmp_path: Path) -> None:
    """Pictures of a store are found by position; an id that looks like a path opens nothing."""
    pixels = np.zeros((1, 8, 8, 3), dtype=np.uint8)
    pack_images(ArrayImages(pixels), ["a.png"], tmp_path / "store", kind="raw")
    store = open_store(tmp_path / "store")
    write_index(
        tmp_path / "store" / INDEX, ["../../etc/passwd"], store.lengths.tolist(), store.crc32.tolist()
    )
    header = tmp_path / "store" / HEADER
    content = json.loads(header.read_text())
    content["index_sha256"] = hashlib.sha256((tmp_path / "store" / INDEX).read_bytes()).hexdigest()
    header.write_text(json.dumps(content))
    from satl.review.served_images import ReviewImageStore

    served, _ = ReviewImageStore(tmp_path / "store").image("../../etc/passwd").read()
    assert isinstance(served, bytes)
    assert served.startswith((b"\xff\xd8", b"\x89PNG"))


ENTITIES = "".join(f'<!ENTITY e{level + 1} "{f"&e{level};" * 10}">' for level in range(30))
BOMB = f'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY e0 "x">{ENTITIES}]><annotation>&e30;</annotation>'
OUTSIDE = '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY e SYSTEM "file://{}">]><annotation>&e;</annotation>'


@pytest.mark.parametrize("kind", ["bomb", "outside"])
def test_entities_of_xml(kind: str, tmp_path: Path) -> None:
    """Neither a file elsewhere nor ten to the thirtieth letters come out of an annotation."""
    from satl.export.cvat import read_cvat
    from satl.export.label_studio_export import _configured
    from satl.labels.datasets.voc import _objects

    (tmp_path / "secret.txt").write_text("secret")
    file = tmp_path / "a.xml"
    file.write_text(BOMB if kind == "bomb" else OUTSIDE.format(tmp_path / "secret.txt"))
    for read in (lambda: _objects(file, "a"), lambda: read_cvat(file, None), lambda: _configured(file)):
        with pytest.raises(SatlError) as error:
            read()
        assert "secret" not in str(error.value).replace(str(tmp_path), "")


def test_a_report_that_no_page_could_show(completed: CompletedFolder) -> None:
    """Numbers without end and halves of letters in ``report.json`` must not stop the page of a review."""
    text = completed.report.read_text()
    (completed.path / CHECKSUMS).unlink()
    completed.report.write_text(text.replace('"target_precision": 0.95', '"target_precision": 1e999', 1))
    assert completed.read_report()["target_precision"] is None
    for hostile in ('"\\ud800"', "[" * 100_000):
        completed.report.write_text(
            text.replace('"target_precision": 0.95', f'"target_precision": {hostile}', 1)
        )
        with pytest.raises(RunError, match="cannot be read as JSON"):
            completed.read_report()

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from completion.drawn import Drawn
from satl.completion.outputs.completed_folder import CompletedFolder
from satl.completion.statistics.assessment import CompletionSettings
from satl.completion.workflow.complete import complete
from satl.completion.workflow.from_scores import case_from_scores
from satl.errors import RunError
from satl.labels import read_table
from satl.labels.bands import Band


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    return Drawn(600, ("a", "b"), prevalence=(0.5, 0.3))


def completed(
    drawn: Drawn, folder: Path, settings: CompletionSettings | None = None, **options: bool
) -> CompletedFolder:
    labels, scores = drawn.write(folder, scores="s.npz")
    return complete(case_from_scores(scores, labels), folder / "out", settings, **options).folder


def test_an_earlier_completion_is_replaced_only_on_request(drawn: Drawn, tmp_path: Path) -> None:
    folder = completed(drawn, tmp_path)
    before = folder.report.read_bytes()
    with pytest.raises(RunError, match=r"holds a completion already; .* or pass force=True to replace it\.$"):
        completed(drawn, tmp_path, CompletionSettings(0.8))
    assert folder.report.read_bytes() == before
    completed(drawn, tmp_path, CompletionSettings(0.8), force=True)
    assert folder.read_report()["target_precision"] == 0.8
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_decisions_of_a_person_survive(drawn: Drawn, tmp_path: Path) -> None:
    folder = completed(drawn, tmp_path)
    with sqlite3.connect(folder.review) as connection:
        connection.execute("CREATE TABLE decision (image TEXT)")
        connection.execute("INSERT INTO decision VALUES ('a.jpg')")
    connection.close()
    (folder.path / "audit.csv").write_text("mine")
    with pytest.raises(RunError, match=r"decisions in its review\.sqlite are kept"):
        CompletedFolder.check_free(folder.path)
    # An open connection must not be disturbed either, so the file itself has to stay.
    inode = folder.review.stat().st_ino
    completed(drawn, tmp_path, force=True)
    assert folder.review.stat().st_ino == inode
    with sqlite3.connect(folder.review) as connection:
        assert connection.execute("SELECT image FROM decision").fetchall() == [("a.jpg",)]
    connection.close()
    assert (folder.path / "audit.csv").read_text() == "mine"


def test_files_of_another_shape_do_not_stay_behind(drawn: Drawn, tmp_path: Path) -> None:
    folder = completed(drawn, tmp_path)
    labels, scores = drawn.write(tmp_path, labels="labels.parquet", scores="s.npz")
    complete(case_from_scores(scores, labels), folder.path, force=True)
    assert [file.name for file in folder.path.glob("completed.*")] == ["completed.parquet"]
    assert folder.completed.name == "completed.parquet"


def test_a_folder_with_other_files_is_never_written_to(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    for force in (False, True):
        with pytest.raises(RunError, match="holds files that no completion wrote"):
            CompletedFolder.check_free(tmp_path, force)
    with pytest.raises(RunError, match="is a file"):
        CompletedFolder.check_free(tmp_path / "thesis.tex")
    (tmp_path / "empty").mkdir()
    assert CompletedFolder.check_free(tmp_path / "empty").path == tmp_path / "empty"
    assert CompletedFolder.check_free(tmp_path / "new" / "deep").path == tmp_path / "new" / "deep"


def test_the_working_folder_may_be_written_to(
    drawn: Drawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, scores = drawn.write(tmp_path, scores="s.npz")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    folder = complete(case_from_scores(scores, labels), Path()).folder
    assert folder.completed == Path("completed.csv")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["here", "labels.csv", "s.npz"]


def interrupted(path: Path) -> None:
    with CompletedFolder.write(path, force=True) as temporary:
        temporary.report.write_text("half")
        raise KeyboardInterrupt


def test_an_error_leaves_nothing_and_changes_nothing(drawn: Drawn, tmp_path: Path) -> None:
    folder = completed(drawn, tmp_path)
    before = {file.name: file.read_bytes() for file in folder.path.iterdir()}
    with pytest.raises(KeyboardInterrupt):
        interrupted(folder.path)
    assert {file.name: file.read_bytes() for file in folder.path.iterdir()} == before
    with pytest.raises(RunError, match="cannot be written"), CompletedFolder.write(tmp_path / "other"):
        raise OSError(5, "Input/output error")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["labels.csv", "out", "s.npz"]


def test_what_is_no_completion_is_told(drawn: Drawn, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a folder"):
        CompletedFolder.open(tmp_path / "none")
    with pytest.raises(RunError, match=r"has no report\.json, so it is not the folder of a completion"):
        CompletedFolder.open(tmp_path)
    folder = completed(drawn, tmp_path)
    assert CompletedFolder.open(folder.path).read_labels() == drawn.table
    folder.report.write_text('{"format": 99}')
    with pytest.raises(RunError, match="another version of satl"):
        folder.read_report()
    folder.report.write_text("{")
    with pytest.raises(RunError, match="cannot be read as JSON"):
        folder.read_report()


def test_bands_are_read_back(drawn: Drawn, tmp_path: Path) -> None:
    folder = completed(drawn, tmp_path)
    table, after = drawn.table, read_table(folder.completed)
    bands = folder.read_bands(table)
    counts = folder.read_report()["counts"]
    np.testing.assert_array_equal(bands == Band.KNOWN, table.known)
    np.testing.assert_array_equal(bands == Band.PRESENT, ~table.known & (after.cells == 1))
    np.testing.assert_array_equal(bands == Band.ABSENT, ~table.known & (after.cells == -1))
    assert int((bands == Band.REVIEW).sum()) == counts["review"]
    assert int((bands == Band.LEFT).sum()) == counts["left"]
    with folder.changes.open("a") as stream:
        stream.write("other.jpg,a,1,0.5,,review,model,\n")
    with pytest.raises(RunError, match=r"row \d+: the labels\.npz beside it has no image 'other\.jpg'"):
        folder.read_bands(table)

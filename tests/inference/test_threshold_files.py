"""Thresholds for decisions, from the files that satl itself writes and from a person's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from satl.completion.statistics.assessment import CompletionSettings
from satl.completion.workflow.complete import complete
from satl.completion.workflow.from_scores import case_from_scores
from satl.errors import TableError
from satl.inference.decision_thresholds import NEVER, at_least, same_threshold
from satl.inference.threshold_files import read_thresholds

CLASSES = ("cat", "dog", "traffic light, red")


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scores between 0 and 1 that separate cats, and nothing else."""
    random = np.random.default_rng(0)
    truth = np.where(random.random((3000, 3)) < 0.3, 1, -1)
    logits = random.normal(size=truth.shape) + np.array([8, 0, 0]) * (truth > 0) - 4
    path = tmp_path_factory.mktemp("scores") / "everything.npz"
    np.savez(
        path,
        scores=1 / (1 + np.exp(-logits)),
        labels=np.where(random.random(truth.shape) < 0.3, truth, 0),
        names=np.array(CLASSES),
        images=np.array([f"{i}.jpg" for i in range(3000)]),
    )
    return path


def test_certified_thresholds_of_a_completion(everything: Path, tmp_path: Path) -> None:
    done = complete(case_from_scores(everything, encoding="signed"), tmp_path / "completed")
    certified = done.report["classes"][0]["present"]
    assert certified["certified"]
    found = read_thresholds(done.folder.thresholds, CLASSES)
    assert found.values.dtype == np.float32
    assert float(found.values[0]) == certified["threshold"]  # scores are float32, so nothing is rounded
    assert found.values[1:].tolist() == [NEVER, NEVER]
    assert found.never.tolist() == [False, True, True]
    assert found.source == "thresholds.csv"


def test_a_withheld_threshold_is_none(everything: Path, tmp_path: Path) -> None:
    done = complete(
        case_from_scores(everything, encoding="signed"),
        tmp_path / "completed",
        CompletionSettings(review_only=True),
    )
    assert done.report["classes"][0]["present"]["threshold"] is not None
    assert read_thresholds(done.folder.thresholds, CLASSES).never.all()


def test_a_score_equal_to_a_threshold_counts_as_in_the_command_that_wrote_it(tmp_path: Path) -> None:
    rows = 'dog,{0}0.25\n"traffic light, red",{0}1.0\ncat,{0}0.7\n'
    own = read_thresholds(written(tmp_path, "class,threshold\n" + rows.format("")), CLASSES)
    assert [np.float32(0.25) >= own.values[1], np.float32(1) >= own.values[2]] == [True, True]
    assert not own.never.any()
    strict = read_thresholds(written(tmp_path, "class,rule,threshold\n" + rows.format("mat,")), CLASSES)
    assert [np.float32(0.25) >= strict.values[1], np.float32(1) >= strict.values[2]] == [False, False]
    assert np.nextafter(np.float32(0.25), np.float32(1)) >= strict.values[1]
    assert strict.never.tolist() == [False, False, True]
    # 0.7 as a float32 is a little below 0.7: as a number it is not at least 0.7.
    assert np.float32(0.7) < own.values[0] == np.nextafter(np.float32(0.7), np.float32(1))


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9999, 1.0])
def test_float32_decides_as_the_number_itself(threshold: float) -> None:
    near = np.float32(threshold)
    for value in (np.nextafter(near, np.float32(-1)), near, np.nextafter(near, np.float32(2))):
        assert (value >= at_least(threshold)) == (float(value) >= threshold)
    assert same_threshold(threshold, 2).values.tolist() == [float(at_least(threshold))] * 2


def test_a_file_of_ones_own_with_a_mark_a_blank_and_other_columns(tmp_path: Path) -> None:
    text = '\ufeffthreshold,note,class\n0.5,x,cat\n\n ,"never, so far",dog\n0,,"traffic light, red"\n'
    assert read_thresholds(written(tmp_path, text), CLASSES).values.tolist() == [0.5, NEVER, 0.0]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("class,threshold\ncat,0.5\ndgo,0.5\n", ("row 2 is about class 'dgo'", "(did you mean 'dog'?)")),
        (
            "class,threshold\nzebra,0.5\n",
            ("row 1", "'zebra'", "the run's classes are 'cat', 'dog', 'traffic"),
        ),
        (
            "class,threshold\ncat,0.5\ndog,1\ncat,0.5\n",
            ("row 3 names class 'cat' a second time", "remove one"),
        ),
        (
            "class,threshold\ncat,0.5\n",
            ("2 of the run's 3 classes have no threshold ('dog', 'traffic", "add a row"),
        ),
        ("class,threshold\n", ("3 of the run's 3 classes have no threshold", "add a row")),
        ("class,threshold\ncat,1.5\n", ("row 1 (class 'cat') has the threshold '1.5'", "between 0 and 1")),
        (
            "class,threshold\ncat,nan\n",
            ("row 1 (class 'cat') has the threshold 'nan'", "leave it blank"),
        ),
        ("class,threshold\ncat,high\n", ("row 1 (class 'cat') has the threshold 'high'",)),
        ("class,threshold\ncat,0.5,1\n", ("row 1 has 3 columns, but the header has 2", "fix the row")),
        ("image,cat,dog\na.jpg,1,0\n", ("no column 'class'", "that thresholds() or complete() wrote")),
        ("class,value\ncat,1\n", ("no column 'threshold'",)),
        ("", ("no column 'class'",)),
        ('class,threshold\n"cat,0.5\n', ("cannot be read as CSV",)),
        ("class,generator,threshold\ncat,intra,0.5\n", ("thresholds of pseudo-labels", "for this run")),
        (
            "class,direction,threshold,precision_lower_bound\ncat,absent,0.1,0.95\n",
            ("3 of the run's 3 classes have no threshold",),
        ),
    ],
)
def test_bad_files(text: str, parts: tuple[str, ...], tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(TableError) as caught:
        read_thresholds(path, CLASSES)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert message.endswith(".")
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"none.csv: cannot be read .No such file"):
        read_thresholds(tmp_path / "none.csv", CLASSES)
    with pytest.raises(TableError, match=r"cannot be read .Is a directory"):
        read_thresholds(tmp_path, CLASSES)
    (tmp_path / "latin.csv").write_bytes(b"class,threshold\nk\xe4fer,1\n")
    with pytest.raises(TableError, match="UTF-8"):
        read_thresholds(tmp_path / "latin.csv", CLASSES)

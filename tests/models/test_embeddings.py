"""Word vectors from text and archives, and what a user reads when something is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from satl.errors import ConfigError
from satl.models import load_word_vectors

GLOVE = "the 9 9\ntraffic 1 2\nlight 3 4\ndining 0 2\ntable 2 0\ntv 1 1\nmonitor 3 3\nbear -1.5e0 2\n"


@pytest.fixture
def glove(tmp_path: Path) -> Path:
    path = tmp_path / "glove.txt"
    path.write_text(GLOVE)
    return path


def test_names_are_the_mean_of_their_words(glove: Path) -> None:
    names = ["bear", "Traffic Light", "traffic_light", "traffic-light", "diningtable", "tvmonitor"]
    vectors = load_word_vectors(glove, names)
    assert vectors.dtype == np.float32
    assert vectors.tolist() == [[-1.5, 2], [2, 3], [2, 3], [2, 3], [1, 1], [2, 2]]


def test_lines_that_are_not_needed_are_not_parsed(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text("3 2\n. . . 1 2\nbroken x\nbear 1 2\nbear 5 5\n\ncat 3 4\nlater nonsense\n")
    assert load_word_vectors(path, ["cat", "bear"]).tolist() == [[3, 4], [1, 2]]


def test_missing_words_are_an_error_or_random(glove: Path) -> None:
    with pytest.raises(ConfigError, match=r"no word 'zebra' of the class 'zebra': .*missing='random'"):
        load_word_vectors(glove, ["bear", "zebra"])
    with pytest.raises(ConfigError, match="no word 'polar' of the class 'polar bear'"):
        load_word_vectors(glove, ["polar bear"])
    first = load_word_vectors(glove, ["bear", "zebra", "okapi", "polar bear"], missing="random", seed=1)
    assert first[0].tolist() == first[3].tolist() == [-1.5, 2]
    assert np.linalg.norm(first[1]) == pytest.approx(6, rel=1e-6)
    assert first[1].tolist() != first[2].tolist()
    again = load_word_vectors(glove, ["okapi", "bear"], missing="random", seed=1)
    assert again[0].tolist() == first[2].tolist()
    other = load_word_vectors(glove, ["okapi", "bear"], missing="random", seed=2)
    assert other[0].tolist() != again[0].tolist()


def test_archives_know_whole_names_and_words(tmp_path: Path) -> None:
    path = tmp_path / "words.npz"
    np.savez(path, names=["traffic light", "diningtable", "cat", "dog"], vectors=np.arange(8.0).reshape(4, 2))
    vectors = load_word_vectors(path, ["Traffic_Light", "diningtable", "cat dog"])
    assert vectors.tolist() == [[0, 1], [2, 3], [5, 6]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("bear 1 2\ncat 1 2 3\n", r"line 2 \('cat'\) have 3 numbers where others have 2"),
        ("bear 1 2\ncat 1 nan\n", r"line 2 \('cat'\) have a NaN or infinite number"),
        ("bear 1 x\n", r"line 1 \('bear'\) have a value that is not a number"),
        ("bear\n", "have no word of any class name"),
        ("", "have no word of any class name"),
    ],
)
def test_bad_text_is_explained(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message) as raised:
        load_word_vectors(path, ["bear", "cat"])
    assert str(path) in str(raised.value)


def test_bad_archives_and_options_are_explained(tmp_path: Path, glove: Path) -> None:
    path = tmp_path / "words.npz"
    with pytest.raises(ConfigError, match="do not exist"):
        load_word_vectors(path, ["cat"])
    np.savez(path, words=["cat"])
    with pytest.raises(ConfigError, match=r"not an \.npz file with 'names'"):
        load_word_vectors(path, ["cat"])
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ConfigError, match=r"not an \.npz file with 'names'"):
        load_word_vectors(path, ["cat"])
    path.write_text("no archive")
    with pytest.raises(ConfigError, match=r"not an \.npz file with 'names'"):
        load_word_vectors(path, ["cat"])
    np.savez(path, names=["cat"], vectors=np.ones(3))
    with pytest.raises(ConfigError, match=r"'vectors' of shape \(3,\)"):
        load_word_vectors(path, ["cat"])
    np.savez(path, names=["dog", "cat"], vectors=np.array([[1.0], [np.inf]]))
    with pytest.raises(ConfigError, match=r"row 2 \('cat'\) have a NaN or infinite"):
        load_word_vectors(path, ["cat"])
    with pytest.raises(ConfigError, match="'error' or 'random'"):
        load_word_vectors(glove, ["bear"], missing="zero")  # type: ignore[arg-type]


def test_rows_of_an_array_are_the_classes_in_order(tmp_path: Path) -> None:
    file = tmp_path / "vectors.npy"
    rows = np.arange(6.0).reshape(3, 2)
    np.save(file, rows)
    assert np.array_equal(load_word_vectors(file, ["class_000", "class_001", "class_002"]), rows)
    with pytest.raises(ConfigError, match=r"shape \(3, 2\), but there are 2 classes: give one row per class"):
        load_word_vectors(file, ["a", "b"])
    rows[1, 0] = np.nan
    np.save(file, rows)
    with pytest.raises(ConfigError, match="row 2 have a NaN"):
        load_word_vectors(file, ["a", "b", "c"])
    file.write_bytes(b"nothing of the kind")
    with pytest.raises(ConfigError, match=r"not an \.npy file of numbers"):
        load_word_vectors(file, ["a", "b", "c"])

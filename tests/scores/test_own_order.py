"""Files of scores: every shape they come in, and what is said about those that cannot be used."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from satl.errors import EncodingError, TableError
from satl.labels import LabelTable
from satl.scores import ScoreTable, read_scores

SCORES = np.array([[0.25, 1.0], [0.5, 0.0], [0.75, 0.125]])
IMAGES, CLASSES = ("007.jpg", "08", "9 a.jpg"), ("cat", "dog")


def save(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def assert_same(file: ScoreTable) -> None:
    assert file.images == IMAGES
    assert file.classes == CLASSES
    assert file.values.dtype == np.float32
    assert np.array_equal(file.values, SCORES)


def rows(header: str, separator: str = ",") -> str:
    lines = [separator.join((i, *map(str, s))) for i, s in zip(IMAGES, SCORES.tolist(), strict=True)]
    return "\n".join([header.replace(",", separator), *lines]) + "\n"


def test_wide_text_keeps_ids_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_text(rows("image,cat,dog"))
    assert_same(read_scores(path))
    path.write_bytes(b"\xef\xbb\xbf" + rows("filename, cat ,dog").replace("\n", "\r\n").encode())
    assert_same(read_scores(path))
    path = tmp_path / "scores.tsv"
    path.write_text(rows("image,cat,dog", "\t").rstrip("\n"))
    assert_same(read_scores(path))
    (tmp_path / "split.csv").write_text(
        rows("image,cat,dog")
        .replace(".jpg,", ".jpg,train,")
        .replace("08,", "08,val,")
        .replace("image,", "image,split,")
    )
    assert_same(read_scores(tmp_path / "split.csv"))


def test_long_text_as_predictions_are_written(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    cells = [
        f"{image},{name},{SCORES[n, c]},{int(SCORES[n, c] > 0.5)}"
        for c, name in enumerate(CLASSES)
        for n, image in enumerate(IMAGES)
    ]
    path.write_text("\n".join(["image,label,probability,present", *cells]))
    assert_same(read_scores(path))
    path.write_text("\n".join(["image,label,probability,present", *cells[:-1]]))
    with pytest.raises(TableError, match=r"image '9 a\.jpg'\), class 'dog': the score is missing"):
        read_scores(path).require_probabilities()
    path.write_text("\n".join(["image,label,probability,present", *cells, cells[0]]))
    with pytest.raises(TableError, match=r"image '007\.jpg' has two scores for 'cat'"):
        read_scores(path)
    path.write_text("image,label,score\n")
    with pytest.raises(TableError, match="is empty"):
        read_scores(path)


def test_long_text_is_not_held_as_one_python_text_for_each_cell(tmp_path: Path) -> None:
    path, images, classes = tmp_path / "out.csv", 400, 50
    lines = (f"folder/{n}.jpg , class {c},0.{c:02}\n" for n in range(images) for c in range(classes))
    path.write_text("image,label,probability\n" + "".join(lines))
    read_scores(path)  # what is imported on the first call does not count
    tracemalloc.start()
    try:
        file = read_scores(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert file.images == tuple(f"folder/{n}.jpg" for n in range(images))
    assert file.classes == tuple(f"class {c}" for c in range(classes))
    assert np.allclose(file.values, np.arange(classes) / 100)
    assert peak < 100 * images * classes


def test_long_parquet_with_names_as_categories_or_numbers(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    for ids in (pa.array([7, 7, 8, 8]), pa.array(["7", "7 ", "8", "8"]).dictionary_encode()):
        columns = {"image": ids, "label": ["cat", "dog"] * 2, "score": pa.array([0, 1, 0, 1])}
        pyarrow.parquet.write_table(pa.table(columns), path, row_group_size=1)
        file = read_scores(path)
        assert (file.images, file.classes, file.values.tolist()) == (
            ("7", "8"),
            ("cat", "dog"),
            [[0, 1], [0, 1]],
        )


def test_parquet_of_either_precision(tmp_path: Path) -> None:
    path = tmp_path / "scores.parquet"
    for dtype in (np.float64, np.float32, np.float16):
        columns = {
            "image": list(IMAGES),
            "cat": SCORES[:, 0].astype(dtype),
            "dog": SCORES[:, 1].astype(dtype),
        }
        pyarrow.parquet.write_table(pa.table({**columns, "__index_level_0__": [0, 1, 2]}), path)
        assert_same(read_scores(path))


@pytest.mark.parametrize(("images", "classes"), [("images", "classes"), ("ids", "names")])
def test_npz_with_everything(tmp_path: Path, images: str, classes: str) -> None:
    labels = np.array([[1, 0], [-1, 1], [0, 0]])
    truth = np.array([[1, -1], [-1, 1], [1, 0]])
    arrays = {images: np.array(IMAGES), classes: np.array(CLASSES), "labels": labels, "truth": truth}
    path = save(tmp_path / "s.npz", scores=SCORES, uncertainty=SCORES / 10, encoding="signed", **arrays)
    file = read_scores(path)
    assert_same(file)
    assert file.labels is not None
    assert file.labels.table == LabelTable(IMAGES, CLASSES, labels, None, truth, encoding="signed")
    assert file.uncertainty is not None
    assert np.allclose(file.uncertainty, SCORES / 10)


def test_npz_with_scores_alone_counts_its_rows_and_columns(tmp_path: Path) -> None:
    file = read_scores(save(tmp_path / "s.npz", scores=SCORES))
    assert (file.images, file.classes) == (("1", "2", "3"), ("class 1", "class 2"))
    assert (file.images_named, file.classes_named, file.labels, file.uncertainty) == (
        False,
        False,
        None,
        None,
    )
    labelled = read_scores(save(tmp_path / "t.npz", probabilities=SCORES, labels=np.array([[1, np.nan]] * 3)))
    assert labelled.labels is not None
    table = labelled.labels.table
    assert table.images == ("1", "2", "3")
    assert table.classes == ("class 1", "class 2")
    assert table.cells.tolist() == [[1, 0]] * 3


def test_labels_that_can_be_read_in_several_ways_are_not_guessed(tmp_path: Path) -> None:
    path = save(tmp_path / "s.npz", scores=SCORES, labels=np.array([[1, 0], [0, 1], [0, 0]]))
    with pytest.raises(EncodingError, match=r"encoding='complete' .* or encoding='signed'"):
        read_scores(path)
    file = read_scores(path, encoding="complete")
    assert file.labels is not None
    assert file.labels.table.cells.min() == -1


WRONG_ARRAYS: list[tuple[dict[str, Any], str]] = [
    ({"score": SCORES}, r"no array 'scores' \(arrays: 'score'\)"),
    ({"scores": SCORES[0]}, r"shape \(images, classes\), not \(2,\)"),
    ({"scores": SCORES[:0]}, "shape"),
    ({"scores": SCORES > 0.5}, "must hold numbers"),
    ({"scores": SCORES, "names": np.array(["cat"])}, "'names' must be 2 texts"),
    ({"scores": SCORES, "images": np.array(IMAGES[:2])}, "'images' must be 3 texts"),
    ({"scores": SCORES, "images": np.array(["a", "b", "a"])}, "rows 1 and 3 are both about image 'a'"),
    ({"scores": SCORES, "labels": np.zeros((3, 3))}, "'labels' must hold labels of the shape"),
    ({"scores": SCORES, "labels": np.full((3, 2), 2)}, "row 1 .*'2' is not a label"),
    ({"scores": SCORES, "uncertainty": SCORES[:2]}, "'uncertainty' must hold numbers of the shape"),
    (
        {"scores": SCORES, "names": np.array(["cat", None], dtype=object)},
        r"holds Python objects.* numbers as numbers, np\.array\(values, dtype=np\.float32\)",
    ),
]


@pytest.mark.parametrize(("arrays", "part"), WRONG_ARRAYS)
def test_arrays_that_do_not_fit(tmp_path: Path, arrays: dict[str, Any], part: str) -> None:
    with pytest.raises(TableError, match=part):
        read_scores(save(tmp_path / "s.npz", **arrays))


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("", r"row 2 \(image 'b'\), class 'cat': the score is missing \(NaN\)"),
        ("nan", "the score is missing"),
        (
            "1.5",
            r"row 2 \(image 'b'\), class 'cat': the score 1.5 lies outside \[0, 1\]; write probabilities",
        ),
        ("-0.1", "lies outside"),
        ("inf", "class 'cat' is inf; write a finite number"),
        ("high", r"row 2 \(image 'b'\), column 'cat': 'high' is not a number"),
    ],
)
def test_scores_that_are_none_are_named_with_their_place(tmp_path: Path, value: str, part: str) -> None:
    path = tmp_path / "s.csv"
    path.write_text(f"image,dog,cat\na,0.5,0.5\nb,0.5,{value}\nc,0.5,0.5\n")
    with pytest.raises(TableError, match=part):
        read_scores(path).require_probabilities()


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("", "is empty"),
        ("image,cat\n", "is empty: it has no row"),
        ("image,cat,cat\na,0,0\n", "columns 2 and 3 are both called 'cat'"),
        ("picture,cat\na,0\n", "no column names the image"),
        ("image\na\n", "no class column"),
        ("image,cat\na,0.1\na,0.2\n", "rows 1 and 2 are both about image 'a'"),
        ("image,cat\n,0.1\n", "row 1 has no image"),
        ("image,cat\na,0.1,0.3\n", "row 1 .* has 3 columns, but the header has 2"),
    ],
)
def test_tables_that_are_none(tmp_path: Path, content: str, part: str) -> None:
    path = tmp_path / "s.csv"
    path.write_text(content)
    with pytest.raises(TableError, match=part):
        read_scores(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "scores.csv").write_text("image,cat\na,0\n")
    with pytest.raises(TableError, match=r"does not exist \(did you mean 'scores\.csv'\?\)"):
        read_scores(tmp_path / "score.csv")
    with pytest.raises(TableError, match="is a folder"):
        read_scores(tmp_path)
    (tmp_path / "s.xlsx").write_text("x")
    with pytest.raises(
        TableError,
        match=r"\.npz, \.parquet, a folder of predictions, not from '\.xlsx'",
    ):
        read_scores(tmp_path / "s.xlsx")
    for name in ("s.npz", "s.parquet"):
        (tmp_path / name).write_text("x")
        with pytest.raises(TableError, match="not a readable"):
            read_scores(tmp_path / name)
    (tmp_path / "latin.csv").write_bytes(b"image,caf\xe9\na,0\n")
    with pytest.raises(TableError, match="UTF-8"):
        read_scores(tmp_path / "latin.csv")
    np.save(tmp_path / "one.npy", SCORES)
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    with pytest.raises(TableError, match="not a readable"):
        read_scores(tmp_path / "one.npz")


def test_labels_are_brought_into_the_order_of_the_scores() -> None:
    file = ScoreTable(Path("s.csv"), IMAGES, CLASSES, SCORES.astype(np.float32))
    cells = np.array([[0, 1], [1, 0], [-1, -1], [0, -1]])
    table = LabelTable(
        ("x", "9 a.jpg", "08", "007.jpg"), ("dog", "cat"), cells, None, -cells, encoding="signed"
    )
    labels = file.match_labels(table, Path("labels.csv"))
    assert labels.images == IMAGES
    assert labels.classes == CLASSES
    assert labels.cells.tolist() == [[-1, 0], [-1, -1], [0, 1]]
    assert labels.truth is not None
    assert labels.truth.tolist() == [[1, 0], [1, 1], [0, -1]]


@pytest.mark.parametrize(
    ("images", "classes", "part"),
    [
        (IMAGES, ("cat", "bird"), "labels.csv: there is no class 'dog'"),
        (IMAGES, ("cat", "dog", "dig"), "s.csv: there are no scores of class 'dig' .did you mean 'dog'"),
        (("007.jpg", "08"), CLASSES, "no row for 1 of the 3 images of s.csv, such as '9 a.jpg'"),
    ],
)
def test_labels_of_other_images_or_classes_are_refused(
    images: tuple[str, ...], classes: tuple[str, ...], part: str
) -> None:
    file = ScoreTable(Path("s.csv"), IMAGES, CLASSES, SCORES.astype(np.float32))
    table = LabelTable(
        images, classes, np.zeros((len(images), len(classes)), dtype=np.int8), encoding="signed"
    )
    with pytest.raises(TableError, match=part):
        file.match_labels(table, Path("labels.csv"))


def test_a_table_may_leave_the_extensions_out() -> None:
    images = ("b.png", "deep/a.JPG", "scan.1")
    scores = np.arange(6, dtype=np.float32).reshape(3, 2) / 10
    table = LabelTable(
        ("deep/a", "scan.1", "b"), CLASSES, np.array([[1, 0], [0, 1], [-1, -1]], dtype=np.int8)
    )
    labels = ScoreTable(Path("scores.csv"), images, CLASSES, scores).match_labels(table, Path("labels.csv"))
    assert labels.images == images
    assert labels.cells.tolist() == [[-1, -1], [1, 0], [0, 1]]
    # The ids of the table come first where they are the same, and one of them cannot stand for two images.
    exact = LabelTable(("b", "b.png"), CLASSES, np.array([[1, 1], [-1, 0]], dtype=np.int8))
    own = ScoreTable(Path("scores.csv"), ("b.png",), CLASSES, scores[:1]).match_labels(
        exact, Path("labels.csv")
    )
    assert own.cells.tolist() == [[-1, 0]]
    both = ScoreTable(Path("scores.csv"), ("b.png", "b.jpg"), CLASSES, scores[:2])
    with pytest.raises(
        TableError, match=r"several of its images are 'b' of labels\.csv; write the ids there with"
    ):
        both.match_labels(
            LabelTable(("b",), CLASSES, np.zeros((1, 2), dtype=np.int8), encoding="signed"),
            Path("labels.csv"),
        )


@pytest.mark.parametrize("what", ["images", "classes"])
def test_scores_without_names_are_matched_by_their_number_only(what: str, tmp_path: Path) -> None:
    names = {"images": np.array(IMAGES), "classes": np.array(CLASSES)}
    del names[what]
    file = read_scores(save(tmp_path / "s.npz", scores=SCORES, **names))
    cells = np.array([[1, 0], [0, -1], [0, 0]], dtype=np.int8)
    same = LabelTable(IMAGES, CLASSES, cells, encoding="signed")
    assert file.match_labels(same, Path("labels.csv")) == same
    more = LabelTable((*IMAGES, "x"), (*CLASSES, "cow"), np.zeros((4, 3), dtype=np.int8), encoding="signed")
    with pytest.raises(
        TableError, match=f"names no {what} and has . of them, but labels.csv has .; add an array"
    ):
        file.match_labels(more, Path("labels.csv"))

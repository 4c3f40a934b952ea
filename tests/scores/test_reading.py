from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from completion.drawn import Drawn, write_scores
from satl.errors import TableError
from satl.labels import LabelTable
from satl.scores import ScoreTable, read_scores

NAMES = ("plain", "猫, cat", 'the "best"')


@pytest.fixture
def drawn() -> Drawn:
    return Drawn(50, NAMES)


@pytest.mark.parametrize("name", ["s.csv", "s.tsv", "s.parquet", "s.npz"])
def test_every_format_is_read_in_the_order_of_the_table(name: str, drawn: Drawn, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    rows, columns = random.permutation(50), [2, 0, 1]
    other = LabelTable(
        tuple(drawn.table.images[i] for i in rows),
        tuple(NAMES[i] for i in columns),
        drawn.table.cells[rows][:, columns],
        encoding="signed",
    )
    path = write_scores(tmp_path / name, other, drawn.scores[rows][:, columns])
    if name == "s.tsv":
        path.write_text(write_scores(tmp_path / "s.csv", other, drawn.scores[rows][:, columns]).read_text())
        text = path.read_text(encoding="utf-8")
        path.write_text(_with_tabs(text), encoding="utf-8")
    found = read_scores(path, drawn.table)
    np.testing.assert_array_equal(found.values, drawn.scores)
    assert found.values.flags.f_contiguous
    assert found.held_out is None
    assert found.notes == ()


def _with_tabs(text: str) -> str:
    import csv
    import io

    out = io.StringIO()
    csv.writer(out, delimiter="\t", lineterminator="\n").writerows(csv.reader(io.StringIO(text)))
    return out.getvalue()


def test_blocks_of_any_size_give_the_same(
    drawn: Drawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from satl.labels.io import arrays
    from satl.scores.readers import csv_scores, parquet_scores

    paths = [
        write_scores(tmp_path / f"s.{kind}", drawn.table, drawn.scores) for kind in ("csv", "parquet", "npz")
    ]
    monkeypatch.setattr(arrays, "_BYTES_AT_ONCE", 7 * 3 * 4)
    monkeypatch.setattr(parquet_scores, "_ROWS_AT_ONCE", 7)
    monkeypatch.setattr(csv_scores, "_BYTES_AT_ONCE", 1 << 10)
    for path in paths:
        np.testing.assert_array_equal(read_scores(path, drawn.table).values, drawn.scores)


def test_the_long_file_of_predict_is_read(drawn: Drawn, tmp_path: Path) -> None:
    lines = ["image,label,probability,present"]
    for row, image in enumerate(drawn.table.images):
        lines += [f"{image},plain,{drawn.scores[row, 0]!s},1", f"{image},ghost,0.5,0"]
    (tmp_path / "p.csv").write_text("\n".join(lines) + "\n")
    found = read_scores(tmp_path / "p.csv", drawn.table)
    np.testing.assert_array_equal(found.values[:, 0], drawn.scores[:, 0])
    assert np.isnan(found.values[:, 1:]).all()
    assert "2 of 3 classes have no score, such as '猫, cat': their cells stay unknown." in found.notes
    (tmp_path / "p.csv").write_text("\n".join([*lines, lines[1]]) + "\n")
    with pytest.raises(TableError, match=r"'shots/00000.jpg' has two scores for 'plain'"):
        read_scores(tmp_path / "p.csv", drawn.table)


def test_what_the_file_lacks_or_has_too_much_is_told(drawn: Drawn, tmp_path: Path) -> None:
    table = drawn.table
    other = LabelTable(
        (*table.images[:40], "x.jpg", "y.jpg"),
        ("plain", 'the "best"', "other"),
        np.zeros((42, 3)),
        encoding="signed",
    )
    scores = np.full((42, 3), 0.25, dtype=np.float32)
    scores[3, 0] = np.nan
    for name in ("s.csv", "s.parquet", "s.npz"):
        found = read_scores(write_scores(tmp_path / name, other, scores), table)
        assert np.isnan(found.values[40:]).all()
        assert np.isnan(found.values[:, 1]).all()
        assert np.isnan(found.values[3, 0])
        assert np.count_nonzero(found.values == 0.25) == 40 * 2 - 1
        assert found.notes == (
            "10 of 50 images have no score, such as 'shots/00040.jpg': their cells stay unknown.",
            "1 of 3 classes has no score, such as '猫, cat': its cells stay unknown.",
            "2 images of the scores are not in the table and were ignored.",
            "1 column of the scores is not among the classes of the table and was ignored.",
            "1 score is NaN or blank: such cells stay unknown.",
        )


def test_a_table_may_leave_the_extensions_out(tmp_path: Path) -> None:
    (tmp_path / "scores.csv").write_text("image,cat\nz.jpg,0.1\ndeep/a.JPG,0.2\nb.png,0.3\nscan.1,0.4\n")
    table = LabelTable(
        ("b", "scan.1", "deep/a"), ("cat",), np.zeros((3, 1), dtype=np.int8), encoding="signed"
    )
    scores = read_scores(tmp_path / "scores.csv", table)
    assert scores.values[:, 0].tolist() == pytest.approx([0.3, 0.4, 0.2])
    assert scores.notes == ("1 image of the scores is not in the table and was ignored.",)
    (tmp_path / "scores.csv").write_text("image,cat\nb.jpg,0.1\nb.png,0.3\n")
    with pytest.raises(TableError, match="image 'b' has two rows of scores"):
        read_scores(tmp_path / "scores.csv", table)


def test_columns_that_are_no_class_may_hold_anything(tmp_path: Path) -> None:
    table = LabelTable(("a", "b"), ("cat",), np.array([[1], [0]]), encoding="signed")
    (tmp_path / "s.csv").write_text("image,note,cat,split\na,hello,0.5,train\nb,,,test\n")
    found = read_scores(tmp_path / "s.csv", table)
    np.testing.assert_array_equal(found.values, [[0.5], [np.nan]])


def test_scores_may_have_any_scale_but_not_be_infinite(drawn: Drawn, tmp_path: Path) -> None:
    logits = (drawn.scores - 0.5) * 1e6
    found = read_scores(write_scores(tmp_path / "s.npz", drawn.table, logits.astype(np.float64)), drawn.table)
    np.testing.assert_array_equal(found.values, logits)
    logits[7, 1] = -np.inf
    with pytest.raises(
        TableError, match=r"'shots/00007.jpg', class '猫, cat' is -inf; write a finite number"
    ):
        read_scores(write_scores(tmp_path / "s.npz", drawn.table, logits), drawn.table)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "s.csv: is empty"),
        ("image,plain\n", "s.csv: is empty"),
        ("image,plain\na,0.5,7\n", "row 1 .* has 3 columns, but the header has 2"),
        (
            "image,plain\nshots/00000.jpg,0.5\nshots/00001.jpg,high\n",
            "row 2 .*'plain': 'high' is not a number",
        ),
        (
            "image,Plain\nshots/00000.jpg,0.5\n",
            r"none of the table's classes \(such as 'Plain' \(did you mean",
        ),
        ("image,plain\nelsewhere.jpg,0.5\n", "none of the table's images"),
        ("image,plain\nshots/00000.jpg,0.5\nshots/00000.jpg,0.6\n", "has two rows of scores"),
        ("plain\n0.5\n", "no column names the image"),
        ("image,plain,plain\nshots/00000.jpg,0.5,0.5\n", "both called 'plain'"),
    ],
)
def test_a_broken_csv_is_one_sentence(text: str, message: str, drawn: Drawn, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(text)
    with pytest.raises(TableError, match=message) as error:
        read_scores(tmp_path / "s.csv", drawn.table)
    assert str(error.value).count("\n") == 0


def test_other_mistakes_name_the_file_and_the_remedy(drawn: Drawn, tmp_path: Path) -> None:
    table = drawn.table
    with pytest.raises(TableError, match="does not exist"):
        read_scores(tmp_path / "none.csv", table)
    with pytest.raises(TableError, match="is a folder"):
        read_scores(tmp_path, table)
    (tmp_path / "s.txt").write_text("x")
    with pytest.raises(TableError, match=r"not from '\.txt'"):
        read_scores(tmp_path / "s.txt", table)
    for name in ("s.npz", "s.parquet"):
        (tmp_path / name).write_bytes(b"nothing of the kind")
        with pytest.raises(TableError, match="is not a readable"):
            read_scores(tmp_path / name, table)
    np.savez(tmp_path / "a.npz", values=np.zeros((2, 2)))
    with pytest.raises(TableError, match=r"there is no array 'scores' \(arrays: 'values'\)"):
        read_scores(tmp_path / "a.npz", table)
    np.savez(tmp_path / "a.npz", scores=np.zeros((2, 3)))
    with pytest.raises(TableError, match=r"names no images and has 2 of them, but the table has 50"):
        read_scores(tmp_path / "a.npz", table)
    np.savez(tmp_path / "a.npz", scores=np.zeros((50, 3)), names=np.array([object()] * 3, dtype=object))
    with pytest.raises(TableError, match="Python objects, which are not loaded for safety"):
        read_scores(tmp_path / "a.npz", table)
    whole = write_scores(tmp_path / "b.npz", table, drawn.scores).read_bytes()
    (tmp_path / "b.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TableError, match=r"b\.npz"):
        read_scores(tmp_path / "b.npz", table)


def test_without_names_the_order_of_the_table_is_taken_and_told(drawn: Drawn, tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", scores=drawn.scores)
    found = read_scores(tmp_path / "s.npz", drawn.table)
    np.testing.assert_array_equal(found.values, drawn.scores)
    assert [note.split(":")[0] for note in found.notes] == [
        "The scores name no images",
        "The scores name no classes",
    ]


@pytest.mark.parametrize("order", ["C", "F"])
def test_one_file_may_hold_labels_as_well(order: str, drawn: Drawn, tmp_path: Path) -> None:
    labels = np.where(drawn.table.cells == 0, np.nan, (drawn.table.cells + 1) / 2)
    path = write_scores(tmp_path / "s.npz", drawn.table, np.asarray(drawn.scores, order=order), labels=labels)
    found = read_scores(path)
    opened = found.labels
    assert opened is not None
    assert opened.table == drawn.table
    assert (opened.format, opened.encoding) == ("npz", "blank")
    np.testing.assert_array_equal(found.values, drawn.scores)
    np.savez(tmp_path / "bare.npz", scores=drawn.scores, labels=drawn.table.cells)
    with pytest.raises(TableError, match="can be read in"):
        read_scores(tmp_path / "bare.npz")
    opened = read_scores(tmp_path / "bare.npz", encoding="signed").labels
    assert opened is not None
    assert opened.table.images[:2] == ("1", "2")
    assert opened.table.classes == ("class 1", "class 2", "class 3")
    np.testing.assert_array_equal(opened.table.cells, drawn.table.cells)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels": np.zeros((50, 2))}, r"of the shape \(50, 3\), not float64 \(50, 2\)"),
        ({"labels": np.full((50, 3), 7)}, "row 1 .*'7' is not a label"),
        (
            {"labels": np.zeros((50, 3)), "images": np.array(["a"] * 50)},
            "rows 1 and 2 are both about image 'a'",
        ),
        ({"labels": np.zeros((50, 3)), "names": np.array(["a"])}, "'names' must be 3 texts"),
    ],
)
def test_a_bundle_that_cannot_be_right_is_refused(
    arrays: dict[str, np.ndarray], message: str, drawn: Drawn, tmp_path: Path
) -> None:
    np.savez(tmp_path / "s.npz", scores=drawn.scores, **arrays)
    with pytest.raises(TableError, match=message):
        read_scores(tmp_path / "s.npz")


@pytest.mark.parametrize("name", ["held_out", "in_sample"])
@pytest.mark.parametrize("per_image", [False, True])
def test_a_mask_in_the_file_is_brought_into_order(
    name: str, per_image: bool, drawn: Drawn, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    mask = random.random(50) < 0.5 if per_image else random.random((50, 3)) < 0.5
    rows = random.permutation(50)
    other = drawn.table.select(rows)
    path = write_scores(tmp_path / "s.npz", other, drawn.scores[rows], **{name: mask[rows]})
    found = read_scores(path, drawn.table).held_out
    expected = np.broadcast_to(mask[:, None] if per_image else mask, (50, 3))
    np.testing.assert_array_equal(found, expected if name == "held_out" else ~expected)


def test_wrong_masks_and_folds_are_refused(drawn: Drawn, tmp_path: Path) -> None:
    def read(**arrays: np.ndarray) -> ScoreTable:
        return read_scores(write_scores(tmp_path / "s.npz", drawn.table, drawn.scores, **arrays), drawn.table)

    ones = np.ones((50, 3), dtype=np.bool_)
    with pytest.raises(TableError, match="both 'held_out' and 'in_sample'"):
        read(held_out=ones, in_sample=ones)
    with pytest.raises(TableError, match="'held_out' is float64 of shape"):
        read(held_out=np.ones((50, 3)))
    with pytest.raises(TableError, match="'fold' is int64 of shape"):
        read(fold=np.ones(3, dtype=np.int64))
    assert read(fold=np.arange(50) % 5).folds == 5

"""What holds for every table: known cells stay, shape and encoding stay, and doing it twice changes nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from completion.drawn import write_scores
from satl.completion.statistics.assessment import CompletionSettings
from satl.completion.workflow.complete import Completion, complete
from satl.completion.workflow.from_scores import case_from_scores
from satl.errors import TableError
from satl.labels import LabelTable, open_table, write_table
from satl.labels.bands import ACCEPTED, BANDS
from satl.review.merge import merge_review

FILES = (
    ("t.csv", "blank", "csv"),
    ("t.csv", "signed", "csv"),
    ("t.csv", "words", "csv"),
    ("t.tsv", "csl", "csv"),
    ("t.csv", "words", "long"),
    ("t.parquet", "csl", "parquet"),
    ("t.parquet", "signed", "long"),
    ("t.jsonl", None, "jsonl"),
    ("t.npz", "signed", "npz"),
)
NAMES = ("cat", "猫", "a, b", 'the "best"', "ünï")


@st.composite
def cases(draw: st.DrawFn) -> tuple[LabelTable, np.ndarray, tuple[str, str | None, str], CompletionSettings]:
    images, classes = draw(st.sampled_from([240, 200, 160, 120, 1])), draw(st.integers(1, 3))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    truth = np.where(random.random((images, classes)) < draw(st.sampled_from([0.5, 0.4, 0.3, 0.1])), 1, -1)
    scores = (random.normal(size=truth.shape) + draw(st.sampled_from([8, 6, 4, 3, 0])) * (truth > 0)).astype(
        np.float32
    )
    scores = np.round(scores, draw(st.sampled_from([1, 2, 6])))  # many equal scores, or none
    scores[random.random(truth.shape) < draw(st.sampled_from([0, 0.2]))] = np.nan
    scores[0] = np.where(np.isnan(scores[0]), 0, scores[0])
    cells = np.where(random.random(truth.shape) < draw(st.sampled_from([0.5, 0.6, 0.4, 0.02])), truth, 0)
    names = tuple(f"{NAMES[i % 5]} {i}.jpg" for i in range(images))
    promise = CompletionSettings(
        draw(st.sampled_from([0.5, 0.7])), 0.6, review_only=draw(st.integers(0, 9)) == 9
    )
    return (
        LabelTable(names, NAMES[:classes], cells, encoding="signed"),
        scores,
        draw(st.sampled_from(FILES)),
        promise,
    )


def completed(
    folder: Path,
    table: Path,
    scores: Path,
    encoding: str | None,
    promise: CompletionSettings,
    certify_on: Path | None = None,
) -> Completion | None:
    """Complete, or None where a table that knows nothing, or nothing absent, is refused."""
    try:
        case = case_from_scores(scores, table, encoding=encoding, certify_on=certify_on)
        return complete(case, folder, promise, list_all=True)
    except TableError:
        assert not folder.exists()
        return None


@settings(max_examples=40, deadline=None)
@given(cases())
def test_known_cells_stay_and_doing_it_again_changes_nothing(
    drawn: tuple[LabelTable, np.ndarray, tuple[str, str | None, str], CompletionSettings],
) -> None:
    table, scores, (name, encoding, format), promise = drawn
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_table(table, folder / name, encoding, format=format)
        asked = encoding if name.endswith((".csv", ".tsv")) else None
        score_file = write_scores(folder / "s.npz", table, scores)
        done = completed(folder / "out", folder / name, score_file, asked, promise)
        if done is None:
            assert not (table.cells == -1).any()
            return
        after = open_table(done.folder.completed, asked)
        assert (after.format, after.encoding) == (format, encoding)
        assert (after.table.images, after.table.classes) == (table.images, table.classes)
        np.testing.assert_array_equal(after.table.cells[table.known], table.cells[table.known])
        check_changes(done, table, after.table, scores)

        event(f"accepted: {done.present + done.absent > 0}, refused or none left: {done.left == 0}")
        # The accepted cells are written back, and the table is completed on the same evidence as before.
        if done.present + done.absent == 0:
            return
        merge_review(
            done.folder.path, folder / name, folder / f"new{name[1:]}", encoding=asked, include_accepted=True
        )
        merged = open_table(folder / f"new{name[1:]}", asked).table
        np.testing.assert_array_equal(merged.cells, after.table.cells)
        again = completed(
            folder / "again", folder / f"new{name[1:]}", score_file, asked, promise, done.folder.labels
        )
        assert again is not None
        assert (again.present, again.absent, again.review, again.left) == (0, 0, done.review, done.left)
        np.testing.assert_array_equal(open_table(again.folder.completed, asked).table.cells, merged.cells)


def check_changes(done: Completion, table: LabelTable, after: LabelTable, scores: np.ndarray) -> None:
    """Every change is listed once, and everything that is listed as accepted is a change."""
    accepted = np.zeros(table.cells.shape, dtype=np.int8)
    listed = np.zeros(table.cells.shape, dtype=np.int64)
    for block in done.folder.read_changes(table):
        rows, columns = block.row, block.column
        np.add.at(listed, (rows, columns), 1)
        np.testing.assert_allclose(block.score, scores[rows, columns], atol=1e-6)
        filled = block.band == BANDS.index(ACCEPTED)
        accepted[rows[filled], columns[filled]] = block.value[filled]
    np.testing.assert_array_equal(after.cells, table.cells + accepted)
    unknown = ~table.known & ~np.isnan(scores)
    assert (listed[unknown] == 1).all()
    assert listed.max() <= 1

"""Decisions are applied to a table in one place, by one rule."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from satl.errors import TableError
from satl.labels import LabelTable
from satl.labels.decisions import Decisions, apply_decisions

IMAGES, CLASSES = ("a.jpg", "b.jpg", "c.jpg"), ("cat", "dog")
cells = st.lists(st.sampled_from([-1, 0, 1]), min_size=6, max_size=6).map(lambda c: np.array(c).reshape(3, 2))


@given(cells, cells, st.sampled_from(["refuse", "replace", "keep"]))
def test_every_cell_is_written_counted_or_refused(
    before: np.ndarray, said: np.ndarray, conflicts: str
) -> None:
    table = LabelTable(IMAGES, CLASSES, before, encoding="signed")
    decisions = Decisions.of_table(table, LabelTable(IMAGES, CLASSES, said, encoding="signed"))
    clash = (before * said == -1).sum()
    if conflicts == "refuse" and clash:
        with pytest.raises(TableError, match="is known to be"):
            apply_decisions(table, decisions)
        return
    new, counts = apply_decisions(table, decisions, conflicts=conflicts)  # type: ignore[arg-type]
    first, second = (before, said) if conflicts == "keep" else (said, before)
    np.testing.assert_array_equal(new.cells, np.where(first != 0, first, second))
    assert (counts.present, counts.absent) == tuple(((before == 0) & (said == v)).sum() for v in (1, -1))
    assert counts.confirmed == ((before == said) & (said != 0)).sum()
    assert (counts.overwritten, counts.kept) == {
        "refuse": (0, 0),
        "replace": (clash, 0),
        "keep": (0, clash),
    }[conflicts]
    np.testing.assert_array_equal(table.cells, before)


def test_decisions_about_other_cells_are_counted_and_left_out() -> None:
    table = LabelTable(IMAGES, CLASSES, np.zeros((3, 2)), encoding="signed")
    decisions = Decisions.by_name(table, ["b", "x.jpg", "a.jpg"], ["cat", "dog", "cow"], [1, 1, -1])
    assert (decisions.rows.tolist(), decisions.columns.tolist(), decisions.values.tolist()) == ([1], [0], [1])
    assert (decisions.elsewhere, decisions.first_elsewhere) == (2, ("x.jpg", "dog"))
    decisions.require_some("t.csv", "out", "choose another table")
    none = Decisions.by_name(table, ["x.jpg"], ["dog"], [1])
    with pytest.raises(
        TableError, match=r"t\.csv: has none of the cells decided in out .*'x\.jpg', class 'dog'"
    ):
        none.require_some("t.csv", "out", "choose another table")
    Decisions.by_name(table, [], [], []).require_some("t.csv", "out", "choose another table")


def test_decisions_that_contradict_each_other_are_refused() -> None:
    table = LabelTable(IMAGES, CLASSES, np.zeros((3, 2)), encoding="signed")
    decisions = Decisions.by_name(table, ["b.jpg", "a", "a.jpg"], ["cat"] * 3, [1, 1, -1])
    with pytest.raises(
        TableError, match=r"'a\.jpg' \(row 1\), class 'cat' is both present and absent in the file"
    ):
        apply_decisions(table, decisions, origin="the file")

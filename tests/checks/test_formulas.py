"""Names that a spreadsheet takes for formulas are written as they are, and told, by everything that writes CSV."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import satl
from satl.completion.outputs import hand_labels
from satl.errors import SatlWarning
from satl.evaluation import evaluate_scores
from satl.experiments.results import Results
from satl.export.content import Source
from satl.export.writing import export
from satl.images.broken_list import write_broken
from satl.inference.decision_thresholds import DecisionThresholds
from satl.inference.prediction import write_predictions
from satl.inference.threshold_files import write_rule_thresholds
from satl.labels import LabelTable, read_table, write_table
from satl.runs.run_folder import RunFolder
from satl.thresholds.application import ClassThreshold


@pytest.mark.parametrize("name", ["=1+1", "+x", "-x", "@x", "\uff1d1+1", "a;=1+1", "a; @x"])
@pytest.mark.parametrize(
    ("ending", "told"), [("csv", True), ("tsv", True), ("npz", False), ("parquet", False)]
)
def test_names_that_begin_like_a_formula(name: str, ending: str, told: bool, tmp_path: Path) -> None:
    file = tmp_path / f"table.{ending}"
    for table in (
        LabelTable((name, "b"), ("cat", "dog"), np.array([[1, 0], [-1, 1]])),
        LabelTable(("a", "b"), ("cat", name), np.array([[1, 0], [-1, 1]])),
    ):
        if told:
            with pytest.warns(
                SatlWarning, match=rf"table\.{ending}: 1 name\(s\), such as .* begin like a formula"
            ):
                write_table(table, file)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                write_table(table, file)
        assert read_table(file).classes == table.classes


def test_a_comma_divides_a_name_only_where_it_is_not_quoted(tmp_path: Path) -> None:
    """In a TSV file a comma is written as it is, and some spreadsheets begin a cell behind it."""
    table = LabelTable(("a,=1+1", "b"), ("cat", "dog"), np.array([[1, 0], [-1, 1]]))
    with pytest.warns(SatlWarning, match="begin like a formula"):
        write_table(table, tmp_path / "table.tsv")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_table(table, tmp_path / "table.csv")


def test_other_names_are_nothing_to_tell(tmp_path: Path) -> None:
    table = LabelTable(("a=1", "b"), ("c-d", "1"), np.array([[1, 0], [-1, 1]]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_table(table, tmp_path / "table.csv")


SOURCE = Path(satl.__file__).parent
TOLD_BY = {
    "completion/outputs/changes.py": "completion/workflow/complete.py",
    "completion/outputs/report_files.py": "completion/workflow/complete.py",
    "labels/io/long.py": "labels/io/__init__.py",
    "labels/io/positives.py": "labels/io/__init__.py",
    "labels/io/wide_csv.py": "labels/io/__init__.py",
    "export/plain_tables.py": "export/writing.py",
}
"""Modules that write rows for another one, which knows the name of the file and tells."""


def _called(module: Path) -> set[str]:
    """The names of the functions that a module calls."""
    calls = [node.func for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Call)]
    names = {node.attr for node in calls if isinstance(node, ast.Attribute)}
    return names | {node.id for node in calls if isinstance(node, ast.Name)}


def test_every_writer_of_csv_tells() -> None:
    """A module that writes CSV tells of formulas, or another one that is named here does."""
    writing = {
        module.relative_to(SOURCE).as_posix()
        for module in SOURCE.rglob("*.py")
        if _called(module) & {"writer", "DictWriter", "csv_field", "to_csv", "savetxt"}
    }
    assert len(writing) > 10
    assert set(TOLD_BY) <= writing
    for module in writing:
        assert "warn_of_formulas" in _called(SOURCE / TOLD_BY.get(module, module)), module


NAME = "=1+1"


def _evaluation(file: Path) -> None:
    evaluate_scores(np.array([[0.2], [0.7]]), np.array([[-1], [1]]), [NAME]).write_csv(file)


def _results(file: Path) -> None:
    Results([{"method": "sst", "variant": NAME, "status": "failed"}]).write_csv(file)


def _broken(file: Path) -> None:
    write_broken(file, [(NAME, "is no image")])


def _predictions(file: Path) -> None:
    thresholds = DecisionThresholds(np.array([0.5]), "fixed")
    write_predictions(file, thresholds)([NAME], ["cat"], np.array([[0.5]]))


def _rule_thresholds(file: Path) -> None:
    numbers = dict.fromkeys((field.name for field in fields(ClassThreshold)), 0.5)
    write_rule_thresholds(file, "learned", [ClassThreshold(**{**numbers, "name": NAME})])


def _run_thresholds(file: Path) -> None:
    RunFolder(file.parent).write_thresholds(("class", "threshold"), [(NAME, 0.5)])


def _cells_to_label(file: Path) -> None:
    hand_labels._write(file, hand_labels.AUDIT_COLUMNS, [("a.png", NAME, "", "1")])


def _export(file: Path) -> None:
    table = LabelTable((NAME, "b"), ("cat", "dog"), np.array([[1, 0], [-1, 1]]))
    export(Source(table), "long", file)


@pytest.mark.parametrize(
    "write",
    [
        *(_evaluation, _results, _broken, _predictions, _rule_thresholds, _run_thresholds),
        *(_cells_to_label, _export),
    ],
)
def test_each_of_them_tells(write: Callable[[Path], None], tmp_path: Path) -> None:
    with pytest.warns(
        SatlWarning, match=r"thresholds\.csv: 1 name\(s\), such as '=1\+1', begin like a formula"
    ):
        write(tmp_path / "thresholds.csv")
    assert NAME in (tmp_path / "thresholds.csv").read_text()  # as it is: whoever reads it finds the same name

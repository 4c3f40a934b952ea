"""Every writer's output is read back equal by its reader, known cells and suggestions apart."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from export.drawn import sources
from satl.errors import TableError
from satl.export import TOOLS, Source, Suggestions, export, read_export
from satl.labels import LabelTable

FILES = {
    "label-studio": "tasks.json",
    "fiftyone": "labels.json",
    "cvat": "annotations.xml",
    "huggingface": "metadata.jsonl",
    "coco": "labels.json",
    "wide": "table.csv",
    "long": "table.csv",
}
CASES = [*FILES.items(), ("wide", "table.parquet"), ("long", "table.parquet"), ("long", "table.tsv")]


def test_every_format_is_tested() -> None:
    assert set(FILES) == set(TOOLS)


def same_label_twice(source: Source) -> bool:
    """Whether a label of CVAT would be read as something else than it was written for."""
    said = set() if source.suggestions is None else set(source.suggestions.values.tolist())
    prefixes = ["", "not ", *(["maybe "] if 1 in said else []), *(["maybe not "] if -1 in said else [])]
    labels = {prefix + name for name in source.table.classes for prefix in prefixes}

    def read_as(label: str) -> str:
        words = ("maybe not ", "maybe ", "not ")
        rests = (label.removeprefix(word) for word in words if label.startswith(word))
        return next((rest for rest in rests if rest in labels), label)

    return any(read_as(prefix + name) != name for name in source.table.classes for prefix in prefixes)


@pytest.mark.parametrize(("format", "name"), CASES)
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(source=sources())
def test_round_trip(format: str, name: str, source: Source) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        if format == "cvat" and same_label_twice(source):
            with pytest.raises(TableError, match="differ by 'not' or 'maybe'"):
                export(source, format, path)
            assert list(Path(folder).iterdir()) == []
            return
        files = export(source, format, path)
        assert sorted(files) == sorted(Path(folder).iterdir())
        assert files[0] == path
        back = read_export(path, format)
        assert back.table == source.table
        assert back.suggestions == (source.suggestions or Suggestions.of(()))
        before = {file: hashlib.sha256(file.read_bytes()).digest() for file in files}
        again = export(source, format, path, force=True)
        assert {file: hashlib.sha256(file.read_bytes()).digest() for file in again} == before


@pytest.mark.parametrize(("format", "name"), CASES)
def test_suggestions_never_become_known(format: str, name: str, tmp_path: Path) -> None:
    table = LabelTable(("a.jpg", "b.jpg"), ("cat", "dog"), np.array([[0, 0], [1, 0]]), encoding="signed")
    proposed = Suggestions.of(
        [(0, 0, 1, 0.99, 0), (0, 1, -1, 0.01, 0), (1, 0, -1, 0.2, 1), (1, 1, 1, 0.6, 1)]
    )
    export(Source(table, proposed), format, tmp_path / name)
    back = read_export(tmp_path / name, format)
    assert back.table == table
    assert back.suggestions == proposed


@pytest.mark.parametrize(("format", "name"), CASES)
def test_a_large_table_comes_back_and_nothing_depends_on_the_blocks(
    format: str, name: str, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    table = LabelTable(
        tuple(f"{i}.jpg" for i in range(5000)), ("a", "b", "c"), random.integers(-1, 2, (5000, 3))
    )
    rows, columns = np.nonzero(random.random((5000, 3)) < 0.3)
    values = np.where(random.random(len(rows)) < 0.5, 1, -1).astype(np.int8)
    bands = random.integers(0, 2, len(rows)).astype(np.uint8)
    proposed = Suggestions(rows, columns, values, np.round(random.random(len(rows)), 6), bands)
    export(Source(table, proposed), format, tmp_path / name)
    back = read_export(tmp_path / name, format)
    assert back.table == table
    assert back.suggestions == proposed

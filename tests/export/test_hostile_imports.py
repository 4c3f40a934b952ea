"""Files of other tools that are damaged or made up end in a sentence."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fuzz.targets.registry import CORPUS
from satl.errors import TableError
from satl.export.importing import read_export

CODES = ("UTF-7", "UTF-32", "nonsense", "rot13")


def copied(tool: str, place: Path) -> Path:
    return Path(shutil.copytree(CORPUS / tool, place / tool))


@pytest.mark.parametrize("code", CODES)
def test_cvat_in_another_encoding(code: str, tmp_path: Path) -> None:
    file = copied("cvat", tmp_path) / "tasks.xml"
    body = file.read_text().partition("?>")[2]
    file.write_text(f'<?xml version="1.0" encoding="{code}"?>{body}')
    with pytest.raises(TableError, match=r"tasks\.xml is not a complete XML file"):
        read_export(file, "cvat")


@pytest.mark.parametrize("code", CODES)
def test_a_labelling_config_in_another_encoding(code: str, tmp_path: Path) -> None:
    folder = copied("label-studio", tmp_path)
    (folder / "tasks.xml").write_text(f'<?xml version="1.0" encoding="{code}"?><View/>')
    with pytest.raises(TableError, match=r"tasks\.xml is not a labelling config"):
        read_export(folder / "tasks.json", "label-studio")


HOSTILE = ("9" * 5000, "[" * 100_000, '"\\ud800"')


@pytest.mark.parametrize("value", HOSTILE)
def test_label_studio_tasks(value: str, tmp_path: Path) -> None:
    (tmp_path / "tasks.json").write_text(f'[{{"data": {{"image": {value}}}}}]')
    with pytest.raises(TableError, match=r"tasks\.json"):
        read_export(tmp_path / "tasks.json", "label-studio")


@pytest.mark.parametrize("value", HOSTILE)
def test_hugging_face_lines(value: str, tmp_path: Path) -> None:
    (tmp_path / "metadata.jsonl").write_text(f'{{"file_name": {value}, "positive": ["a"]}}\n')
    with pytest.raises(TableError, match=r"metadata\.jsonl: line 1 is not JSON"):
        read_export(tmp_path / "metadata.jsonl", "huggingface")


def test_a_score_of_hundreds_of_digits(tmp_path: Path) -> None:
    said = '{"label": "a", "value": 1, "score": ' + "9" * 400 + ', "band": "review"}'
    (tmp_path / "metadata.jsonl").write_text(
        f'{{"file_name": "a.jpg", "positive": ["a"], "predictions": [{said}]}}\n'
    )
    with pytest.raises(TableError, match="suggests value"):
        read_export(tmp_path / "metadata.jsonl", "huggingface")


@pytest.mark.parametrize("value", HOSTILE)
def test_hugging_face_classes(value: str, tmp_path: Path) -> None:
    folder = copied("huggingface", tmp_path)
    (folder / "metadata.classes.json").write_text(f'{{"classes": [{value}]}}')
    with pytest.raises(TableError, match=r"metadata\.classes\.json"):
        read_export(folder / "metadata.jsonl", "huggingface")


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize(
    "column", [pa.array([[1], [2]]), pa.array([None, None]), pa.array([float("inf")] * 2)]
)
def test_suggestions_of_other_kinds(place: int, column: pa.Array, tmp_path: Path) -> None:
    folder = copied("long", tmp_path)
    file = folder / "labels.suggestions.parquet"
    table = pq.read_table(file)
    columns = list(table.columns)
    columns[place] = column
    pq.write_table(pa.table(columns, names=table.column_names), file)
    with pytest.raises(TableError, match=r"labels\.suggestions\.parquet"):
        read_export(folder / "labels.parquet", "long")

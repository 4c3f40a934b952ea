"""Every kind of file is read by ``satl thresholds`` and ``satl complete`` alike."""

from __future__ import annotations

import contextlib
import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from completion.drawn import Drawn, write_scores
from satl.cli import main
from satl.scores import read_scores
from satl.scores.prediction_folder import MANIFEST, part_file
from satl.scores.score_reader import READERS

NAMES = ("plain", "猫, cat", 'the "best"')


def _wide(drawn: Drawn) -> dict[str, Any]:
    return {"image": list(drawn.table.images), **dict(zip(NAMES, drawn.scores.T, strict=True))}


def _long(drawn: Drawn, score: str) -> dict[str, Any]:
    rows, columns = np.indices(drawn.scores.shape).reshape(2, -1)
    return {
        "image": [drawn.table.images[row] for row in rows],
        "label": [NAMES[column] for column in columns],
        score: drawn.scores.ravel(),
    }


def _text(path: Path, columns: dict[str, Any], delimiter: str = ",") -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, delimiter=delimiter)
        writer.writerow(columns)
        writer.writerows(zip(*(list(column) for column in columns.values()), strict=True))


def _arrow(path: Path, columns: dict[str, Any]) -> None:
    table = pa.table(columns)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)


def _folder(path: Path, drawn: Drawn) -> None:
    path.mkdir()
    half = len(drawn.scores) // 2
    for number, rows in enumerate((slice(0, half), slice(half, None))):
        columns = {name: column[rows] for name, column in _wide(drawn).items()}
        columns["present"] = [[] for _ in columns["image"]]
        pyarrow.parquet.write_table(pa.table(columns), part_file(path, number))
    manifest = {"images": len(drawn.scores), "part_size": half}
    (path / MANIFEST).write_text(json.dumps(manifest))


KINDS: dict[str, Callable[[Path, Drawn], object]] = {
    "wide.csv": lambda path, drawn: _text(path, _wide(drawn)),
    "wide.tsv": lambda path, drawn: _text(path, _wide(drawn), "\t"),
    "long.csv": lambda path, drawn: _text(path, _long(drawn, "probability")),
    "wide.parquet": lambda path, drawn: pyarrow.parquet.write_table(pa.table(_wide(drawn)), path),
    "long.pq": lambda path, drawn: pyarrow.parquet.write_table(pa.table(_long(drawn, "score")), path),
    "wide.arrow": lambda path, drawn: _arrow(path, _wide(drawn)),
    "long.feather": lambda path, drawn: _arrow(path, _long(drawn, "score")),
    "named.npz": lambda path, drawn: write_scores(path, drawn.table, drawn.scores),
    "other.npz": lambda path, drawn: np.savez(
        path, probabilities=drawn.scores, ids=np.array(drawn.table.images), class_names=np.array(NAMES)
    ),
    "bare.npz": lambda path, drawn: np.savez(path, scores=drawn.scores),
    "folder": _folder,
}


@pytest.mark.parametrize("kind", KINDS)
def test_both_commands_read_the_same_numbers(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from satl.completion.workflow import complete as completing
    from satl.thresholds import application

    drawn = Drawn(60, NAMES)
    KINDS[kind](tmp_path / kind, drawn)
    labels, _ = drawn.write(tmp_path)
    found: dict[str, np.ndarray] = {}

    def seen(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(first: Any, *others: Any, **options: Any) -> Any:
            found[name] = np.array(first.scores if name == "complete" else others[0])
            return original(first, *others, **options)

        return call

    monkeypatch.setattr(completing, "complete", seen("complete", completing.complete))
    monkeypatch.setattr(application, "apply_rule", seen("thresholds", application.apply_rule))
    options = ("--scores", tmp_path / kind, "--labels", labels)
    _run(monkeypatch, "thresholds", *options, "--rule", "fixed")
    _run(monkeypatch, "complete", *options, "-o", tmp_path / "out", "--review-only")
    for name in ("thresholds", "complete"):
        np.testing.assert_array_equal(found[name], drawn.scores)
        assert found[name].dtype == np.float32


def test_scores_without_names_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = Drawn(60, NAMES)
    KINDS["bare.npz"](tmp_path / "s.npz", drawn)
    labels, _ = drawn.write(tmp_path)
    options = ("--scores", tmp_path / "s.npz", "--labels", labels)
    _run(monkeypatch, "thresholds", *options, "--rule", "fixed")
    _run(monkeypatch, "complete", *options, "-o", tmp_path / "out", "--review-only")
    printed = capsys.readouterr().out
    assert printed.count("cores name no images: ") == printed.count("cores name no classes: ") == 2


def test_every_reader_is_among_the_kinds(tmp_path: Path) -> None:
    drawn = Drawn(60, NAMES)
    used = set()
    for kind, write in KINDS.items():
        write(tmp_path / kind, drawn)
        np.testing.assert_array_equal(read_scores(tmp_path / kind).values, drawn.scores)
        used |= {name for name, reader in READERS.items() if reader.reads(tmp_path / kind)}
    assert used == set(READERS)


def _run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["satl", *map(str, arguments)])
    with contextlib.suppress(SystemExit):
        main()

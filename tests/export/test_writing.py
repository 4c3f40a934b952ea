"""An export appears completely or not at all, and overwrites nothing by accident."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from satl.errors import ConfigError, TableError
from satl.export import TOOLS, Source, Suggestions, export, read_export, register_tool
from satl.export.registry import MAIN
from satl.labels import LabelTable

TABLE = LabelTable(("a.jpg", "b.jpg"), ("cat", "dog"), np.array([[1, -1], [0, 0]]))
PROPOSED = Suggestions.of([(1, 0, 1, 0.9, 0), (1, 1, -1, 0.1, 1)])


def test_nothing_is_overwritten_without_force(tmp_path: Path) -> None:
    export(Source(TABLE, PROPOSED), "coco", tmp_path / "l.json")
    (tmp_path / "l.json").unlink()
    # The file beside it counts as well.
    with pytest.raises(TableError, match=r"predictions\.l\.json: exists already; .*force=True"):
        export(Source(TABLE), "coco", tmp_path / "l.json")
    assert not (tmp_path / "l.json").exists()


def test_force_removes_what_no_longer_belongs_to_the_export(tmp_path: Path) -> None:
    export(Source(TABLE, PROPOSED), "fiftyone", tmp_path / "l.json")
    assert len(list(tmp_path.iterdir())) == 4
    only_present = TABLE.with_cells(np.abs(TABLE.cells), encoding="signed")
    assert export(Source(only_present), "fiftyone", tmp_path / "l.json", force=True) == (tmp_path / "l.json",)
    assert [file.name for file in tmp_path.iterdir()] == ["l.json"]
    back = read_export(tmp_path / "l.json", "fiftyone")
    assert (back.table, len(back.suggestions)) == (only_present, 0)


def test_a_failure_leaves_nothing_and_keeps_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(source: Source, files: dict[str, Path]) -> None:
        files[MAIN].write_text("half")
        raise OSError(28, "No space left on device")

    for format in TOOLS:
        name = {"cvat": "x.xml", "huggingface": "x.jsonl", "wide": "x.csv", "long": "x.csv"}.get(
            format, "x.json"
        )
        folder = tmp_path / format
        export(Source(TABLE), format, folder / name)
        before = {file: file.read_bytes() for file in folder.iterdir()}
        with monkeypatch.context() as patch:
            patch.setitem(TOOLS, format, replace(TOOLS[format], write=broken))
            with pytest.raises(TableError, match=r"cannot be written \(No space left on device\)"):
                export(Source(TABLE, PROPOSED), format, folder / name, force=True)
        assert {file: file.read_bytes() for file in folder.iterdir()} == before


def test_wrong_targets(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"format='cvta': is not a format \(did you mean 'cvat'\?\); choose one of"
    ):
        export(Source(TABLE), "cvta", tmp_path / "x.xml")
    with pytest.raises(ConfigError, match=r"x\.csv: format 'coco' is for \.json files"):
        export(Source(TABLE), "coco", tmp_path / "x.csv")
    (tmp_path / "x.json").mkdir()
    with pytest.raises(TableError, match=r"x\.json: is a folder"):
        export(Source(TABLE), "coco", tmp_path / "x.json", force=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(TableError, match="cannot be written"):
        export(Source(TABLE), "coco", tmp_path / "file" / "x.json")
    with pytest.raises(ValueError, match="exists already"):
        register_tool(TOOLS["coco"])


def test_reading_what_is_not_there(tmp_path: Path) -> None:
    export(Source(TABLE), "coco", tmp_path / "labels.json")
    with pytest.raises(TableError, match=r"lables\.json does not exist \(did you mean 'labels\.json'\?\)"):
        read_export(tmp_path / "lables.json", "coco")
    (tmp_path / "x.xml").mkdir()
    with pytest.raises(TableError, match=r"x\.xml is a folder"):
        read_export(tmp_path / "x.xml", "cvat")


@pytest.mark.parametrize(("format", "name"), [("cvat", "x.xml"), ("label-studio", "x.json")])
def test_names_that_xml_cannot_hold_are_refused(format: str, name: str, tmp_path: Path) -> None:
    table = LabelTable(("a.jpg",), ("cat\ufffe",), np.array([[1]]), encoding="signed")
    with pytest.raises(
        TableError, match=r"x\.\w+: the class 'cat\\ufffe' has a character that XML cannot hold"
    ):
        export(Source(table), format, tmp_path / name)
    assert list(tmp_path.iterdir()) == []

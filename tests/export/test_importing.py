"""Decisions come back into a table: in its own shape, and without touching what is known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from satl.errors import ConfigError, TableError
from satl.export import Source, Suggestions, export, import_file
from satl.labels import LabelTable, open_table, read_table, write_table

TABLE = LabelTable(
    ("a.jpg", "b.jpg", "c.jpg"),
    ("cat", "dog"),
    np.array([[1, -1], [0, 0], [0, 1]]),
    np.array(["t", "t", "v"]),
)


def decisions(folder: Path, cells: object, images: tuple[str, ...] = TABLE.images) -> Path:
    """A long table of decisions, as any tool or script may write it."""
    file = folder / "decided.csv"
    write_table(LabelTable(images, TABLE.classes, np.array(cells), encoding="signed"), file, format="long")
    return file


def test_without_a_table_the_file_says_all(tmp_path: Path) -> None:
    export(Source(TABLE, Suggestions.of([(1, 0, 1, 0.9, 0)])), "cvat", tmp_path / "a.xml")
    report = import_file(tmp_path / "a.xml", "cvat", tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet") == TABLE
    assert (report.present, report.absent, report.suggestions) == (2, 1, 1)
    assert (report.known, report.cells, report.files) == (3, 6, (tmp_path / "t.parquet",))


def test_onto_a_table_keeps_its_shape_and_encoding(tmp_path: Path) -> None:
    write_table(TABLE, tmp_path / "t.csv", "csl")
    file = decisions(tmp_path, [[1, 0], [-1, 1], [0, 0]])
    report = import_file(file, "long", tmp_path / "new.csv", onto=tmp_path / "t.csv", encoding="csl")
    opened = open_table(tmp_path / "new.csv", "csl")
    assert opened.format == "csv"
    assert opened.table == TABLE.with_cells([[1, -1], [-1, 1], [0, 1]])
    assert (report.present, report.absent, report.confirmed, report.overwritten) == (1, 1, 1, 0)
    # Another extension is written as it reads back by itself.
    import_file(file, "long", tmp_path / "new.jsonl", onto=tmp_path / "t.csv", encoding="csl")
    assert read_table(tmp_path / "new.jsonl") == opened.table
    write_table(TABLE, tmp_path / "long.csv", format="long")
    import_file(file, "long", tmp_path / "still-long.csv", onto=tmp_path / "long.csv")
    assert open_table(tmp_path / "still-long.csv").format == "long"


def test_columns_that_are_no_classes_can_be_passed_over(tmp_path: Path) -> None:
    write_table(TABLE, tmp_path / "t.csv")
    head, *lines = (tmp_path / "t.csv").read_text().splitlines()
    (tmp_path / "t.csv").write_text("\n".join([f"{head},Age", *(f"{line},40" for line in lines)]) + "\n")
    file = decisions(tmp_path, [[1, 0], [-1, 1], [0, 0]])
    with pytest.raises(TableError, match="ignore_columns='Age'"):
        import_file(file, "long", tmp_path / "new.csv", onto=tmp_path / "t.csv")
    import_file(file, "long", tmp_path / "new.csv", onto=tmp_path / "t.csv", ignore_columns=["Age"])
    assert read_table(tmp_path / "new.csv") == TABLE.with_cells([[1, -1], [-1, 1], [0, 1]])


def test_known_cells_are_overwritten_only_when_asked(tmp_path: Path) -> None:
    write_table(TABLE, tmp_path / "t.csv")
    file = decisions(tmp_path, [[-1, 1], [0, 0], [0, 1]])
    with pytest.raises(
        TableError,
        match=r"image 'a\.jpg' \(row 1\), class 'cat' is known to be present, but .*decided\.csv says absent "
        r"\(and 1 more cell\); pass replace_known=True",
    ):
        import_file(file, "long", tmp_path / "new.csv", onto=tmp_path / "t.csv")
    assert not (tmp_path / "new.csv").exists()
    report = import_file(file, "long", tmp_path / "new.csv", onto=tmp_path / "t.csv", replace_known=True)
    assert (report.overwritten, report.confirmed) == (2, 1)
    assert read_table(tmp_path / "new.csv").cells.tolist() == [[-1, 1], [0, 0], [0, 1]]


def test_other_images_and_classes_are_counted(tmp_path: Path) -> None:
    write_table(TABLE, tmp_path / "t.csv")
    file = decisions(tmp_path, [[0, 1], [1, 1]], ("z.jpg", "b.jpg"))
    report = import_file(file, "long", tmp_path / "new.csv", onto=tmp_path / "t.csv")
    assert (report.present, report.elsewhere, report.first_elsewhere) == (2, 1, ("z.jpg", "dog"))
    assert read_table(tmp_path / "new.csv").cells[1].tolist() == [1, 1]
    file = decisions(tmp_path, [[0, 1]], ("z.jpg",))
    with pytest.raises(
        TableError,
        match=r"t\.csv: has none of the cells decided .*'z\.jpg', class 'dog'.*give onto the table",
    ):
        import_file(file, "long", tmp_path / "no.csv", onto=tmp_path / "t.csv")


def test_images_are_known_by_their_name_without_extension(tmp_path: Path) -> None:
    write_table(TABLE, tmp_path / "t.csv")
    # As FiftyOne exports: no extension, the classes as text.
    (tmp_path / "l.json").write_text(json.dumps({"labels": {"b": ["dog"], "c": None}}))
    import_file(tmp_path / "l.json", "fiftyone", tmp_path / "new.csv", onto=tmp_path / "t.csv")
    assert read_table(tmp_path / "new.csv").cells.tolist() == [[1, -1], [0, 1], [0, 1]]
    file = decisions(tmp_path, [[0, 1], [1, 1]], ("b", "b.jpg"))
    with pytest.raises(TableError, match=r"'b' and 'b\.jpg' may both be image 'b\.jpg'"):
        import_file(file, "long", tmp_path / "no.csv", onto=tmp_path / "t.csv")


def test_a_number_behind_a_dot_belongs_to_the_name(tmp_path: Path) -> None:
    images = ("scan", "scan.1", "other")
    write_table(
        LabelTable(images, TABLE.classes, np.zeros((3, 2), dtype=np.int8), encoding="signed"),
        tmp_path / "t.csv",
    )
    file = decisions(tmp_path, [[1, 0], [0, 1]], ("scan.1", "other.7"))
    report = import_file(file, "long", tmp_path / "new.csv", onto=tmp_path / "t.csv", encoding="blank")
    assert (report.present, report.first_elsewhere) == (1, ("other.7", "dog"))
    assert read_table(tmp_path / "new.csv", "blank").cells.tolist() == [[0, 0], [1, 0], [0, 0]]


def test_boxes_left_alone_are_absent_only_if_somebody_looked_and_the_user_says_so(tmp_path: Path) -> None:
    write_table(TABLE, tmp_path / "t.csv")
    export(Source(TABLE), "label-studio", tmp_path / "tasks.json")
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    tick = {
        "id": "r1",
        "from_name": "present",
        "to_name": "image",
        "type": "choices",
        "value": {"choices": ["cat"]},
    }
    tasks[1]["annotations"] = [{"result": [tick], "lead_time": 4.1}]
    (tmp_path / "back.json").write_text(json.dumps(tasks))
    back, onto = tmp_path / "back.json", tmp_path / "t.csv"
    report = import_file(back, "label-studio", tmp_path / "1.csv", onto=onto)
    assert read_table(tmp_path / "1.csv").cells.tolist() == [[1, -1], [1, 0], [0, 1]]
    assert (report.present, report.absent, report.unticked) == (1, 0, 0)
    report = import_file(back, "label-studio", tmp_path / "2.csv", onto=onto, unticked="absent")
    # The third image was not looked at, so its unknown cell stays unknown.
    assert read_table(tmp_path / "2.csv").cells.tolist() == [[1, -1], [1, -1], [0, 1]]
    assert (report.present, report.absent, report.unticked) == (1, 1, 1)
    # A box left alone never contradicts what is known.
    tasks[2]["annotations"] = [{"result": [], "lead_time": 1.0}]
    back.write_text(json.dumps(tasks))
    import_file(back, "label-studio", tmp_path / "4.csv", onto=onto, unticked="absent")
    assert read_table(tmp_path / "4.csv", "complete").cells.tolist() == [[1, -1], [1, -1], [-1, 1]]
    with pytest.raises(ConfigError, match="format 'long' does not say which images a person looked at"):
        import_file(
            decisions(tmp_path, TABLE.cells), "long", tmp_path / "3.csv", onto=onto, unticked="absent"
        )


def test_the_truth_beside_the_table_is_not_overwritten_without_being_told(tmp_path: Path) -> None:
    onto, truth = tmp_path / "t.npz", tmp_path / "n.truth.csv"
    write_table(TABLE.with_truth(TABLE.cells, encoding="signed"), onto)
    file = decisions(tmp_path, TABLE.cells)
    truth.write_text("precious")
    with pytest.raises(TableError, match=r"n\.truth\.csv: exists already; .*force=True"):
        import_file(file, "long", tmp_path / "n.csv", onto=onto)
    assert truth.read_text() == "precious"
    assert not (tmp_path / "n.csv").exists()
    import_file(file, "long", tmp_path / "n.csv", onto=onto, force=True)
    assert read_table(truth).cells.tolist() == TABLE.cells.tolist()


def test_wrong_uses(tmp_path: Path) -> None:
    write_table(TABLE, tmp_path / "t.csv")
    file = decisions(tmp_path, [[0, 0], [1, 0], [0, 0]])
    with pytest.raises(TableError, match=r"t\.csv: exists already; .*force=True"):
        import_file(file, "long", tmp_path / "t.csv")
    for onto, out in ((None, file), (tmp_path / "t.csv", tmp_path / "t.csv")):
        with pytest.raises(TableError, match="belongs to the inputs of this command"):
            import_file(file, "long", out, onto=onto, force=True)
    with pytest.raises(TableError, match="is a folder: name the file"):
        import_file(file, "long", tmp_path, force=True)
    with pytest.raises(ConfigError, match=r"unticked='absnet': .*did you mean 'absent'"):
        import_file(file, "long", tmp_path / "n.csv", unticked="absnet")
    with pytest.raises(TableError, match="satl writes"):
        import_file(file, "long", tmp_path / "n.ods")
    file = decisions(tmp_path, np.zeros((3, 2)))
    with pytest.raises(TableError, match=r"decided\.csv: holds no decision of a person"):
        import_file(file, "long", tmp_path / "n.csv")
    assert not (tmp_path / "n.csv").exists()
    import_file(decisions(tmp_path, TABLE.cells), "long", tmp_path / "t.csv", force=True)
    assert np.array_equal(read_table(tmp_path / "t.csv").cells, TABLE.cells)

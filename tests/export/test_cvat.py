"""CVAT for images 1.1: tags that CVAT cannot mistake, and whatever CVAT exports."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from satl.errors import ImageError, TableError
from satl.export import Source, Suggestions, export, read_export, read_source
from satl.labels import LabelTable, write_table

TABLE = LabelTable(("a.jpg", "b.jpg"), ("cat", "a & <dog>"), np.array([[1, -1], [0, 0]]))
PROPOSED = Suggestions.of([(1, 0, 1, 0.9, 0), (1, 1, -1, 0.25, 1)])
HEAD = "<annotations><version>1.1</version><meta><task><labels>{}</labels></task></meta>{}</annotations>"


def read(folder: Path, labels: tuple[str, ...], images: str) -> LabelTable:
    declared = "".join(f"<label><name>{name}</name><attributes/></label>" for name in labels)
    (folder / "x.xml").write_text(HEAD.format(declared, images), encoding="utf-8")
    return read_export(folder / "x.xml", "cvat").table


def test_no_suggestion_has_the_label_of_a_class(tmp_path: Path) -> None:
    export(Source(TABLE, PROPOSED), "cvat", tmp_path / "a.xml")
    root = ElementTree.parse(tmp_path / "a.xml").getroot()
    assert (root.tag, root.findtext("version")) == ("annotations", "1.1")
    tags = {
        image.get("name"): [(tag.get("label"), tag.get("source")) for tag in image.iter("tag")]
        for image in root.iter("image")
    }
    assert tags == {
        "a.jpg": [("cat", "manual"), ("not a & <dog>", "manual")],
        "b.jpg": [("maybe cat", "auto"), ("maybe not a & <dog>", "auto")],
    }
    [maybe, *_] = [tag for tag in root.iter("tag") if tag.get("label") == "maybe cat"]
    assert {one.get("name"): one.text for one in maybe} == {"score": "0.900000", "band": "accepted"}
    declared = [label.findtext("name") for label in root.iter("label")]
    labels = json.loads((tmp_path / "a.labels.json").read_text(encoding="utf-8"))
    assert [label["name"] for label in labels] == declared
    assert len(declared) == 2 * 4
    for label in labels:
        assert label["type"] == "tag"
        names = [one["name"] for one in label["attributes"]]
        assert names == (["score", "band"] if label["name"].startswith("maybe") else [])


def test_a_plain_table_needs_no_maybe(tmp_path: Path) -> None:
    export(Source(TABLE), "cvat", tmp_path / "a.xml")
    labels = json.loads((tmp_path / "a.labels.json").read_text(encoding="utf-8"))
    assert [label["name"] for label in labels] == ["cat", "not cat", "a & <dog>", "not a & <dog>"]


def test_not_in_a_name_is_part_of_it_unless_it_negates_a_class(tmp_path: Path) -> None:
    table = LabelTable(("a.jpg",), ("not a boat", "maybe", "cat"), np.array([[1, -1, 0]]))
    source = Source(table, Suggestions.of([(0, 2, -1, 0.1, 1)]))
    export(source, "cvat", tmp_path / "a.xml")
    back = read_export(tmp_path / "a.xml", "cvat")
    assert (back.table, back.suggestions) == (table, source.suggestions)
    # 'maybe cat' would be read as a suggestion, even if there is none.
    for other in ("not cat", "maybe cat", "maybe not cat"):
        clash = LabelTable(("a.jpg",), ("cat", other), np.array([[1, 1]]), encoding="signed")
        with pytest.raises(TableError, match="class 'cat' and another one differ by 'not' or 'maybe'"):
            export(Source(clash), "cvat", tmp_path / "b.xml")


def test_names_that_cvat_would_cut_off_are_refused(tmp_path: Path) -> None:
    for length, source in (
        (60, Source),
        (54, lambda table: Source(table, Suggestions.of([(0, 0, -1, 0.1, 1)]))),
    ):
        fits = LabelTable(("a.jpg",), ("x" * length,), np.array([[0]]), encoding="signed")
        export(source(fits), "cvat", tmp_path / f"{length}.xml")
        longer = LabelTable(("a.jpg",), ("x" * (length + 1),), np.array([[0]]), encoding="signed")
        with pytest.raises(TableError, match="has 65 characters, and CVAT cuts names off after 64"):
            export(source(longer), "cvat", tmp_path / "no.xml")


def test_sizes_are_written_where_the_images_are_known(tmp_path: Path) -> None:
    write_table(TABLE, tmp_path / "t.csv")
    for name in TABLE.images:
        Image.new("RGB", (7, 5)).save(tmp_path / name)
    export(read_source(tmp_path / "t.csv", images=tmp_path), "cvat", tmp_path / "a.xml")
    images = ElementTree.parse(tmp_path / "a.xml").getroot().iter("image")
    assert [(image.get("width"), image.get("height")) for image in images] == [("7", "5")] * 2
    (tmp_path / "b.jpg").write_bytes(b"no image")
    with pytest.raises(ImageError, match=r"b\.jpg' of row 2 cannot be read"):
        export(read_source(tmp_path / "t.csv", images=tmp_path), "cvat", tmp_path / "c.xml")
    assert not (tmp_path / "c.xml").exists()


def test_shapes_and_tags_of_cvat_both_say_present(tmp_path: Path) -> None:
    table = read(
        tmp_path,
        ("car", "dog", "owl", "not owl"),
        '<image id="3" name="x/1.jpg" width="9" height="9"><box label="car" xtl="1" ytl="1" xbr="2" ybr="2"/>'
        '<tag label="dog" source="file"></tag><box label="car" xtl="1" ytl="1" xbr="2" ybr="2"/></image>'
        '<image id="4" name="x/2.jpg"><tag label="not owl"/></image><image id="5" name="x/3.jpg"></image>',
    )
    assert (table.images, table.classes) == (("x/1.jpg", "x/2.jpg", "x/3.jpg"), ("car", "dog", "owl"))
    assert table.cells.tolist() == [[1, 1, 0], [0, 0, -1], [0, 0, 0]]


@pytest.mark.parametrize(
    ("labels", "images", "message"),
    [
        (
            ("a",),
            '<image id="0" name="1.jpg"><tag label="b"/></image>',
            "image 1 names class 'b', which is not",
        ),
        (
            ("a", "not a"),
            '<image name="1"><tag label="a"/><tag label="not a"/></image>',
            "both present and absent",
        ),
        (("a", "maybe a"), '<image name="1"><tag label="maybe a"/></image>', "suggests value 1, score nan"),
        (("a",), '<image name="1"/><image name="1"/>', "image 1 and image 2 are both about image '1'"),
        (
            ("a",),
            '<track id="0" label="a"></track>',
            "holds tracks: export from CVAT as 'CVAT for images 1.1'",
        ),
        (("a",), "<image", "is not a complete XML file"),
        (("a",), "", "names no image"),
        ((), '<image name="1"/>', "names no class"),
    ],
)
def test_files_that_are_something_else(
    labels: tuple[str, ...], images: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(TableError, match=message):
        read(tmp_path, labels, images)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<html></html>", "is not a CVAT file"),
        ("<annotations><image name='a'/></annotations>", "declares no labels in 'meta'"),
        ("", "is not a complete XML file"),
        ("PK\x03\x04 zip", "is a zip or Excel file"),
        (
            "<!DOCTYPE x [<!ENTITY e SYSTEM 'secret.txt'>]><annotations>&e;</annotations>",
            "is not a complete XML file",
        ),
    ],
)
def test_files_of_another_kind(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "x.xml").write_text(content)
    with pytest.raises(TableError, match=message):
        read_export(tmp_path / "x.xml", "cvat")


def test_a_small_file_cannot_grow_without_bounds(tmp_path: Path) -> None:
    entities = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 12))
    bomb = f'<!DOCTYPE x [<!ENTITY e0 "{"x" * 100}">{entities}]><annotations>&e11;</annotations>'
    (tmp_path / "x.xml").write_text(bomb)
    with pytest.raises(TableError, match="is not a complete XML file"):
        read_export(tmp_path / "x.xml", "cvat")

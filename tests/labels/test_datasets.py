"""The registry of data sets, its options, and the data sets that are not COCO files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labels import trees
from satl.errors import ConfigError, TableError
from satl.labels import DATASETS, LabelTable, read_dataset
from satl.labels.datasets import Dataset, Option, check_options, find_dataset, register_dataset
from satl.labels.datasets.voc import CLASSES

# ------------------------------------------------------------------------------------------------- the registry


def test_a_name_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no data set 'vg20' \(did you mean 'vg200'\?\): choose one of"):
        read_dataset("vg20", tmp_path)


def test_a_new_data_set_is_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satl.labels.datasets.registry.DATASETS", dict(DATASETS))
    seen: dict[str, Any] = {}

    def read(root: Path, **options: Any) -> LabelTable:
        seen.update(options)
        return LabelTable(("a",), ("cat",), np.array([[1]]), encoding="signed")

    options = (
        Option("flag", "flag", False, ""),
        Option("one", "choice", None, "", ("red", "blue")),
        Option("some", "choices", ["x"], "", ("x", "y", "z")),
        Option("count", "integer", 3, ""),
        Option("file", "path", None, ""),
    )
    register_dataset(Dataset("mine", "", ("a", "b"), read, options))
    read_dataset("mine", tmp_path)
    assert seen == {"flag": False, "one": None, "some": ["x"], "count": 3, "file": None}
    read_dataset(
        "mine",
        tmp_path,
        flag="TRUE",
        one="blue",
        some="z, x",
        count="7",
        file="a/b",
    )
    assert seen == {"flag": True, "one": "blue", "some": ["x", "z"], "count": 7, "file": tmp_path / "a" / "b"}
    read_dataset("mine", tmp_path, flag=True, some=("y",), count=0, file=Path("/abs"))
    assert seen == {"flag": True, "one": None, "some": ["y"], "count": 0, "file": Path("/abs")}
    for given, message in (
        ({"flg": 1}, r"has no option 'flg' \(did you mean 'flag'\?\): its options are flag, one"),
        ({"flag": "yes"}, "option flag of data set 'mine' must be true or false, not 'yes'"),
        ({"one": "bleu"}, r"must be one of red, blue \(did you mean 'blue'\?\), not 'bleu'"),
        ({"some": "x,w"}, "must be some of x, y, z, not 'x,w'"),
        ({"some": []}, "must be some of x, y, z"),
        ({"count": -1}, "must be a whole number from 0 on, not -1"),
        ({"count": True}, "must be a whole number"),
        ({"file": 3}, "must be a path, not 3"),
    ):
        with pytest.raises(ConfigError, match=message):
            check_options(find_dataset("mine"), given)
    with pytest.raises(ValueError, match="exists already"):
        register_dataset(Dataset("mine", "", (), read))


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_every_data_set_refuses_an_empty_folder_in_one_sentence(name: str, tmp_path: Path) -> None:
    options = {"train": "none.json"} if name == "coco" else {}
    with pytest.raises(TableError) as caught:
        read_dataset(name, tmp_path, **options)
    message = str(caught.value)
    assert str(tmp_path) in message
    assert "\n" not in message
    assert message.endswith(".")
    with pytest.raises(TableError, match="does not exist: pass the folder that holds"):
        read_dataset(name, tmp_path / "nowhere", **options)


# ---------------------------------------------------------------------------------------------------------- VOC


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    return trees.voc2007(tmp_path / "VOCdevkit" / "VOC2007", CLASSES)


def present(table: LabelTable, image: str, state: int = 1) -> set[str]:
    row = next(i for i, name in enumerate(table.images) if name.endswith(f"{image}.jpg"))
    return {
        name for name, cell in zip(table.classes, table.cells[row].tolist(), strict=True) if cell == state
    }


@pytest.mark.parametrize("labels", ["xml", "txt"])
def test_voc2007(voc: Path, labels: str) -> None:
    table = read_dataset("voc2007", voc, labels=labels)
    assert table.classes == CLASSES
    assert table.splits == {"train": 4, "test": 2}
    assert table.images[0] == "JPEGImages/000005.jpg"
    assert present(table, "000005") == {"chair"}
    assert present(table, "000005", -1) == set(CLASSES) - {"chair"}
    assert present(table, "000009") == {"horse", "person"}
    assert present(table, "000012") == present(table, "000002") == set()
    ignoring = read_dataset("voc2007", voc, labels=labels, difficult="ignore")
    assert present(ignoring, "000005", 0) == {"person"}
    assert present(ignoring, "000005") == {"chair"}
    assert present(ignoring, "000002", 0) == {"train"}


def test_voc_is_found_from_one_and_two_levels_above(voc: Path, tmp_path: Path) -> None:
    plain = read_dataset("voc2007", voc)
    for root, prefix in ((voc.parent, "VOC2007/"), (tmp_path, "VOCdevkit/VOC2007/")):
        table = read_dataset("voc2007", root)
        assert table.images == tuple(prefix + image for image in plain.images)
        assert (table.cells == plain.cells).all()


def test_voc_with_its_own_validation_part(voc: Path) -> None:
    table = read_dataset("voc2007", voc, splits="train,val,test")
    assert table.splits == {"train": 2, "val": 2, "test": 2}
    assert table.images[:4] == tuple(f"JPEGImages/{n}.jpg" for n in ("000007", "000012", "000005", "000009"))
    assert read_dataset("voc2007", voc, splits="test").splits == {"test": 2}


@pytest.mark.parametrize(
    "content", [b"000005\r\n000007\r\n", b"000005\n\n000007", b"\xef\xbb\xbf000005 \n000007\n\n"]
)
def test_voc_lists_as_people_make_them(voc: Path, content: bytes) -> None:
    (voc / "ImageSets" / "Main" / "trainval.txt").write_bytes(content)
    table = read_dataset("voc2007", voc, splits="train")
    assert table.images == ("JPEGImages/000005.jpg", "JPEGImages/000007.jpg")


def test_voc_refused(voc: Path) -> None:
    main, notes = voc / "ImageSets" / "Main", voc / "Annotations"

    def refused(message: str, **options: Any) -> None:
        with pytest.raises(TableError, match=message) as caught:
            read_dataset("voc2007", voc, **options)
        assert "\n" not in str(caught.value)

    xml = notes / "000007.xml"
    whole = xml.read_text()
    xml.write_text(whole[: len(whole) // 2])
    refused(
        r"000007\.xml is broken or was copied only in part \(.*line \d+.*, image '000007', row 2 of trainval\.txt\)"
    )
    xml.write_text("")
    refused(r"000007\.xml is broken")
    xml.write_bytes(b"<annotation><object><name>c\xe9</name></object></annotation>")
    refused(r"000007\.xml is broken")
    xml.write_text(whole.replace("<name>car</name>", "<name>carr</name>"))
    refused(r"000007\.xml: there is no VOC class 'carr' \(did you mean 'car'\?\)")
    xml.write_text("<annotation><object><pose>Left</pose></object></annotation>")
    refused(r"000007\.xml: object 1 has no name")
    xml.write_text("<html><body>not found</body></html>")
    refused(r"000007\.xml holds <html>, not <annotation> \(image '000007', row 2 of trainval\.txt\)")
    xml.write_text(whole.replace("<difficult>0</difficult>", "<difficult>True</difficult>"))
    refused(r"000007\.xml: object 1 has 'True' as 'difficult', not 0 or 1")
    xml.unlink()
    refused(r"000007\.xml is missing .*unpack the archive again \(image '000007', row 2 of trainval\.txt\)")
    xml.write_text(whole)
    cow = main / "cow_trainval.txt"
    lines = cow.read_text()
    cow.write_text(lines[:-10])
    refused(r"cow_trainval\.txt lacks 1 of the 4 images of trainval\.txt, such as '000012'", labels="txt")
    cow.write_text(lines.replace("000012 -1", "000012 2"))
    refused(r"cow_trainval\.txt: line 4 \('000012 2'\) is not '<image> 1'", labels="txt")
    cow.write_text(lines + "000013 -1\n")
    refused(r"line 5 names image '000013', which trainval\.txt lacks", labels="txt")
    cow.write_text(lines + "000007  1\n")
    refused(r"cow_trainval\.txt: line 5 names image '000007' a second time", labels="txt")
    cow.unlink()
    refused(r"cow_trainval\.txt is missing.*or pass the option labels: xml", labels="txt")
    (main / "test.txt").write_text("000001\n000002\n000001\n")
    refused(r"test\.txt: lines 1 and 3 both name '000001'")
    (main / "test.txt").write_text("000001\n000005\n")
    refused(r"image 'JPEGImages/000005\.jpg' is in 'train' and 'test'")
    (main / "test.txt").write_text(" \n\n")
    refused(r"test\.txt is empty")
    (main / "test.txt").write_bytes(b"\xff\xfe0\x000\x00")
    refused(r"test\.txt is UTF-16 text")
    (main / "test.txt").write_bytes(b"000001\n00\xe9\n")
    refused(r"test\.txt: line 2 is not UTF-8 text")
    (main / "test.txt").unlink()
    refused(r"test\.txt is missing.*or leave the part out with the option splits")
    shutil.rmtree(notes)
    refused(r"Annotations is missing: .*pass the option labels: txt")
    shutil.rmtree(voc / "ImageSets")
    refused(r"has no ImageSets/Main, neither directly nor in VOC2007")


# ------------------------------------------------------------------------------------------------- Visual Genome


def test_vg200(tmp_path: Path) -> None:
    table = read_dataset("vg200", trees.vg200(tmp_path))
    assert table.splits == {"train": 3, "test": 2}
    # 8.jpg has no file yet, so it is expected in the first folder.
    assert table.images == (
        "VG_100K_2/1.jpg",
        "VG_100K/2.jpg",
        "VG_100K/2316.jpg",
        "VG_100K_2/7.jpg",
        "VG_100K/8.jpg",
    )
    assert table.classes[:2] == ("class_000", "class_001")
    assert len(table.classes) == 200
    assert [np.flatnonzero(row == 1).tolist() for row in table.cells] == [[0, 5, 199], [], [1], [0, 1], [3]]
    assert (table.cells != 0).all()


def test_vg200_with_names_and_lists_elsewhere(tmp_path: Path) -> None:
    root = trees.vg200(tmp_path / "vg")
    lists = tmp_path / "lists"
    lists.mkdir()
    for path in root.glob("*.*"):
        path.rename(lists / path.name)
    (lists / "names.txt").write_bytes("\r\n".join(f"thing {i}" for i in range(200)).encode())
    table = read_dataset("vg200", root, lists="../lists", names=lists / "names.txt")
    assert table.classes[199] == "thing 199"
    assert table.images[0] == "VG_100K_2/1.jpg"
    (lists / "names.txt").write_text("cat\ndog\n")
    with pytest.raises(TableError, match=r"names\.txt has 2 names, not 200"):
        read_dataset("vg200", root, lists="../lists", names=lists / "names.txt")


@pytest.mark.parametrize(
    "content",
    [b"1.jpg\r\n2.jpg\r\n2316.jpg\r\n", b"1.jpg\n2.jpg\n2316.jpg", b"\n1.jpg\n\n2.jpg\n2316.jpg\n\n"],
)
def test_vg200_lists_as_people_make_them(tmp_path: Path, content: bytes) -> None:
    expected = read_dataset("vg200", trees.vg200(tmp_path))
    (tmp_path / "train_list_500.txt").write_bytes(content)
    assert read_dataset("vg200", tmp_path) == expected


def test_vg200_refused(tmp_path: Path) -> None:
    root = trees.vg200(tmp_path)
    index = root / "vg_category_200_labels_index.json"
    whole = index.read_text()
    for content, message in (
        (whole[:-9], r"index\.json ends in the middle"),
        ("[]", r"index\.json is not a JSON object"),
        (
            whole.replace('"2.jpg"', '"02.jpg"'),
            r"train_list_500\.txt: image '2\.jpg' \(row 2\) is not in vg_category",
        ),
        (
            whole.replace("199", "200"),
            r"image '1\.jpg' has classes \[0, 5, 200\], which are not numbers from 0 to 199",
        ),
        (whole.replace("[1]", "1"), r"image '2316\.jpg' has classes 1, which are not numbers"),
    ):
        index.write_text(content)
        with pytest.raises(TableError, match=message):
            read_dataset("vg200", root)
    index.write_text(whole)
    (root / "names.txt").write_text("".join(f"thing {i % 199}\n" for i in range(200)))
    with pytest.raises(TableError, match=r"names\.txt: lines 1 and 200 both name 'thing 0'"):
        read_dataset("vg200", root, names="names.txt")
    (root / "test_list_500.txt").write_text("7.jpg\n1.jpg\n")
    with pytest.raises(TableError, match=r"image 'VG_100K_2/1\.jpg' is in 'train' and 'test'"):
        read_dataset("vg200", root)
    index.unlink()
    with pytest.raises(TableError, match=r"vg_category_200_labels_index\.json is missing"):
        read_dataset("vg200", root)


def test_vg200_from_objects(tmp_path: Path, cache: Path) -> None:
    trees.write_json(tmp_path / "objects.json", trees.vg_objects())
    trees.picture(tmp_path / "VG_100K" / "1.jpg")
    table = read_dataset("vg200_from_objects", tmp_path, classes=4, test_images=2)
    # Images with man, tree, sky: 2, 3, 2; the fourth place goes to "auto", first by name of those with one image.
    assert table.classes == ("tree", "man", "sky", "auto")
    assert table.splits == {"train": 4, "test": 2}
    test = np.random.RandomState(0).permutation(6)[:2] + 1
    assert {int(Path(image).stem) for image in table.where_split("test").images} == set(test.tolist())
    cells = {Path(image).name: row for image, row in zip(table.images, table.cells.tolist(), strict=True)}
    assert cells["1.jpg"] == [1, 1, -1, -1]
    assert cells["2.jpg"] == [1, -1, -1, 1]
    assert cells["5.jpg"] == [-1] * 4
    folders = {Path(image).name: str(Path(image).parent) for image in table.images}
    assert (folders["1.jpg"], folders["2.jpg"], folders["3.jpg"]) == ("VG_100K", "VG_100K", "VG_100K_2")
    assert len(list(cache.iterdir())) == 1
    assert read_dataset("vg200_from_objects", tmp_path, classes=4, test_images=2) == table
    other = read_dataset("vg200_from_objects", tmp_path, classes=4, test_images=2, seed=1)
    assert other.where_split("test").images != table.where_split("test").images


def test_vg200_from_objects_refused(tmp_path: Path) -> None:
    path = trees.write_json(tmp_path / "objects.json", trees.vg_objects())
    for options, message in (
        ({}, "names 6 different objects: choose the option classes between 1 and that"),
        ({"classes": 2}, "has 6 images: choose the option test_images between 1 and 5"),
        ({"classes": 0, "test_images": 1}, "choose the option classes"),
    ):
        with pytest.raises(ConfigError, match=message):
            read_dataset("vg200_from_objects", tmp_path, **options)
    content = path.read_text()
    for broken, message in (
        (content[:200], "ends in the middle"),
        ("{}", "is not a JSON list"),
        ("[]", "lists no images"),
        (json.dumps([{"image_id": 1}]), "entry 1 has no 'image_id' and 'objects' with 'names'"),
        (json.dumps([{"image_id": 1, "objects": [{"names": [3]}]}]), "entry 1 has no"),
        (json.dumps([{"image_id": 1, "objects": [{"names": "man"}]}]), "entry 1 has no"),
        (json.dumps([{"image_id": [1], "objects": []}]), "entry 1 has no"),
        (json.dumps([7]), "entry 1 has no"),
    ):
        path.write_text(broken)
        with pytest.raises(TableError, match=message):
            read_dataset("vg200_from_objects", tmp_path, classes=2, test_images=1)
    same = [{"image_id": 1, "objects": [{"names": ["a"]}]}] * 2
    trees.write_json(path, same)
    with pytest.raises(
        TableError, match=r"objects\.json: entries 1 and 2 are both about image 1: remove one"
    ):
        read_dataset("vg200_from_objects", tmp_path, classes=1, test_images=1)


def test_vg200_from_objects_with_an_address_that_is_no_text(tmp_path: Path) -> None:
    content = [{"image_id": i, "image_url": i, "objects": [{"names": ["a"]}]} for i in (1, 2)]
    trees.write_json(tmp_path / "objects.json", content)
    table = read_dataset("vg200_from_objects", tmp_path, classes=1, test_images=1)
    assert set(table.images) == {"VG_100K/1.jpg", "VG_100K/2.jpg"}


# ------------------------------------------------------------------------------------------------------ CheXpert


def test_chexpert(tmp_path: Path) -> None:
    root = trees.chexpert(tmp_path)
    with pytest.raises(
        TableError, match=r"train\.csv calls 3 findings uncertain \(-1\): .*option uncertain: unknown"
    ):
        read_dataset("chexpert", root)
    table = read_dataset("chexpert", root, uncertain="unknown")
    assert table.num_classes == 14
    assert table.images[0] == "train/patient00001/study1/view1_frontal.jpg"
    assert table.splits == {"train": 3, "val": 1}
    column = table.classes.index
    first, second, third = table.cells[:3].tolist()
    assert (first[column("No Finding")], first[column("Pneumothorax")], first[column("Edema")]) == (1, -1, 0)
    assert (second[column("Cardiomegaly")], second[column("Lung Opacity")]) == (0, 1)
    assert sum(map(abs, third)) == 1
    for policy, state in (("present", 1), ("absent", -1)):
        other = read_dataset("chexpert", root, uncertain=policy)
        assert other.cells[1, column("Cardiomegaly")] == state
        assert (other.cells != table.cells).sum() == 3
    assert read_dataset("chexpert", root, splits="val").splits == {"val": 1}


def test_chexpert_test_part_has_its_columns_in_another_order(tmp_path: Path) -> None:
    table = read_dataset("chexpert", trees.chexpert(tmp_path), splits="train,test", uncertain="unknown")
    assert table.classes[0] == "No Finding"
    assert table.images[-1] == "test/patient64741/study1/view1_frontal.jpg"
    assert table.cells[-1, table.classes.index("Support Devices")] == 1


def test_chexpert_refused(tmp_path: Path) -> None:
    root = trees.chexpert(tmp_path)
    path = root / "train.csv"
    whole = path.read_text()
    for content, message in (
        (whole[:-8], r"its last row, 3 .*was copied or downloaded only in part"),
        (
            whole.replace(",-1.0,1.0", ",yes,1.0"),
            r"row 2 .*column 'Cardiomegaly': 'yes' is not 1, 0, -1 or blank",
        ),
        # ignore_columns does not go with a data set, so it is not offered.
        (
            whole.replace(",-1.0,1.0", ",u,1.0"),
            r"row 2 .*column 'Cardiomegaly': 'u' is not a label; .*if 'Cardiomegaly' is not a class\.$",
        ),
        (whole.replace("Edema", "Oedema"), r"valid\.csv has no column 'Oedema' \(did you mean 'Edema'\?\)"),
        (
            whole.replace("patient00003/study1/view2_lateral", "patient00001/study1/view1_frontal"),
            "both about image",
        ),
        ("", r"train\.csv is empty"),
    ):
        path.write_text(content)
        with pytest.raises(TableError, match=message) as caught:
            read_dataset("chexpert", root, uncertain="unknown")
        assert "\n" not in str(caught.value)


# ---------------------------------------------------------------------------------------------------- OpenImages


def test_openimages(tmp_path: Path) -> None:
    table = read_dataset("openimages", trees.openimages(tmp_path))
    assert table.classes == ("Tortoise", "Container", "Magpie")
    assert table.images == (
        "train/000002b66c9c498e.jpg",
        "train/000004f4400f6ec5.jpg",
        "validation/0001eeaf4aed83f9.jpg",
        "test/000026e7ee790996.jpg",
    )
    assert table.splits == {"train": 2, "val": 1, "test": 1}
    assert table.cells.tolist() == [[1, 0, -1], [0, 1, 0], [0, 0, 1], [-1, 0, 0]]


def test_openimages_some_classes_and_all_classes(tmp_path: Path) -> None:
    root = trees.openimages(tmp_path)
    (root / "few.csv").write_text("LabelName,DisplayName\r\n/m/012074,Magpie\r\n/m/0nothing,Nothing")
    table = read_dataset("openimages", root, classes="few.csv", splits="train")
    assert table.classes == ("Magpie", "Nothing")
    assert table.images == ("train/000002b66c9c498e.jpg",)
    assert table.cells.tolist() == [[-1, 0]]
    (root / "annotations").mkdir()
    (root / "annotations" / "oidv7-val-annotations-human-imagelabels.csv").write_bytes(
        b"\xef\xbb\xbfImageID,Source,LabelName,Confidence\r\n\r\na,verification,/m/1,1.0\r\na,verification,/m/2,0"
    )
    (root / "oidv7-class-descriptions.csv").write_text("/m/1,Cat\n/m/2,Cat\n")
    table = read_dataset("openimages", root, boxable=False, splits="val")
    assert table.classes == ("Cat", "Cat (/m/2)")
    assert table.cells.tolist() == [[1, -1]]


@pytest.mark.parametrize("content", [" /m/012074,Magpie\n", "\nLabelName,DisplayName\n/m/012074,Magpie\n"])
def test_openimages_class_file_as_people_make_it(tmp_path: Path, content: str) -> None:
    root = trees.openimages(tmp_path)
    (root / "few.csv").write_text(content)
    assert read_dataset("openimages", root, classes="few.csv", splits="train").classes == ("Magpie",)


def test_openimages_refused(tmp_path: Path) -> None:
    root = trees.openimages(tmp_path)
    path = root / "train-annotations-human-imagelabels-boxable.csv"
    whole = path.read_text()

    def refused(message: str, **options: Any) -> None:
        with pytest.raises(TableError, match=message) as caught:
            read_dataset("openimages", root, **{"splits": "train", **options})
        assert "\n" not in str(caught.value)

    for content, message in (
        (
            whole.replace("/m/011k07,1", "/m/011k07,0.7"),
            r"row 2 .*column 'Confidence': '0\.7' is not a label",
        ),
        (
            whole.replace("/m/012074,0", "/m/012074,no"),
            r"row 1 \(image '000002b66c9c498e'\), column 'Confidence': no is neither 1 nor 0",
        ),
        (whole.replace("/m/012074,0", "/m/012074,-1"), "column 'Confidence': -1 is neither 1 nor 0"),
        (whole.replace("/m/012074,0", "/m/012074,"), "column 'Confidence': a blank is neither 1 nor 0"),
        (whole[:-10], "its last row, 3 .*downloaded only in part"),
        (
            whole + "000004f4400f6ec5,verification,/m/011q46kg,0\n",
            r"rows 3 and 4 say different things .*'/m/011q46kg'",
        ),
        (
            "ImageID,Source,LabelName\na,b,c\n",
            "has the columns 'imageid', 'source', 'labelname', not ImageID",
        ),
        (
            "ImageID,Source,LabelName,Confidence\na,b,/m/x,1\n",
            "has none of the 3 classes, such as '/m/011k07'",
        ),
        ("ImageID,Source,LabelName,Confidence\n", "is empty"),
        ("ImageID,Source,LabelName,Confidence\n,b,/m/x,1\n", "row 1 has nothing in column 'ImageID'"),
    ):
        path.write_text(content)
        refused(message)
    path.write_text(whole + "000004f4400f6ec5,verification,/m/011q46kg,0\n")
    assert read_dataset("openimages", root, conflicts="unknown").cells[1].tolist() == [0, 0, 0]
    path.write_text(whole)
    shutil.copy(path, root / f"oidv6-{path.name}")
    refused("has 2 files .*train-annotations-human-imagelabels-boxable.csv .*leave one")
    names = root / "class-descriptions-boxable.csv"
    names.write_text("/m/011k07,Tortoise\n/m/012074\n")
    refused(r"class-descriptions-boxable\.csv: line 2 is not '<label>,<name>'")
    names.write_text('/m/011k07,"Tortoise\n/m/012074,Magpie\n')
    refused(r"class-descriptions-boxable\.csv cannot be read as CSV .*: check its quotes")
    names.write_text("/m/011k07,Tortoise\n/m/011k07,Turtle\n")
    refused("line 2 names label '/m/011k07' again")
    names.write_text("")
    refused(r"class-descriptions-boxable\.csv is empty")
    refused(r"none\.csv is missing: correct the option classes", classes="none.csv")
    names.unlink()
    refused(r"has no file \*class-descriptions-boxable\.csv")

"""Miniature data sets in exactly the published layouts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

CATEGORIES = ((1, "person"), (2, "bicycle"), (90, "toothbrush"))


def picture(path: Path) -> None:
    """Write a small image that is told from others by its colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (16, 16), (sum(path.name.encode()) % 255, 90, 30)).save(path)


def write_json(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def coco_content(
    images: Mapping[int, str],
    labels: Iterable[tuple[int, int]],
    categories: Sequence[tuple[int, str]] = CATEGORIES,
) -> dict[str, Any]:
    """Return a COCO file: image id -> file name, and (image id, category id) of every annotation."""
    return {
        "info": {"year": 2014, "description": 'a "quoted" [text] {with} brackets, é'},
        "images": [
            {"license": 5, "file_name": name, "height": 480, "width": 640, "id": number}
            for number, name in images.items()
        ],
        "licenses": [{"id": 1, "name": "x"}],
        "annotations": [
            {
                "segmentation": [[1.5, 2.25, 3.0]] if at % 2 else {"counts": [1, 2], "size": [4, 4]},
                "area": 10.5,
                "iscrowd": 1 - at % 2,
                "image_id": image,
                "bbox": [1.0, 2.0, 3.0, 4.0],
                "category_id": category,
                "id": at + 100,
            }
            for at, (image, category) in enumerate(labels)
        ],
        "categories": [
            {"supercategory": "thing", "id": number, "name": name} for number, name in reversed(categories)
        ],
    }


def coco2014(root: Path, pictures: bool = False) -> Path:
    """Four training images (the second without annotation) and two validation images."""
    for part, numbers, labels in (
        ("train", (57, 9, 25, 34), [(57, 1), (57, 90), (57, 1), (25, 2), (34, 90)]),
        ("val", (42, 73), [(73, 2), (73, 1)]),
    ):
        names = {number: f"COCO_{part}2014_{number:012d}.jpg" for number in numbers}
        write_json(root / "annotations" / f"instances_{part}2014.json", coco_content(names, labels))
        for name in names.values():
            if pictures:
                picture(root / f"{part}2014" / name)
    return root


def lvis_content(images: Mapping[int, tuple[str, list[int], list[int]]], labels: Any) -> dict[str, Any]:
    """Return an LVIS file: image id -> (address, absent categories, not exhaustive categories)."""
    content = coco_content(dict.fromkeys(images, ""), labels)
    for entry in content["images"]:
        address, absent, present = images[entry["id"]]
        del entry["file_name"]
        entry["coco_url"] = f"http://images.cocodataset.org/{address}"
        entry["neg_category_ids"] = absent
        entry["not_exhaustive_category_ids"] = present
    order = ("info", "annotations", "images", "licenses", "categories")
    return {key: content[key] for key in order}


VOC_XML = """<annotation>
  <folder>VOC2007</folder><filename>{name}.jpg</filename>
  <size><width>500</width><height>375</height><depth>3</depth></size>
{objects}</annotation>
"""
VOC_OBJECT = """  <object><name>{name}</name><pose>Left</pose><truncated>1</truncated><difficult>{difficult}</difficult>
    <bndbox><xmin>1</xmin><ymin>2</ymin><xmax>3</xmax><ymax>4</ymax></bndbox>
    <part><name>head</name><bndbox><xmin>1</xmin></bndbox></part></object>
"""
VOC_OBJECTS: dict[str, list[tuple[str, int]]] = {
    "000005": [("chair", 0), ("chair", 1), ("person", 1)],
    "000007": [("car", 0)],
    "000009": [("horse", 0), ("person", 0)],
    "000012": [],
    "000001": [("dog", 0), ("person", 0)],
    "000002": [("train", 1)],
}
VOC_LISTS = {
    "trainval": ("000005", "000007", "000009", "000012"),
    "train": ("000007", "000012"),
    "val": ("000005", "000009"),
    "test": ("000001", "000002"),
}


def voc2007(base: Path, classes: Sequence[str]) -> Path:
    """Write ``Annotations`` and ``ImageSets/Main``, the lists per class included."""
    (base / "Annotations").mkdir(parents=True)
    (base / "ImageSets" / "Main").mkdir(parents=True)
    for name, objects in VOC_OBJECTS.items():
        text = "".join(VOC_OBJECT.format(name=kind, difficult=flag) for kind, flag in objects)
        (base / "Annotations" / f"{name}.xml").write_text(VOC_XML.format(name=name, objects=text))
    for part, names in VOC_LISTS.items():
        (base / "ImageSets" / "Main" / f"{part}.txt").write_text("".join(f"{name}\n" for name in names))
        for kind in classes:
            lines = []
            for name in names:
                flags = [flag for found, flag in VOC_OBJECTS[name] if found == kind]
                value = -1 if not flags else 0 if all(flags) else 1
                lines.append(f"{name} {value:2d}\n")
            (base / "ImageSets" / "Main" / f"{kind}_{part}.txt").write_text("".join(lines))
    return base


def vg200(root: Path) -> Path:
    """Three training and two test images over both image folders."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "train_list_500.txt").write_bytes(b"1.jpg\n2.jpg\n2316.jpg\n")
    (root / "test_list_500.txt").write_bytes(b"7.jpg\n8.jpg\n")
    index = {
        "1.jpg": [0, 5, 199],
        "2.jpg": [],
        "2316.jpg": [1],
        "7.jpg": [0, 1],
        "8.jpg": [3, 3],
        "9.jpg": [4],
    }
    write_json(root / "vg_category_200_labels_index.json", index)
    for name in ("VG_100K_2/1.jpg", "VG_100K/2.jpg", "VG_100K/2316.jpg", "VG_100K_2/7.jpg"):
        picture(root / name)
    return root


def vg_objects() -> list[dict[str, Any]]:
    """Return the content of an ``objects.json`` of six images."""
    named = [
        [["Man"], ["tree "], ["man"]],
        [["tree"], ["car", "auto"]],
        [["man"], ["sky"], [""]],
        [["tree"], ["sky"]],
        [],
        [["zebra"]],
    ]
    return [
        {
            "image_id": number,
            "image_url": f"https://cs.stanford.edu/people/rak248/VG_100K{'_2' * (number % 2)}/{number}.jpg",
            "objects": [
                {"object_id": at, "synsets": [], "names": names, "x": 1, "y": 2, "w": 3, "h": 4}
                for at, names in enumerate(things)
            ],
        }
        for number, things in enumerate(named, start=1)
    ]


CHEXPERT_HEADER = (
    "Path,Sex,Age,Frontal/Lateral,AP/PA,No Finding,Enlarged Cardiomediastinum,Cardiomegaly,Lung Opacity,"
    "Lung Lesion,Edema,Consolidation,Pneumonia,Atelectasis,Pneumothorax,Pleural Effusion,Pleural Other,Fracture,"
    "Support Devices"
)


def chexpert(root: Path) -> Path:
    """Three radiographs to train, one to validate, one to test on."""
    root.mkdir(parents=True, exist_ok=True)
    folder = "CheXpert-v1.0-small"
    (root / "train.csv").write_text(
        f"{CHEXPERT_HEADER}\n"
        f"{folder}/train/patient00001/study1/view1_frontal.jpg,Female,68,Frontal,AP,1.0,,,,,,,,,0.0,,,,1.0\n"
        f"{folder}/train/patient00002/study2/view1_frontal.jpg,Male,87,Frontal,AP,,,-1.0,1.0,,-1.0,,,,,-1.0,,1.0,\n"
        f"{folder}/train/patient00003/study1/view2_lateral.jpg,Unknown,0,Lateral,,,,0.0,,,,,,,,,,,\n"
    )
    (root / "valid.csv").write_text(
        f"{CHEXPERT_HEADER}\n"
        f"{folder}/valid/patient64541/study1/view1_frontal.jpg,Male,73,Frontal,AP,"
        + ",".join(["0.0", "1.0", "1.0", "1.0", *["0.0"] * 10])
        + "\n"
    )
    findings = CHEXPERT_HEADER.split(",")[5:][::-1]
    (root / "test_labels.csv").write_text(
        f"Path,{','.join(findings)}\ntest/patient64741/study1/view1_frontal.jpg,{','.join(['1', *['0'] * 13])}\n"
    )
    return root


def openimages(root: Path) -> Path:
    """Labels of three parts for three classes."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "class-descriptions-boxable.csv").write_text(
        "/m/011k07,Tortoise\n/m/011q46kg,Container\n/m/012074,Magpie\n"
    )
    header = "ImageID,Source,LabelName,Confidence\n"
    (root / "train-annotations-human-imagelabels-boxable.csv").write_text(
        header + "000002b66c9c498e,verification,/m/012074,0\n000002b66c9c498e,verification,/m/011k07,1\n"
        "000004f4400f6ec5,crowdsource-verification,/m/011q46kg,1\n"
    )
    (root / "validation-annotations-human-imagelabels-boxable.csv").write_text(
        header + "0001eeaf4aed83f9,verification,/m/012074,1\n"
    )
    (root / "test-annotations-human-imagelabels-boxable.csv").write_text(
        header + "000026e7ee790996,verification,/m/011k07,0\n"
    )
    return root

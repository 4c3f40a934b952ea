"""VG-200: Visual Genome with its 200 most frequent classes, from the published lists or from ``objects.json``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from satl.errors import ConfigError, TableError
from satl.labels.datasets.layout import file_names, joined, read_list, require_file, splits_option, within
from satl.labels.datasets.registry import Dataset, Option, register_dataset
from satl.labels.io.cache import Arrays, cached_arrays
from satl.labels.io.json_stream import json_elements, load_json
from satl.labels.masking import random_state
from satl.labels.table import ABSENT, PRESENT, Cells, LabelTable

FOLDERS = ("VG_100K", "VG_100K_2")
INDEX = "vg_category_200_labels_index.json"
NUM_CLASSES = 200


def read_vg200(root: Path, *, splits: Sequence[str], lists: Path | None, names: Path | None) -> LabelTable:
    """Read ``{train,test}_list_500.txt`` and the index of labels, which names each image's classes by number."""
    folder = root if lists is None else lists
    index_path = require_file(folder / INDEX, "put it there, or pass its folder with the option lists")
    index = load_json(index_path)
    if not isinstance(index, dict):
        raise TableError(f"{index_path} is not a JSON object from image to classes: download it again.")
    place = _places(root)
    parts = []
    for split in splits:
        path = folder / f"{split}_list_500.txt"
        images = read_list(
            path, "put it there, or pass its folder with the option lists, or leave the part out with splits"
        )
        cells = _cells(images, index, path, index_path)
        parts.append((split, [place(name, None) for name in images], cells))
    classes = [f"class_{i:03d}" for i in range(NUM_CLASSES)] if names is None else _class_names(names)
    return joined(root, classes, parts)


def _cells(images: Sequence[str], index: dict[str, Any], path: Path, index_path: Path) -> Cells:
    cells = np.full((len(images), NUM_CLASSES), ABSENT, dtype=np.int8)
    for row, name in enumerate(images):
        numbers = index.get(name)
        if numbers is None:
            raise TableError(
                f"{path}: image {name!r} (row {row + 1}) is not in {index_path.name}: use the two files of one release."
            )
        if not isinstance(numbers, list) or not all(
            type(number) is int and 0 <= number < NUM_CLASSES for number in numbers
        ):
            raise TableError(
                f"{index_path}: image {name!r} has classes {json.dumps(numbers)[:80]}, which are not numbers from 0 "
                f"to {NUM_CLASSES - 1}: use the index of the 200 classes."
            )
        cells[row, numbers] = PRESENT
    return cells


def _class_names(path: Path) -> list[str]:
    names = read_list(path, "correct the option names")
    if len(names) != NUM_CLASSES:
        raise TableError(f"{path} has {len(names)} names, not {NUM_CLASSES}: write one per line.")
    return names


def _places(root: Path) -> Callable[[str, str | None], str]:
    """Return a function from a file name to its image id: the folder of the two that holds it.

    Without a file, the folder that the address of the image names, else the first: images may come later.
    """
    present = [(folder, file_names(root / folder)) for folder in FOLDERS]

    def place(name: str, address: str | None) -> str:
        for folder, names in present:
            if name in names:
                return within(folder, name)
        stated = [folder for folder in FOLDERS if address is not None and f"/{folder}/" in address]
        return within(stated[0] if stated else FOLDERS[0], name)

    return place


# -------------------------------------------------------------------------------------------- from objects.json


def read_objects(root: Path, *, classes: int, test_images: int, seed: int) -> LabelTable:
    """Rebuild the set: the most frequent object names are the classes, a random part is the test set."""
    path = require_file(root / "objects.json", "give the folder with objects.json")
    arrays = cached_arrays(path, "objects 1", lambda: _parse_objects(path))
    texts = json.loads(arrays["texts"].tobytes())
    files, addresses, names = texts["files"], texts["addresses"], texts["names"]
    if classes < 1 or len(names) < classes:
        raise ConfigError(
            f"{path} names {len(names):,} different objects: choose the option classes between 1 and that."
        )
    if not 0 < test_images < len(files):
        raise ConfigError(
            f"{path} has {len(files):,} images: choose the option test_images between 1 and {len(files) - 1:,}."
        )
    image, name = arrays["image"], arrays["name"]
    frequency = np.bincount(name, minlength=len(names))
    # By name among equals: the order of a file is not a reason.
    chosen = sorted(range(len(names)), key=lambda at: (-frequency[at], names[at]))[:classes]
    column = np.full(len(names), -1)
    column[chosen] = np.arange(classes)
    wanted = column[name] >= 0
    cells = np.full((len(files), classes), ABSENT, dtype=np.int8)
    cells[image[wanted], column[name[wanted]]] = PRESENT
    place = _places(root)
    ids = [place(file, address) for file, address in zip(files, addresses, strict=True)]
    test = np.zeros(len(files), dtype=np.bool_)
    test[random_state(seed).permutation(len(files))[:test_images]] = True
    parts = [
        (split, [ids[i] for i in np.flatnonzero(rows).tolist()], cells[rows])
        for split, rows in (("train", ~test), ("test", test))
    ]
    return joined(root, [names[at] for at in chosen], parts)


def _parse_objects(path: Path) -> Arrays:
    """Read which object names occur in which image; names in lower case, without surrounding space."""
    files: list[str] = []
    first: dict[str, int] = {}
    addresses: list[str | None] = []
    numbers: dict[str, int] = {}
    image: list[int] = []
    name: list[int] = []
    for row, (_, entry) in enumerate(json_elements(path)):
        try:
            number = entry["image_id"] if "image_id" in entry else entry["id"]
            lists = [thing["names"] for thing in entry["objects"]]
            # A text is a sequence of letters, each of which would become an object.
            if not isinstance(number, (int, str)) or not all(isinstance(names, list) for names in lists):
                raise TypeError
            found = {text.strip().lower() for names in lists for text in names}
        except (KeyError, TypeError, AttributeError):
            raise TableError(
                f"{path}: entry {row + 1} has no 'image_id' and 'objects' with 'names': "
                f"use the objects.json of Visual Genome."
            ) from None
        file = f"{number}.jpg"
        if first.setdefault(file, row) != row:
            raise TableError(
                f"{path}: entries {first[file] + 1} and {row + 1} are both about image {number}: remove one."
            )
        files.append(file)
        address = entry.get("image_url")
        addresses.append(address if isinstance(address, str) else None)
        for text in sorted(found - {""}):
            image.append(row)
            name.append(numbers.setdefault(text, len(numbers)))
    if not files:
        raise TableError(f"{path} lists no images: download it again.")
    texts = json.dumps({"files": files, "addresses": addresses, "names": list(numbers)})
    return {
        "texts": np.frombuffer(texts.encode("utf-8"), dtype=np.uint8),
        "image": np.array(image, dtype=np.int64),
        "name": np.array(name, dtype=np.int64),
    }


register_dataset(
    Dataset(
        "vg200",
        "Visual Genome, 200 classes, from the published lists and index.",
        ("train_list_500.txt", INDEX, "test_list_500.txt", "VG_100K/ and VG_100K_2/"),
        read_vg200,
        (
            splits_option(("train", "test"), ("train", "test"), "Parts to read."),
            Option("lists", "path", None, "Folder of the lists and the index; the root if not given."),
            Option(
                "names",
                "path",
                None,
                "Text file with the 200 class names, one per line; class_000 to class_199 if not given, "
                "because no names were published.",
            ),
        ),
    )
)
register_dataset(
    Dataset(
        "vg200_from_objects",
        "Visual Genome, rebuilt from objects.json: the most frequent object names, a random test set.",
        ("objects.json", "VG_100K/ and VG_100K_2/"),
        read_objects,
        (
            Option("classes", "integer", NUM_CLASSES, "How many of the most frequent names are classes."),
            Option("test_images", "integer", 10_000, "How many images, drawn at random, are the test set."),
            Option("seed", "integer", 0, "Seed of that draw."),
        ),
    )
)

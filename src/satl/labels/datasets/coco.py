"""MS-COCO 2014 and 2017, any other set of COCO files, and LVIS.

Classes are ordered by category id. An annotation of any size, a crowd included, makes its class present.
Rows keep the order of ``images`` in each file, which is the order of the published masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from satl.errors import ConfigError, TableError
from satl.labels.datasets.layout import joined, relative, require_file, require_one, splits_option, within
from satl.labels.datasets.registry import Dataset, Option, register_dataset
from satl.labels.io.instances import Instances, read_instances
from satl.labels.table import LabelTable

_PUBLISHED_SPLITS = splits_option(
    ("train", "test"),
    ("train", "test"),
    "Parts to read; the published validation set is `test`, because papers report on it.",
)
_DROP = Option(
    "drop_unlabelled",
    "flag",
    False,
    "Leave out images without any annotation, which are otherwise rows in which everything is absent.",
)
_OWN_SPLITS = ("train", "val", "test")


def read_published(root: Path, *, year: int, splits: Sequence[str], drop_unlabelled: bool) -> LabelTable:
    """Read COCO of one year: ``annotations/instances_{train,val}YEAR.json``."""
    files = []
    for split in splits:
        published = "train" if split == "train" else "val"
        name = f"instances_{published}{year}.json"
        path = require_file(
            root / "annotations" / name,
            f"give the folder with annotations/{name} and {published}{year}/, "
            f"or leave the part out with the option splits",
        )
        files.append((split, path, f"{published}{year}"))
    return _read(root, files, drop_unlabelled, complete=True)


def read_own(root: Path, *, drop_unlabelled: bool, **paths: Path | None) -> LabelTable:
    """Read the COCO files that the options ``train``, ``val`` and ``test`` name."""
    files = []
    for split in _OWN_SPLITS:
        path, folder = paths[split], paths[f"{split}_images"]
        if path is None:
            if folder is not None:
                raise ConfigError(
                    f"option {split}_images of data set 'coco' needs option {split}, its json file."
                )
            continue
        require_file(path, f"correct the option {split}")
        files.append((split, path, "" if folder is None else relative(folder, root)))
    if not files:
        raise ConfigError("data set 'coco' needs the option train, a COCO json file relative to root.")
    return _read(root, files, drop_unlabelled, complete=True)


def read_lvis(root: Path, *, splits: Sequence[str], drop_unlabelled: bool) -> LabelTable:
    """Read LVIS: ``lvis_v1_{train,val}.json`` in the root or in ``annotations``."""
    files = []
    for split in splits:
        name = f"lvis_v1_{'train' if split == 'train' else 'val'}.json"
        path = require_one(
            root,
            (name, f"annotations/{name}"),
            f"give the folder with {name}, train2017/ and val2017/, "
            f"or leave the part out with the option splits",
        )
        files.append((split, path, ""))
    return _read(root, files, drop_unlabelled, complete=False)


def _read(
    root: Path, files: Sequence[tuple[str, Path, str]], drop_unlabelled: bool, *, complete: bool
) -> LabelTable:
    first: Instances | None = None
    parts = []
    for split, path, folder in files:
        found = read_instances(path)
        if found.complete != complete:
            raise TableError(
                f"{path} has no 'neg_category_ids', so it is not an LVIS file: use the data set coco."
                if found.complete
                else f"{path} has 'neg_category_ids', so it is an LVIS file: use the data set lvis."
            )
        if first is None:
            first = found
        elif found.categories != first.categories:
            raise TableError(_other_categories(first, found))
        images = [within(folder, name) for name in found.images]
        cells = found.cells()
        if drop_unlabelled:
            kept = found.labelled()
            images = [name for name, keep in zip(images, kept.tolist(), strict=True) if keep]
            cells = cells[kept]
        parts.append((split, images, cells))
    assert first is not None
    return joined(root, first.names, parts)


def _other_categories(one: Instances, other: Instances) -> str:
    mine, yours = set(one.categories), set(other.categories)
    number, name = min(mine ^ yours)
    has, lacks = (one, other) if (number, name) in mine else (other, one)
    return (
        f"{lacks.path} lacks category {number} ({name!r}), which {has.path} has: "
        f"use annotation files of the same categories."
    )


for _year in (2014, 2017):
    register_dataset(
        Dataset(
            f"coco{_year}",
            f"MS-COCO {_year}: 80 classes, every image searched for each of them.",
            (
                f"annotations/instances_train{_year}.json",
                f"annotations/instances_val{_year}.json",
                f"train{_year}/",
                f"val{_year}/",
            ),
            partial(read_published, year=_year),
            (_PUBLISHED_SPLITS, _DROP),
        )
    )
register_dataset(
    Dataset(
        "coco",
        "Your own annotation files in the COCO format.",
        ("the json file that the option train names", "the images"),
        read_own,
        (
            *(
                Option(split, "path", None, f"Annotation file of the {split} images.")
                for split in _OWN_SPLITS
            ),
            *(
                Option(
                    f"{split}_images", "path", None, f"Folder of the {split} images; the root if not given."
                )
                for split in _OWN_SPLITS
            ),
            _DROP,
        ),
    )
)
register_dataset(
    Dataset(
        "lvis",
        "LVIS v1: 1,203 classes; per image, few are known to be absent and most are unknown.",
        ("lvis_v1_train.json", "lvis_v1_val.json", "train2017/", "val2017/"),
        read_lvis,
        (_PUBLISHED_SPLITS, _DROP),
    )
)

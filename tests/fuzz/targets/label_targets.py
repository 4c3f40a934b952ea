"""Label tables: every format, every data set, and tables drawn at random through every format."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from random import Random
from zlib import crc32

from fuzz.oracles import check_every_format, check_table, random_table
from fuzz.targets.registry import Target, register, register_file
from satl.errors import EncodingError
from satl.labels import open_table, read_dataset
from satl.labels.encodings import ENCODINGS

_TABLES = {
    "wide.csv": ("text", ("quoted.csv", "words.csv")),
    "wide.tsv": ("text", ()),
    "long.csv": ("text", ("openimages.csv",)),
    "positives.csv": ("text", ()),
    "table.jsonl": ("jsonl", ()),
    "wide.parquet": ("parquet", ("words.parquet",)),
    "long.parquet": ("parquet", ()),
    "table.npz": ("npz", ("csl.npz",)),
    "coco.json": ("json", ()),
    "lvis.json": ("json", ()),
    "wide.csv.gz": ("gzip", ()),
    "wide.tsv.gz": ("gzip", ()),
    "table.jsonl.gz": ("gzip", ()),
    "wide.feather": ("arrow", ("packed.feather",)),
    "long.feather": ("arrow", ()),
}
if find_spec("openpyxl"):
    _TABLES["wide.xlsx"] = ("zip", ("sheets.xlsx",))
_DATASETS = {
    ("coco2014", "annotations/instances_train2014.json", "json"): {},
    ("voc2007", "Annotations/000005.xml", "xml"): {"labels": "xml"},
    ("voc2007", "ImageSets/Main/trainval.txt", "text"): {"labels": "xml"},
    ("voc2007", "ImageSets/Main/dog_trainval.txt", "text"): {"labels": "txt"},
    ("vg200", "vg_category_200_labels_index.json", "json"): {},
    ("vg200", "train_list_500.txt", "text"): {},
    ("vg200_from_objects", "objects.json", "json"): {"classes": 2, "test_images": 2},
    ("chexpert", "train.csv", "text"): {"uncertain": "unknown"},
    ("openimages", "class-descriptions-boxable.csv", "text"): {},
    ("openimages", "train-annotations-human-imagelabels-boxable.csv", "text"): {},
}


def _check_table(name: str, work: Path, data: bytes) -> bool:
    file = work / name
    file.write_bytes(data)
    number = crc32(data)
    try:
        opened = open_table(file)
    except EncodingError:
        opened = open_table(file, tuple(ENCODINGS)[number % len(ENCODINGS)])
    check_table(opened, work, thorough=number % 8 == 0)
    return True


def _check_round_trip(work: Path, data: bytes) -> bool:
    return check_every_format(random_table(Random(data)), work)


for _name, (_kind, _seeds) in _TABLES.items():
    register(Target(f"labels/{_name}", _kind, partial(_check_table, _name), _seeds))
register(Target("labels/random_table", "bytes", _check_round_trip, share=0.25))
for (_name, _file, _kind), _options in _DATASETS.items():
    register_file(
        f"{_name}/{_file}",
        _kind,
        partial(
            lambda work, name, options: read_dataset(name, work, **options), name=_name, options=_options
        ),
        share=0.25 if "txt" in _options.values() else 0.5,
    )

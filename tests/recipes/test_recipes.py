"""Recipes hold the published settings, and every one of them trains on a miniature of its data set."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labels.trees import VOC_OBJECT, VOC_XML, coco_content, write_json
from satl.errors import ConfigError
from satl.methods import METHODS
from satl.recipes import read_recipe, recipe_datasets, recipe_names
from satl.runs.data import load_data
from satl.runs.reading import apply_overrides, make_config
from satl.runs.run_folder import RunFolder
from satl.training.trainer import Trainer

PAPER = ("ssgrl", "ml-gcn", "kggr", "sst", "hst", "sst+satl", "hst+satl")
SMALL = (
    "images.store_size=32",
    "images.size=32",
    "images.crop_sizes=[32, 24]",
    "images.workers=0",
    "model.backbone=resnet18",
    "model.backbone_kwargs={layers: [1, 1, 1, 1], channels: [8, 8, 16, 16], output_stride: 16}",
    "model.pretrained=false",
    "model.feature_dim=8",
    "model.embedding_dim=8",
    "training.epochs=3",
    "training.stage1_epochs=1",
    "training.batch_size=4",
    "training.device=cpu",
    "data.validation=0.25",
    "data.proportion=0.6",
)
TRAIN, TEST = 12, 4


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SATL_CACHE", str(tmp_path / "cache"))


def picture(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 255, (24, 28, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def coco(root: Path) -> Path:
    categories = ((1, "person"), (2, "bicycle"), (90, "toothbrush"))
    for part, count in (("train", TRAIN), ("val", TEST)):
        names = {number: f"COCO_{part}2014_{number:012d}.jpg" for number in range(1, count + 1)}
        labels = [(number, (1, 2, 90)[number % 3]) for number in names] + [(1, 1), (2, 90), (3, 2)]
        content = coco_content(names, labels, categories)
        write_json(root / "annotations" / f"instances_{part}2014.json", content)
        for number, name in names.items():
            picture(root / f"{part}2014" / name, number)
    return root


def vg200(root: Path) -> Path:
    root.mkdir(parents=True)
    index = {}
    for part, first, count in (("train", 1, TRAIN), ("test", 101, TEST)):
        names = [f"{number}.jpg" for number in range(first, first + count)]
        (root / f"{part}_list_500.txt").write_text("\n".join(names))
        for number, name in enumerate(names, start=first):
            index[name] = [number % 3, 3 + number % 5, 199]
            picture(root / ("VG_100K", "VG_100K_2")[number % 2] / name, number)
    write_json(root / "vg_category_200_labels_index.json", index)
    return root


def voc2007(root: Path) -> Path:
    lists = {"trainval": range(1, TRAIN + 1), "test": range(101, 101 + TEST)}
    (root / "Annotations").mkdir(parents=True)
    (root / "ImageSets" / "Main").mkdir(parents=True)
    for part, numbers in lists.items():
        (root / "ImageSets" / "Main" / f"{part}.txt").write_text("".join(f"{n:06d}\n" for n in numbers))
        for number in numbers:
            kinds = {("person", "car", "dog")[number % 3], ("person", "chair")[number % 2]}
            objects = "".join(VOC_OBJECT.format(name=kind, difficult=0) for kind in sorted(kinds))
            text = VOC_XML.format(name=f"{number:06d}", objects=objects)
            (root / "Annotations" / f"{number:06d}.xml").write_text(text)
            picture(root / "JPEGImages" / f"{number:06d}.jpg", number)
    return root


TREES: dict[str, tuple[Callable[[Path], Path], int]] = {
    "coco": (coco, 3),
    "vg200": (vg200, 200),
    "voc2007": (voc2007, 20),
}


def small(name: str) -> list[str]:
    """Return overrides that make a recipe tiny without touching what it says about the method."""
    model = read_recipe(name)["model"]
    return [
        *SMALL,
        *(f"model.{key}=8" for key in ("attention_dim", "pair_dim", "pair_hidden") if key in model),
    ]


@pytest.mark.parametrize(("dataset", "method"), list(itertools.product(TREES, PAPER)))
def test_every_recipe_of_the_paper_trains_small(dataset: str, method: str, tmp_path: Path) -> None:
    make, classes = TREES[dataset]
    name = f"{dataset}/{method}"
    root = make(tmp_path / "data")
    overrides = [f"data.root={root}", *small(name)]
    config = make_config(apply_overrides(read_recipe(name), overrides), name)
    data = load_data(config)
    assert data.table.num_classes == classes
    assert [len(data.rows(split)) for split in ("train", "val", "test")] == [9, 3, 4]
    trainer = Trainer.start(config, data, RunFolder(tmp_path / "run"))
    trainer.fit()
    last = RunFolder.open(tmp_path / "run").read_metrics()[-1]
    assert np.isfinite(last["losses"]["total"])
    tested = trainer.validate("test")
    assert tested.num_classes == classes
    assert 0 <= tested.mAP <= 1


def test_every_method_has_a_recipe_for_every_data_set() -> None:
    assert recipe_datasets() == ("coco", "vg200", "voc2007")
    assert len(recipe_names()) == 3 * len(METHODS)
    for name in recipe_names():
        config = make_config(apply_overrides(read_recipe(name), ["data.root=folder"]), name)
        assert config.method.name == name.split("/")[1]
        assert config.model.backbone == "resnet101"
        assert config.model.pretrained
        assert (config.images.store_size, config.images.size) == (512, 448)
        assert config.images.crop_sizes == (512, 448, 384, 320, 256)
        assert (config.training.epochs, config.training.stage1_epochs) == (20, 5)


@pytest.mark.parametrize(
    ("method", "batch", "rate", "stages", "pool"),
    [
        ("sst", 8, 1e-5, ("layer4",), 2),
        ("sst+satl", 8, 1e-5, ("layer4",), 2),
        ("hst", 32, 1e-5, ("layer4",), 2),
        ("hst+satl", 32, 1e-5, ("layer4",), 2),
        ("ssgrl", 8, 1e-5, ("layer4",), 2),
        ("kggr", 8, 1e-5, ("layer4",), 2),
        ("ml-gcn", 32, 0.01, "all", 1),
    ],
)
def test_published_numbers(method: str, batch: int, rate: float, stages: object, pool: int) -> None:
    config = make_config(apply_overrides(read_recipe(f"coco/{method}"), ["data.root=folder"]), method)
    assert config.training.batch_size == batch
    assert config.training.lr == rate
    assert config.model.train_stages == stages
    assert config.model.pool == pool
    if "+satl" in method:
        thresholds = config.method.thresholds
        assert (thresholds["negative_quantile"], thresholds["positive_quantile"]) == (0.999, 0.1)
        assert thresholds["rate"] is None  # follows the known proportion
        assert config.method.losses["ranking"]["weight"] == 0.01
    if method.startswith("sst"):
        assert config.method.generators["cross"]["bank_size"] == 100  # type: ignore[index]
    if method.startswith("hst"):
        assert config.method.generators["prototype"]["size"] == 10  # type: ignore[index]


def test_a_misspelt_recipe_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"recipe='coco/sst\+sat1': there is no such recipe \(did you mean"):
        read_recipe("coco/sst+sat1")

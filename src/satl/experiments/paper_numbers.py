"""The numbers of the SATL paper as data, and which methods it compares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

FRAMEWORKS = ("sst", "hst")
"""The frameworks that the paper adds SATL to, in the order of its tables."""
ABLATION: dict[str, dict[tuple[str, ...], str]] = {
    "sst": {(): "sst", ("sate",): "sst+sate", ("drl",): "sst+drl", ("sate", "drl"): "sst+satl"},
    "hst": {(): "hst", ("sate",): "hst+sate", ("drl",): "hst+drl", ("sate", "drl"): "hst+satl"},
}
"""Framework -> what is added to it -> the method. Stands here as well as in the methods themselves, because reports are
written without torch, and of runs whose methods are no longer installed; a test compares both."""
WITH_SATL = {base: methods["sate", "drl"] for base, methods in ABLATION.items()}
"""Framework -> the same with SATL."""
BASES = {method: base for base, methods in ABLATION.items() for adds, method in methods.items() if adds}
"""Method -> the framework that it extends."""


class Paper:
    """The numbers of the paper: Tables 1 to 4, findings in its text, and notes where numbers do not add up.

    >>> paper().map_of("MS-COCO", "sst+satl")[0][0.1]
    (73.7, 0.3)
    """

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content
        self.reference: str = content["reference"]
        self.label: str = content["label"]
        self.datasets: tuple[str, ...] = tuple(content["datasets"])
        self.proportions: tuple[float, ...] = tuple(content["proportions"])

    def methods(self, table: str, dataset: str) -> tuple[str, ...]:
        """Return the methods of a table, in its order."""
        return tuple(self.content[table][dataset])

    def map_of(
        self, dataset: str, method: str
    ) -> tuple[dict[float, tuple[float, float]], tuple[float, float]]:
        """Return Table 1's mean and deviation by proportion, and those of the average."""
        row = self.content["table1"][dataset][method]
        pairs = list(zip(row["mean"], row["deviation"], strict=True))
        return dict(zip(self.proportions, pairs[:-1], strict=True)), pairs[-1]

    def f1_of(self, dataset: str, method: str) -> tuple[float, float]:
        """Return Table 2's OF1 and CF1 of one of its methods."""
        overall, by_class = self.content["table2"][dataset][method]
        return overall, by_class

    def test_of(self, subject: str, other: str) -> tuple[float, float] | None:
        """Return Table 3's t and p of ``subject`` against ``other``, if it has them."""
        row = self.content["table3"].get(subject, {}).get(other)
        return None if row is None else (row[0], row[1])

    def ablation_of(self, dataset: str, method: str) -> tuple[dict[float, float], float] | None:
        """Return Table 4's mAP by proportion and its average, if the method is in it."""
        row = self.content["table4"][dataset].get(method)
        return None if row is None else (dict(zip(self.proportions, row[:-1], strict=True)), row[-1])

    def notes(self, table: str) -> tuple[str, ...]:
        """Return notes where the numbers of a table do not add up."""
        return tuple(self.content["notes"].get(table, ()))

    def prose(self, key: str) -> str:
        """Return a finding that the paper gives in its text only."""
        return str(self.content["prose"][key]["text"])

    def prose_of_setting(self, setting: str) -> tuple[str, ...]:
        """Return the findings about a setting such as ``method.thresholds.rate``."""
        found = (entry for entry in self.content["prose"].values() if entry.get("setting") == setting)
        return tuple(str(entry["text"]) for entry in found)

    def same_dataset(self, name: str) -> str | None:
        """Return the paper's name of a data set, or None if the paper does not use it.

        >>> paper().same_dataset("COCO 2014"), paper().same_dataset("scenes")
        ('MS-COCO', None)
        """
        plain = re.sub(r"[^a-z0-9]", "", name.lower())
        for dataset, aliases in self.content["aliases"].items():
            if plain in (re.sub(r"[^a-z0-9]", "", dataset.lower()), *aliases):
                return str(dataset)
        return None

    def differences(self, dataset: str, facts: Mapping[str, Any]) -> list[str]:
        """Return how an experiment differs from that of the paper, in a few words each.

        Args:
            dataset: of the experiment.
            facts: its ``backbone``, ``pretrained``, ``image_size`` and, where it was noted, ``word_vectors``.
        """
        parts = []
        if self.same_dataset(dataset) is None:
            parts.append(f"data set {dataset} instead of {' and '.join(self.datasets)}")
        if facts["backbone"] != self.content["backbone"]:
            parts.append(f"backbone {facts['backbone']} instead of ResNet-101")
        if facts["image_size"] is None:
            parts.append(f"images of the backbone's own size instead of {self.content['image_size']} px")
        elif facts["image_size"] != self.content["image_size"]:
            parts.append(f"images of {facts['image_size']} px instead of {self.content['image_size']} px")
        if not facts["pretrained"]:
            parts.append("weights from scratch instead of ImageNet")
        if not facts.get("word_vectors", True):
            parts.append("class embeddings without word vectors instead of GloVe")
        return parts


@cache
def paper() -> Paper:
    """Return the paper's numbers."""
    text = files("satl.experiments").joinpath("paper.yaml").read_text(encoding="utf-8")
    return Paper(yaml.safe_load(text))

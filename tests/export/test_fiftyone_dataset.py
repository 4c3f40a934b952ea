"""An evaluation written into a dataset of FiftyOne, by a stand-in that keeps what it is told as FiftyOne does.

What it answers was compared with FiftyOne 1.22.1 and its database.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from PIL import Image

from satl.errors import ConfigError, RunError
from satl.export.fiftyone_dataset import EvaluationDataset
from satl.inference.run_evaluation import MeasuredImages

CLASSES = ("cat", "dog", "owl")


class StandIn(SimpleNamespace):
    """A dataset: samples by their path, and fields."""

    stored: ClassVar[dict[str, StandIn]] = {}

    def __init__(self, name: str, persistent: bool = False) -> None:
        super().__init__(samples={}, fields={"id", "filepath"}, info={}, persistent=persistent, saved={})
        self.stored[name] = self

    def get_field_schema(self) -> dict[str, None]:
        return dict.fromkeys(self.fields)

    def values(self, names: Sequence[str]) -> list[list[Any]]:
        assert names == ["filepath", "id"]
        return [list(self.samples), [sample["id"] for sample in self.samples.values()]]

    def add_samples(self, samples: Sequence[SimpleNamespace], progress: bool) -> list[str]:
        print("100% |####|")  # as FiftyOne does
        for sample in samples:
            self.samples[sample.filepath] = {"id": f"id-{len(self.samples)}"}
        return [self.samples[sample.filepath]["id"] for sample in samples]

    def set_values(
        self, field: str, values: dict[str, Any], key_field: str, dynamic: bool, progress: bool
    ) -> None:
        assert key_field == "id"
        assert dynamic
        self.fields.add(field)
        for sample in self.samples.values():
            if sample["id"] in values:
                sample[field] = values[sample["id"]]

    def delete_sample_fields(self, fields: Sequence[str]) -> None:
        self.fields -= set(fields)
        for sample in self.samples.values():
            for field in fields:
                sample.pop(field, None)

    def save(self) -> None:
        self.saved = dict(self.info)


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> dict[str, StandIn]:
    """The datasets of a database in which there is nothing."""
    module: Any = ModuleType("fiftyone")
    datasets: dict[str, StandIn] = {}
    monkeypatch.setattr(StandIn, "stored", datasets)
    module.Dataset, module.dataset_exists, module.load_dataset = (
        StandIn,
        datasets.__contains__,
        datasets.__getitem__,
    )
    module.Sample = module.Classification = module.Classifications = SimpleNamespace
    monkeypatch.setitem(sys.modules, "fiftyone", module)
    monkeypatch.setenv("FIFTYONE_DO_NOT_TRACK", "true")
    return datasets


def measured(*names: str, files: bool = True) -> MeasuredImages:
    """Return what was measured of pictures: a right and a wrong call, one nobody knows, and a miss."""
    cells = np.tile(np.array([1, -1, 0], dtype=np.int8), (len(names), 1))
    scores = np.tile(np.array([0.9, 0.8, 0.7], dtype=np.float32), (len(names), 1))
    scores[1:, 0] = 0.1
    limits = np.full(3, 0.5, dtype=np.float32)
    places = tuple(f"photos/{name}" for name in names) if files else None
    return MeasuredImages(names, places, CLASSES, cells, scores, limits, {"mAP": 0.5, "split": "test"})


def said(sample: dict[str, Any], field: str) -> list[tuple[str, str]]:
    return [(label.label, label.eval) for label in sample[field].classifications]


def test_right_wrong_unknown_and_missed(
    stored: dict[str, StandIn], capsys: pytest.CaptureFixture[str]
) -> None:
    assert EvaluationDataset("birds").write(measured("a.jpg", "b.jpg")) == 2
    dataset = stored["birds"]
    assert dataset.persistent
    assert dataset.saved == {"satl": {"written_by_satl": True, "mAP": 0.5, "split": "test"}}
    first, second = dataset.samples.values()
    assert list(dataset.samples) == [
        str(Path("photos/a.jpg").absolute()),
        str(Path("photos/b.jpg").absolute()),
    ]
    assert said(first, "satl") == [("cat", "tp"), ("dog", "fp"), ("owl", "unknown")]
    assert said(first, "satl_missed") == []
    assert [first[f"satl_{part}"] for part in ("tp", "fp", "fn")] == [1, 1, 0]
    assert first["satl"].classifications[0].confidence == pytest.approx(0.9)
    assert said(second, "satl_missed") == [("cat", "fn")]
    assert [second[f"satl_{part}"] for part in ("tp", "fp", "fn")] == [0, 1, 1]
    assert capsys.readouterr().out == ""  # what FiftyOne prints must not end in the JSON of a command


def test_what_a_dataset_has_stays_and_an_earlier_evaluation_goes(stored: dict[str, StandIn]) -> None:
    dataset = StandIn("birds")
    here = str(Path("photos/a.jpg").absolute())
    dataset.samples[here] = {"id": "x", "ground_truth": "mine"}
    assert EvaluationDataset("birds").write(measured("a.jpg", "b.jpg")) == 1
    assert EvaluationDataset("birds").write(measured("b.jpg")) == 0  # another split, say
    assert dataset.samples[here] == {"id": "x", "ground_truth": "mine"}
    assert EvaluationDataset("birds", "other").write(measured("a.jpg")) == 0
    assert {"satl", "other"} <= dataset.fields


def test_an_evaluation_that_was_interrupted_is_written_again(
    stored: dict[str, StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ConnectionError("connection closed\nby the other side")

    with monkeypatch.context() as patched:
        patched.setattr(StandIn, "set_values", broken)
        with pytest.raises(RunError, match=r"closed\); look whether its database runs"):
            EvaluationDataset("birds").write(measured("a.jpg"))
    assert stored["birds"].saved == {"satl": {"written_by_satl": True, "unfinished": True}}
    assert EvaluationDataset("birds").write(measured("a.jpg")) == 0
    assert "unfinished" not in stored["birds"].saved["satl"]


def test_a_field_of_somebody_else_is_not_overwritten(stored: dict[str, StandIn]) -> None:
    StandIn("birds").fields |= {"satl_tp"}
    with pytest.raises(
        RunError, match="'birds': has a field 'satl_tp' that satl did not write; choose another name"
    ):
        EvaluationDataset("birds")


@pytest.mark.parametrize("key", ["", "two words", "_mine", "a.b"])
def test_names_that_are_no_fields(stored: dict[str, StandIn], key: str) -> None:
    with pytest.raises(ConfigError, match="is no name of a field"):
        EvaluationDataset("birds", key)


def test_without_files_the_folder_is_asked_for(stored: dict[str, StandIn], tmp_path: Path) -> None:
    packed = measured("a", files=False)
    with pytest.raises(RunError, match="FiftyOne shows pictures; name their folder"):
        EvaluationDataset("birds").write(packed)
    assert stored == {}
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
    assert EvaluationDataset("birds").write(packed, tmp_path) == 1
    assert list(stored["birds"].samples) == [str(tmp_path / "a.jpg")]


def test_without_the_package_or_its_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fiftyone", None)
    with pytest.raises(
        ConfigError, match=r"needs the package fiftyone; run `pip install 'satl\[fiftyone\]'`"
    ):
        EvaluationDataset("birds")

    def nowhere(name: str) -> bool:
        raise TimeoutError("no server")

    monkeypatch.setitem(sys.modules, "fiftyone", SimpleNamespace(dataset_exists=nowhere))
    with pytest.raises(RunError, match=r"TimeoutError: no server\); look whether its database runs"):
        EvaluationDataset("birds")

"""The card of a model says what its run says, is read by the Hub's own library, and gives away no folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import ModelCard

from satl.errors import RunError
from satl.inference.recogniser import Recogniser
from satl.inference.run_evaluation import evaluate_run
from satl.labels import LabelTable, write_table
from satl.reports.model_card import model_card
from satl.reports.sharing import shared_folder
from satl.runs.data import load_data
from satl.runs.reading import make_config
from satl.runs.run_folder import RunFolder
from training.tiny import KillAt, Killed, metrics, tiny_config, train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, evaluated; do not change it."""
    folder = tmp_path_factory.mktemp("runs") / "a_run"
    train(folder, tiny_config("training.epochs=3", "training.stage1_epochs=1"))
    evaluate_run(folder)
    return folder


def table_rows(card: str) -> dict[str, list[str]]:
    rows = [line.strip("| ").split(" | ") for line in card.splitlines() if line.startswith("| ")]
    return {row[0]: row[1:] for row in rows}


def test_the_card_says_what_the_run_says(run: Path) -> None:
    card = model_card(run)
    rows, data = table_rows(card), load_data(RunFolder(run).read_config())
    cells = data.table.cells[data.rows("train")]
    assert rows["images, train"] == ["64"]
    assert rows["known training cells"] == [f"{100 * (cells != 0).mean():.1f} %"]
    for column, name in enumerate(data.table.classes):
        known = [(cells[:, column] > 0).sum(), (cells[:, column] < 0).sum()]
        assert rows[name] == [str(number) for number in known]
    told = metrics(run)
    best = max(range(3), key=lambda epoch: told[epoch]["val"]["mAP"])
    assert rows["validation, last epoch (3)"][0] == f"{100 * told[2]['val']['mAP']:.2f}"
    assert rows[f"validation, best epoch ({best + 1})"][0] == f"{100 * told[best]['val']['mAP']:.2f}"
    tested = json.loads((run / "evaluation-test.json").read_text())
    assert rows["test, checkpoint best, present from 0.5 for every class"][0] == f"{100 * tested['mAP']:.2f}"
    rare = [name for name, few in zip(data.table.classes, (cells > 0).sum(0) < 10, strict=True) if few]
    assert f"Fewer than 10 known positives to learn from: {', '.join(rare)}." in card
    assert "Nothing is promised" in card
    assert "## Certificates" not in card


def test_the_hub_reads_the_header(run: Path) -> None:
    content = ModelCard(model_card(run)).data.to_dict()
    tested = json.loads((run / "evaluation-test.json").read_text())
    assert (content["library_name"], content["pipeline_tag"]) == ("satl", "image-classification")
    assert "license" not in content  # which is the user's to choose
    (result,) = content["model-index"][0]["results"]
    assert {one["type"]: one["value"] for one in result["metrics"]}["mAP"] == round(tested["mAP"], 6)
    assert (
        ModelCard(model_card(run).replace("# license: choose one and remove", "license: mit #")).data.license
        == "mit"
    )


def test_a_run_of_an_earlier_version_and_one_that_is_not_finished(run: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(run, old)
    facts = json.loads((old / "data.json").read_text())
    counts = facts.pop("counts")
    (old / "data.json").write_text(json.dumps(facts))
    assert table_rows(model_card(old))["car"] == []
    (old / "data.json").write_text(json.dumps({**facts, "counts": {**counts, "positives": [1]}}))
    with pytest.raises(RunError, match="does not fit classes"):
        model_card(old)
    (old / "data.json").write_text(json.dumps({**facts, "counts": {**counts, "positives": "many"}}))
    with pytest.raises(RunError, match="cannot be read"):
        model_card(old)

    config = tiny_config()
    with pytest.raises(Killed):
        train(tmp_path / "cut", config, KillAt(epoch=2, step=1))
    with pytest.raises(RunError, match=r"not finished \(2 of 4 epochs\)"):
        model_card(tmp_path / "cut")


def test_names_are_read_as_they_are(tmp_path: Path) -> None:
    """Signs of Markdown and HTML in the names of classes change nothing but themselves."""
    names = ("a|b", "<b>bold</b>", "[x](http://e.org)", "new & line", "*star*", "`tick`")
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(60, 8)).astype(np.float32)
    table = LabelTable(
        [f"i{n}" for n in range(60)], names, rng.choice([1, -1, 0], size=(60, 6)), encoding="signed"
    )
    write_table(table, tmp_path / "labels.npz")
    np.savez(tmp_path / "features.npz", ids=np.array(table.images), features=vectors)
    data = {"table": str(tmp_path / "labels.npz"), "features": str(tmp_path / "features.npz")}
    training = {"epochs": 2, "stage1_epochs": 1, "batch_size": 8, "device": "cpu"}
    train(tmp_path / "run", make_config({"data": data, "training": training}, "here"))
    card = model_card(tmp_path / "run")
    escaped = (
        r"a\|b",
        "&lt;b>bold&lt;/b>",
        r"\[x\](http://e.org)",
        "new &amp; line",
        r"\*star\*",
        r"\`tick\`",
    )
    for name in escaped:
        assert f"| {name} | " in card
    assert str(tmp_path) not in card
    assert "labels.npz" in card

    with shared_folder(tmp_path / "run") as shared:
        expected = Recogniser.load(tmp_path / "run").predict(vectors)
        assert np.array_equal(Recogniser.load(shared.path).predict(vectors), expected)


def test_a_model_that_saw_no_pseudo_labels_says_so(tmp_path: Path) -> None:
    silent = ("method.name=sst", "method.thresholds.start=1.0", "method.thresholds.end=1.0")
    train(tmp_path / "run", tiny_config(*silent))
    card = model_card(tmp_path / "run")
    assert "Pseudo-labels in the last epoch: 0. That is next to none of the " in card
    assert "the model has learned from the known cells alone." in card

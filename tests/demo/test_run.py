from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from satl.completion.outputs.completed_folder import CompletedFolder
from satl.demo.demo_run import DEMO_METHODS, demo_config, demo_content, run_demo
from satl.errors import ConfigError, SatlError, Stopped
from satl.training.display import Display
from satl.training.trainer import Interrupted

TINY = (
    "data.scenes={train: 48, val: 16, test: 24, size: 32, seed: 0}",
    "images={size: 32, crop_sizes: [32, 28]}",
    "warm_up={pictures: 40, epochs: 1, batch_size: 16}",
    "model.backbone_kwargs={widths: [8, 8, 8]}",
    "model.feature_dim=8",
    "model.attention_dim=8",
    "model.pair_dim=4",
    "model.pair_hidden=4",
    "model.embedding_dim=4",
    "training={epochs: 2, stage1_epochs: 1, batch_size: 16, lr: 0.001, device: cpu}",
    "methods.sst.thresholds={start: 0.3, end: 0.2}",
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "out"
    said: list[str] = []
    return run_demo(out, 0, TINY, announce=said.append), out, said


def test_every_method_is_a_run_of_the_same_configuration(demo):
    _, out, _ = demo
    configs = {name: yaml.safe_load((out / name / "config.yaml").read_text()) for name in DEMO_METHODS}
    methods = {name: config.pop("method") for name, config in configs.items()}
    assert [methods[name]["name"] for name in DEMO_METHODS] == list(DEMO_METHODS)
    assert methods["sst"]["thresholds"]["start"] == 0.3
    assert configs["ignore"] == configs["sst"] == configs["sst+satl"]


def test_what_is_left_behind(demo):
    result, out, said = demo
    assert {entry.name for entry in out.iterdir()} == {
        *DEMO_METHODS,
        "demo.yaml",
        "report.html",
        "results.json",
        "overview.png",
        "completed",
        "pictures",
        "warm_up",
    }
    results = json.loads(result.results.read_text())
    assert list(results["methods"]) == list(DEMO_METHODS)
    assert results["sentence"] == result.sentence
    tested = json.loads((out / "sst" / "evaluation-test.json").read_text())
    assert results["methods"]["sst"]["test"]["mAP"] == tested["mAP"]
    assert result.report.read_text().count("<h2>") >= 6
    assert sum(text.startswith("Training ") for text in said) == 3


def test_a_table_is_completed_and_known_cells_stay(demo):
    result, out, _ = demo
    folder = CompletedFolder.open(out / "completed")
    given, completed = folder.read_labels(), folder.read_completed()
    cells = result.comparison.cells
    assert given.images[:48] == result.comparison.images
    assert (given.cells[:48] == cells).all()
    assert (given.cells[48:] != 0).all()  # the validation scenes, on which the certificates rest
    known = given.cells != 0
    assert (completed.cells[known] == given.cells[known]).all()
    report = json.loads((out / "completed" / "report.json").read_text())
    assert f"{16 * given.num_classes:,} of {known.sum():,} known cells" in report["model"]
    assert Path(report["images"]) == (out / "pictures").resolve()
    assert {path.name for path in (out / "pictures").iterdir()} == set(given.images)
    counts = json.loads(result.results.read_text())["completion"]
    filled = int((completed.cells != 0).sum() - known.sum())
    assert counts["present"] + counts["absent"] == filled
    assert filled + counts["left"] + counts["review"] == (~known).sum()


def test_the_record_is_that_of_the_last_model(demo):
    result, _, _ = demo
    comparison = result.comparison
    assert comparison.cells.shape == (48, len(comparison.classes))
    assert 0.05 < comparison.proportion < 0.2
    assert comparison.truth is not None
    assert (comparison.truth != 0).all()
    known = comparison.cells != 0
    assert (comparison.cells[known] == comparison.truth[known]).all()
    ignore, sst, satl = comparison.methods
    assert ignore.generators == ()
    assert sst.generators == satl.generators == ("intra", "cross")
    last = satl.epochs[-1]["thresholds"]["cross"]
    np.testing.assert_allclose(satl.thresholds["cross"], last, atol=1e-6)


def test_a_rerun_replaces_only_what_a_demo_wrote(demo, monkeypatch):
    _, out, _ = demo
    old = out / "ignore" / "metrics.jsonl"
    before = old.read_text()
    (out / ".report.0a0b0c0d.partial.html").write_text("cut off")
    (out / "thesis.txt").write_text("mine")
    with pytest.raises(SatlError, match=r"thesis\.txt.*another folder with out"):
        run_demo(out, 0, TINY)
    assert old.read_text() == before
    (out / "thesis.txt").unlink()

    def stop(*_):
        raise Interrupted("stopped")

    monkeypatch.setattr("satl.training.trainer.Trainer.fit", stop)
    with pytest.raises(Stopped, match="while ignore was trained; run it again"):
        run_demo(out, 0, TINY, display=lambda _: Display())
    # Only the marker, the warm-up and the run that had begun are there, and a further rerun knows the folder.
    assert sorted(entry.name for entry in out.iterdir()) == ["demo.yaml", "ignore", "warm_up"]
    with pytest.raises(Stopped, match="while ignore was trained"):
        run_demo(out, 0, TINY)


def test_a_folder_of_somebody_else_is_refused(tmp_path):
    (tmp_path / "ignore").mkdir()
    with pytest.raises(SatlError, match="was not written by the demo"):
        run_demo(tmp_path, 0, TINY)
    (tmp_path / "demo.yaml").write_text("data: {}\n")
    with pytest.raises(SatlError, match="was not written by the demo"):
        run_demo(tmp_path, 0, TINY)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["demo.yaml", "ignore"]
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(SatlError, match="is a file"):
        run_demo(file, 0, TINY)


def test_the_seed_decides_pictures_mask_and_weights():
    config = demo_config("sst+satl", seed=5)
    assert config.data.scenes is not None
    assert (config.training.seed, config.data.scenes.seed, config.data.mask_seed) == (5, 5, None)
    assert demo_config("sst", seed=5, overrides=["training.seed=7"]).training.seed == 7


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("method.name=sst", "methods.NAME.key=value"),
        ("methods.sts.thresholds.rate=1", r"did you mean 'sst'\?"),
        ("methods.sst.thresholds.strat=1", "did you mean 'start'"),
        ("data.scenes=null", "needs its scenes"),
        ("data.proportion=0", "data.proportion"),
        ("training.epochz=1", "did you mean 'epochs'"),
        ("data.scenes.test=0", "at least 1"),
        ("warm_up.epoch=1", r"no key 'warm_up\.epoch' \(did you mean 'epochs'\?"),
        ("warm_up.pictures=3", r"warm_up\.pictures: .*greater than or equal to 20 \(got 3\)"),
        ("warm_up=true", "warm_up must be a section of keys, not True"),
        ("model.weights=mine.pth", r"add settings='warm_up=null'"),
        ("model.pretrained=true", r"add settings='warm_up=null'"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_written(tmp_path, override, message):
    with pytest.raises(ConfigError, match=message):
        run_demo(tmp_path / "out", 0, (*TINY, override))
    assert not (tmp_path / "out").exists()


def test_the_shipped_configuration_hides_nine_labels_of_ten():
    content = demo_content()
    assert content["data"]["proportion"] == 0.1
    assert demo_config("ignore").training.device == "cpu"

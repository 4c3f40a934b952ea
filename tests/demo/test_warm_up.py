from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from satl.demo.demo_run import DEMO_METHODS, demo_config, demo_content, run_demo, warm_up_config
from satl.demo.warm_up import WarmUpConfig, single_objects, warm_up
from satl.errors import Stopped
from satl.runs.run_folder import RunFolder
from satl.scenes import SCENE_CLASSES, render_object, render_scene
from satl.scenes.render import compose_object
from satl.training.trainer import Interrupted, Trainer

TINY = (
    "data.scenes={train: 32, val: 16, test: 16, size: 32}",
    "images={size: 32, crop_sizes: [32, 28]}",
    "warm_up={pictures: 40, epochs: 1, batch_size: 16}",
    "model.backbone_kwargs={widths: [4, 4, 8]}",
    "model.train_stages=all",
    "model.feature_dim=8",
    "model.attention_dim=8",
    "model.pair_dim=4",
    "model.pair_hidden=4",
    "model.embedding_dim=4",
    "training={epochs: 1, stage1_epochs: 1, batch_size: 16, lr: 0.001, device: cpu}",
)


def _warmed(path, seed=0, *overrides):
    overrides = (*TINY, f"training.seed={seed}", f"data.scenes.seed={seed}", *overrides)
    config = demo_config("ignore", seed, overrides)
    settings = warm_up_config(demo_content(seed, overrides))
    assert settings is not None
    done = warm_up(config, settings, path)
    return done, load_file(done.weights)


def test_a_picture_shows_one_object_and_is_no_scene():
    seeds, indices = range(3), range(40)
    scenes = {render_scene(index, 32, seed)[0].tobytes() for seed in seeds for index in indices}
    for seed in seeds:
        for index in indices:
            composed = compose_object(index, seed)
            assert len(composed.items) == 1
            pixels, category = render_object(index, 32, seed)
            assert composed.categories == [SCENE_CLASSES[category]]
            assert pixels.tobytes() not in scenes


def test_every_category_is_about_as_likely_as_any_other():
    drawn = [compose_object(index, 7).categories[0] for index in range(40 * len(SCENE_CLASSES))]
    counts = np.array([drawn.count(name) for name in SCENE_CLASSES])
    assert counts.min() > 15
    assert counts.max() < 80


def test_pictures_follow_the_seed():
    first, categories = single_objects(6, 16, 3)
    again, _ = single_objects(6, 16, 3)
    other, _ = single_objects(6, 16, 4)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.shape == (6, 3, 16, 16)
    assert categories.tolist() == [render_object(index, 16, 3)[1] for index in range(6)]


def test_the_seed_decides_the_weights_and_nothing_else_does(tmp_path):
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    _, first = _warmed(tmp_path / "a.safetensors")
    assert torch.equal(torch.random.get_rng_state(), before)  # the caller's dice are left alone
    torch.manual_seed(2)
    _, again = _warmed(tmp_path / "b.safetensors")
    _, other = _warmed(tmp_path / "c.safetensors", 1)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_it_learns_what_objects_look_like(tmp_path):
    settings = ("warm_up={pictures: 600, epochs: 6, batch_size: 16, lr: 0.01}",)
    done, _ = _warmed(tmp_path / "a.safetensors", 0, *settings, "model.backbone_kwargs={widths: [8, 16, 32]}")
    assert done.pictures == 600
    assert done.seconds > 0
    assert done.accuracy > 4 / len(SCENE_CLASSES)


def test_any_backbone_of_timm_can_be_warmed_up(tmp_path):
    overrides = (
        "model.backbone=resnet18",
        "model.backbone_kwargs={layers: [1, 1, 1, 1], channels: [8, 8, 8, 16]}",
        "warm_up.pictures=20",
    )
    done, _ = _warmed(tmp_path / "a.safetensors", 0, *overrides)
    network = demo_config("sst", 0, (*TINY, *overrides), done.weights).model
    assert network.backbone == "resnet18"
    assert network.weights == done.weights


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """A demo, the weights that each of its networks had before its first step, and what was told."""
    out, begun, told = tmp_path_factory.mktemp("demo") / "out", {}, []
    fit = Trainer.fit

    def noted(trainer):
        backbone = trainer.learner.network.backbone
        begun[trainer.config.method.name] = {
            name: value.clone() for name, value in backbone._body.state_dict().items()
        }
        return fit(trainer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "fit", noted)
        result = run_demo(out, 0, TINY, progress=lambda *part: told.append(part))
    return result, out, begun, told


def test_all_three_networks_start_from_the_warm_up(started):
    _, out, begun, _ = started
    weights = load_file(out / "warm_up" / "backbone.safetensors")
    for method in DEMO_METHODS:
        assert set(begun[method]) == set(weights)
        for name, value in weights.items():
            if not name.endswith("num_batches_tracked"):
                assert torch.equal(begun[method][name], value), (method, name)
        config = RunFolder.open(out / method).read_config()
        assert config.model.weights == (out / "warm_up" / "backbone.safetensors").resolve()


def test_the_report_says_what_the_networks_start_from(started):
    result, _, _, told = started
    assert "learned first from 40 drawn pictures of one object each" in result.report.read_text()
    told_by = json.loads(result.results.read_text())["warm_up"]
    assert told_by["pictures"] == 40
    assert told_by["seconds"] > 0
    assert told[0] == ("drawing objects", 1, 40)
    assert told[-1] == ("learning objects", 2, 2)


def test_it_can_be_switched_off(tmp_path):
    assert warm_up_config(demo_content(0, ("warm_up=null",))) is None
    result = run_demo(tmp_path / "out", 0, (*TINY, "warm_up=null"))
    assert not (tmp_path / "out" / "warm_up").exists()
    assert RunFolder.open(tmp_path / "out" / "sst").read_config().model.weights is None
    assert json.loads(result.results.read_text())["warm_up"] is None
    assert "All started from random weights." in result.report.read_text()


def test_killed_in_the_middle_it_leaves_no_half_written_file(tmp_path, monkeypatch):
    def stop(title: str, done: int, total: int) -> None:
        if title == "learning objects":
            raise KeyboardInterrupt

    out = tmp_path / "out"
    with pytest.raises(Stopped, match="stopped during its warm-up; run it again"):
        run_demo(out, 0, TINY, progress=stop)
    assert [entry.name for entry in out.iterdir()] == ["demo.yaml"]

    def halt(_):
        raise Interrupted("stopped")

    # The folder is known, and the demo starts anew; this time the warm-up ends.
    monkeypatch.setattr(Trainer, "fit", halt)
    with pytest.raises(Stopped, match="while ignore was trained"):
        run_demo(out, 0, TINY)
    assert [entry.name for entry in (out / "warm_up").iterdir()] == ["backbone.safetensors"]


def test_the_shipped_settings_are_the_documented_ones():
    assert warm_up_config(demo_content()) == WarmUpConfig()

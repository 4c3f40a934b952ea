"""A run feeds its backbone as its weights were trained, and writes down what that was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import yaml

from satl.errors import ConfigError
from satl.images import IMAGENET_MEAN, InputFormat
from satl.inference.decision_thresholds import same_threshold
from satl.inference.onnx_file import write_onnx
from satl.inference.recogniser import Recogniser
from satl.runs.config import RunConfig, changed_settings
from satl.runs.data import load_data
from satl.runs.reading import make_config
from satl.runs.run_folder import RunFolder
from satl.runs.settling import settled
from satl.training.trainer import Trainer
from training.tiny import tiny_config, train

HALF = (0.5, 0.5, 0.5)


def vit(*settings: str) -> RunConfig:
    return tiny_config("model.backbone=vit_tiny_patch16_224", "model.backbone_kwargs={depth: 1}", *settings)


def plain_config(model: dict[str, Any], **images: Any) -> RunConfig:
    return make_config({"data": {"scenes": {}}, "model": model, "images": images}, "here")


@pytest.mark.parametrize(
    ("model", "images", "taken", "img_size", "final"),
    [
        ({"backbone": "resnet101"}, {}, InputFormat(448), None, False),
        ({"backbone": "resnet50.tv_in1k"}, {}, InputFormat(448, interpolation="bilinear"), None, False),
        ({"backbone": "convnext_tiny"}, {"size": 320}, InputFormat(320), None, True),
        ({"backbone": "vit_tiny_patch16_224"}, {}, InputFormat(224, HALF, HALF), 224, True),
        ({"backbone": "vit_tiny_patch16_224"}, {"size": 64}, InputFormat(64, HALF, HALF), 64, True),
        ({"backbone": "vit_small_patch14_dinov2"}, {}, InputFormat(518), 518, True),
        (
            {"backbone": "vit_small_patch14_dinov2", "backbone_kwargs": {"img_size": 98}},
            {},
            InputFormat(98),
            98,
            True,
        ),
        (
            {"backbone": "vit_tiny_patch16_224", "backbone_kwargs": {"dynamic_img_size": True}},
            {"size": 96},
            InputFormat(96, HALF, HALF),
            None,
            True,
        ),
        (
            {"backbone": "vit_tiny_patch16_224", "final_layers": False},
            {"mean": [0.1, 0.2, 0.3], "interpolation": "bilinear"},
            InputFormat(224, (0.1, 0.2, 0.3), HALF, "bilinear"),
            224,
            False,
        ),
    ],
)
def test_what_is_not_given_is_taken_from_the_backbone(
    model: dict[str, Any], images: dict[str, Any], taken: InputFormat, img_size: int | None, final: bool
) -> None:
    config = settled(plain_config(model, **images))
    assert config.images.input == taken
    assert config.model.backbone_kwargs.get("img_size") == img_size
    assert config.model.final_layers == final
    assert settled(config) is config
    assert make_config(config.resolved(), "again") == config


def test_unsettled_images_are_no_format() -> None:
    with pytest.raises(ValueError, match="settle the configuration"):
        _ = plain_config({}).images.input


@pytest.mark.parametrize("std", [[0.2, 0.0, 0.2], [0.2, 0.2]])
def test_wrong_deviations_are_refused(std: list[float]) -> None:
    with pytest.raises(ConfigError, match=r"images\.std"):
        plain_config({}, std=std)


def test_a_vit_trains_with_its_defaults(tmp_path: Path) -> None:
    """Size, normalisation and the stages that are trained fit without a word; ONNX and the recogniser agree."""
    content = tiny_config(
        "model.backbone=vit_tiny_patch16_224", "model.backbone_kwargs={depth: 1}"
    ).resolved()
    for key in ("size", "mean", "std", "interpolation", "crop_sizes"):
        del content["images"][key]
    del content["model"]["train_stages"], content["model"]["final_layers"]
    content["model"]["backbone_kwargs"] = {"depth": 1}
    content["data"]["scenes"] |= {"train": 16, "val": 8, "test": 8}
    content["training"] |= {"epochs": 1, "stage1_epochs": 1, "batch_size": 8}
    config = make_config(content, "defaults")
    trainer = train(tmp_path / "run", config)
    backbone = trainer.learner.network.backbone
    assert backbone.trained == ("blocks.0", "norm")
    assert trainer.transform.output_size == 224

    written = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (written["images"]["size"], written["images"]["mean"]) == (224, list(HALF))
    assert (written["images"]["interpolation"], written["model"]["final_layers"]) == ("bicubic", True)
    assert written["model"]["backbone_kwargs"] == {"depth": 1, "img_size": 224}

    recogniser = Recogniser.load(tmp_path / "run", "last")
    image = torch.full((1, 3, 32, 32), 51, dtype=torch.uint8)
    torch.testing.assert_close(recogniser.transform(image), torch.full((1, 3, 224, 224), (0.2 - 0.5) / 0.5))
    file = write_onnx(
        tmp_path / "run", tmp_path / "a.onnx", lambda names: same_threshold(0.5, len(names)), "last"
    )
    facts = {entry.key: entry.value for entry in onnx.load(file.path).metadata_props}
    assert json.loads(facts["mean"]) == json.loads(facts["std"]) == list(HALF)
    assert (facts["interpolation"], facts["network_size"]) == ("bicubic", "224")
    session = onnxruntime.InferenceSession(file.path)
    data = load_data(config)
    images = np.stack([data.source.image(row).transpose(2, 0, 1) for row in range(2)])
    probabilities = session.run(["probabilities"], {"images": images})[0]
    np.testing.assert_allclose(probabilities, recogniser.probabilities(data.source, [0, 1]), atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ("images.size=50", "model.backbone_kwargs={depth: 1, dynamic_img_size: true}"),
            "set it to a multiple of 16, such as 48",
        ),
        (("images.size=64", "model.backbone_kwargs={depth: 1, img_size: 32}"), "choose another size"),
    ],
)
def test_a_size_that_does_not_fit_is_told_before_there_is_a_folder(
    settings: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    config = vit(*settings)
    with pytest.raises(ConfigError, match=rf"^images\.size: .*cannot go through vit_tiny.*; {message}\.$"):
        Trainer.start(config, load_data(config), RunFolder(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def without_new_keys(run: Path) -> None:
    """Make the configuration of a run one of an earlier version."""
    file = run / "config.yaml"
    content = yaml.safe_load(file.read_text())
    for key in ("mean", "std", "interpolation"):
        del content["images"][key]
    del content["model"]["final_layers"]
    file.write_text(yaml.safe_dump(content))


def test_a_run_of_an_earlier_version_means_imagenet(tmp_path: Path) -> None:
    config = vit("images.mean=[0.485, 0.456, 0.406]", "images.std=[0.229, 0.224, 0.225]", "training.epochs=2")
    config = config.model_copy(update={"model": config.model.model_copy(update={"final_layers": False})})
    whole = train(tmp_path / "whole", config)
    expected = Recogniser.load(tmp_path / "whole", "last").probabilities(whole.data.source)
    without_new_keys(tmp_path / "whole")
    old = RunFolder(tmp_path / "whole").read_config()
    assert old.images.input == InputFormat(32, IMAGENET_MEAN)
    assert old == config
    again = Recogniser.load(tmp_path / "whole", "last")
    assert hasattr(again.learner.network.backbone.network, "model")  # the map of the last stage, as it was
    assert np.array_equal(again.probabilities(whole.data.source), expected)


def test_an_old_run_of_a_resnet_has_the_settings_of_a_new_one(tmp_path: Path) -> None:
    new = settled(tiny_config("model.train_stages=last"))
    old = settled(tiny_config("model.train_stages=[layer4]"))
    assert changed_settings(old, new) == []
    assert changed_settings(old, tiny_config("model.train_stages=[layer3]")) != []
    assert changed_settings(new, tiny_config("model.train_stages=last", "images.mean=[0, 0, 0]")) == [
        "images.mean (was [0.485, 0.456, 0.406], now [0.0, 0.0, 0.0])"
    ]

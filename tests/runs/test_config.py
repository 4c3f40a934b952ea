from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from torch import nn

from satl.errors import ConfigError
from satl.images import InputFormat
from satl.methods import METHODS
from satl.models import Backbone
from satl.runs.config import Effect, RunConfig, effect_of, flat_settings
from satl.runs.reading import apply_overrides, make_config, read_config, save_config
from satl.runs.settling import settled
from satl.training.build import build_learner
from training.tiny import TINY, tiny_config


def write(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("trainig.epochs=3", ("'trainig'", "did you mean 'training'")),
        ("training.epoch=3", ("'training.epoch'", "did you mean 'epochs'")),
        ("data.scenes.trian=3", ("'data.scenes.trian'", "did you mean 'train'")),
        ("images.flipp=true", ("'images.flipp'", "did you mean 'flip'")),
        ("model.zzz=3", ("'model.zzz'", "valid keys: backbone, backbone_kwargs")),
        ("method.rat=0.3", ("no key 'rat'", "did you mean 'thresholds.rate'")),
        ("method.threshold_floor=0.3", ("no key 'threshold_floor'", "it is method.thresholds.floor now")),
        ("method.zzz=0.3", ("no key 'zzz'", "valid keys: name, network, generators, thresholds")),
        ("method.thresholds.rat=0.3", ("method.thresholds", "no key 'rat'", "did you mean 'rate'")),
        ("method.name=sst+stal", ("method.name", "'sst+stal'", "did you mean 'sst+satl'", "ignore")),
        ("training.epochs=0", ("training.epochs", "greater than or equal to 1", "got 0")),
        ("training.epochs=many", ("training.epochs", "integer", "got 'many'")),
        ("training.epochs.x=1", ("training.epochs", "integer")),
        ("training.epochs=2.5", ("training.epochs", "integer", "2.5")),
        ("training.checkpoint_epochs=0", ("training.checkpoint_epochs", "greater than or equal to 1")),
        ("training.lr=-1", ("training.lr", "greater than 0")),
        ("training.lr=.nan", ("training.lr", "finite")),
        ("training.lr=.inf", ("training.lr", "finite")),
        ("training.optimiser=lion", ("training.optimiser", "'adam'", "'lion'")),
        ("training.stage1_epochs=9", ("training", "stage1_epochs (9) is more than epochs (4)")),
        ("training.ema=1", ("training.ema", "less than 1")),
        ("training.batch_size=1", ("training.batch_size", "greater than or equal to 2")),
        ("data.proportion=0", ("data.proportion", "greater than 0", "got 0")),
        ("data.proportion=1.5", ("data.proportion", "less than or equal to 1", "got 1.5")),
        ("data.table=x.csv", ("data", "either table (with images or features) or scenes")),
        ("data=null", ("data", "fix this value")),
        ("method.thresholds.rate=2", ("method.thresholds.rate", "less than or equal to 1")),
        ("method.thresholds.convention=eq6", ("method.thresholds.convention", "'eq5'")),
        ("model.train_stages=some", ("model.train_stages", "'some'")),
        (
            "model.freeze_statistics=true",
            ("model.freeze_statistics", "no statistics to keep without pretrained"),
        ),
        ("images.crop_sizes=[a]", ("images.crop_sizes.1", "integer")),
        ("training=fast", ("training", "'fast'")),
    ],
)
def test_a_wrong_key_or_value_is_one_sentence_with_file_and_key(
    setting: str, parts: tuple[str, ...], tmp_path: Path
) -> None:
    path = write(tmp_path / "run.yaml", TINY)
    with pytest.raises(ConfigError) as caught:
        read_config(path, [setting])
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert message.endswith(".")
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "the key 'data' is missing; add it"),
        ("training: {epochs: 2}", "the key 'data' is missing; add it"),
        ("[1, 2]", "not a list"),
        ("word", "not a str"),
        ("data: [\n", "is not valid YAML at line 2; fix the file"),
        ("data: {table: x.csv}", "table needs images"),
        ("data: {}", "give either table (with images or features) or scenes"),
        ("data: {scenes: {}}\n1: 2", "1: keys should be strings"),
        (
            "data: {scenes: {}}\nimages: {crop_sizes: 448}",
            "crop_sizes: input should be a valid list (got 448)",
        ),
        ("\x00", "is not valid YAML"),
    ],
)
def test_a_wrong_file_is_one_sentence(text: str, part: str, tmp_path: Path) -> None:
    path = write(tmp_path / "run.yaml", text)
    with pytest.raises(ConfigError, match=re.escape(part)) as caught:
        read_config(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read \(No such file"):
        read_config(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_config(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"data: \xff\xfe\xfa")
    with pytest.raises(ConfigError, match=r"latin\.yaml: is not valid YAML"):
        read_config(tmp_path / "latin.yaml")


@pytest.mark.parametrize(
    "setting", ["training.epochs", "=3", "training.=3", ".epochs=3", "", "training..epochs=3"]
)
def test_a_setting_must_have_a_key_and_a_value(setting: str) -> None:
    with pytest.raises(ConfigError, match=r"section\.key=value"):
        apply_overrides({}, [setting])


def test_a_setting_with_broken_yaml() -> None:
    with pytest.raises(ConfigError, match=r"settings='images\.crop_sizes=\[1': the value is not valid YAML"):
        apply_overrides({}, ["images.crop_sizes=[1"])


def test_settings_win_over_the_file_and_the_last_one_wins(tmp_path: Path) -> None:
    path = write(tmp_path / "run.yaml", TINY)
    config = read_config(
        path,
        [
            *("training.lr=1e-4", "training.epochs=7", "training.epochs=8", "images.crop_sizes=[30,20]"),
            *(
                "data.mask_seed=3",
                "training.ema=null",
                "model.train_stages=[layer3,-1]",
                "method.thresholds.rate=0.25",
            ),
        ],
    )
    assert config.training.lr == 1e-4
    assert config.training.epochs == 8
    assert config.training.batch_size == 16
    assert config.images.crop_sizes == (30, 20)
    assert config.data.mask_seed == 3
    assert config.training.ema is None
    assert config.model.train_stages == ("layer3", -1)
    assert config.method.thresholds["rate"] == 0.25
    assert TINY["training"]["epochs"] == 4  # the content that was given is not changed


def test_numbers_without_a_dot_are_numbers_in_the_file_too(tmp_path: Path) -> None:
    path = write(tmp_path / "run.yaml", "data: {scenes: {}}\ntraining: {lr: 1e-4}\n")
    assert read_config(path).training.lr == 1e-4


def test_paths_are_relative_to_the_file_or_for_settings_to_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    content = {
        "data": {"table": "t.csv", "images": "../pictures", "truth": str(tmp_path / "abs.csv")},
        "model": {"weights": "~/w.pth", "word_vectors": "v.txt"},
    }
    write(tmp_path / "there" / "run.yaml", content)
    config = read_config(Path("../there/run.yaml"), ["model.word_vectors=mine.txt"])
    assert config.data.table == tmp_path / "there" / "t.csv"
    assert config.data.images == tmp_path / "pictures"
    assert config.data.truth == tmp_path / "abs.csv"
    assert config.model.weights == Path.home() / "w.pth"
    assert config.model.word_vectors == tmp_path / "here" / "mine.txt"


@pytest.mark.parametrize("freeze", ["true", "false"])
def test_statistics_of_given_weights_can_be_kept(freeze: str, tmp_path: Path) -> None:
    Backbone("satl_tiny", kwargs={"widths": [4, 4]}).save_weights(tmp_path / "weights.safetensors")
    settings = ("model.backbone=satl_tiny", "model.backbone_kwargs={widths: [4, 4]}")
    given = f"model.weights={tmp_path / 'weights.safetensors'}"
    config = tiny_config(*settings, given, f"model.freeze_statistics={freeze}")
    learner = build_learner(config, ("cat", "dog"), np.array([[1, -1], [0, 1]], dtype=np.int8)).train()
    layers = [part for part in learner.network.backbone.modules() if isinstance(part, nn.BatchNorm2d)]
    assert {layer.training for layer in layers} == {freeze == "false"}
    assert tiny_config("model.pretrained=true", f"model.freeze_statistics={freeze}")


@pytest.mark.parametrize("method", sorted(METHODS))
def test_the_saved_configuration_says_everything_and_reads_back(method: str, tmp_path: Path) -> None:
    config = tiny_config(f"method.name={method}", "model.train_stages=[layer4]", "training.ema=0.5")
    save_config(config, tmp_path / "config.yaml")
    content = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert set(content) == set(RunConfig.model_fields) - {"features"}
    assert set(content["method"]["losses"]) == set(METHODS[method].losses)
    assert content["method"].get("thresholds", {}).get("rule") == METHODS[method].rule
    again = read_config(tmp_path / "config.yaml")
    assert again.resolved() == config.resolved() == content
    assert again.method.configured() == config.method.configured()
    save_config(again, tmp_path / "again.yaml")
    assert (tmp_path / "again.yaml").read_text() == (tmp_path / "config.yaml").read_text()


def test_the_defaults_are_the_published_setting() -> None:
    config = make_config({"data": {"scenes": {}}}, "defaults")
    training = config.training
    assert (training.epochs, training.stage1_epochs, training.batch_size) == (20, 5, 32)
    assert (training.optimiser, training.lr, training.weight_decay) == ("adam", 1e-5, 5e-4)
    assert (config.images.store_size, settled(config).images.input) == (512, InputFormat(448))
    assert (config.model.backbone, config.model.train_stages) == ("resnet101", "last")
    assert config.method.name == "sst+satl"


def test_a_resumed_run_may_change_all_that_changes_no_result() -> None:
    """One mark on a field serves resuming, experiments and reports, so that none allows what another refuses."""
    settings = flat_settings(make_config({"data": {"scenes": {}}}, "here").resolved())
    nothing = {key for key in settings if effect_of(key) is Effect.NOTHING}
    assert nothing == {
        *("images.workers", "images.cache_gb", "images.gpu_cache_gb"),
        *("training.checkpoint_steps", "training.checkpoint_epochs", "training.keep_epochs"),
        "training.trackers",
    }
    fixed = make_config({"data": {"scenes": {}}}, "here").fixed()
    assert not nothing & fixed.keys()
    assert {"training.lr", "method.name", "data.scenes.train"} <= fixed.keys()
    assert not {"data.table", "training.device", "training.epochs", "model.weights"} & fixed.keys()

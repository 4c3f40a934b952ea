"""Towers of images and texts: what they are called, what they give, and what is said where they cannot be loaded."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import open_clip
import pytest
import torch

from harness.tiny_tower import add_to_library, weights_of, write_tower
from satl.cli.wording import shell_words
from satl.errors import ConfigError
from satl.images.input_format import InputFormat
from satl.models.class_prompts import TextSource, embed_class_names
from satl.models.image_text_tower import ImageTextTower
from satl.models.tower_images import TowerImages


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tower")
    write_tower(path)
    return path


def said(name: str, weights: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        ImageTextTower.load(name, weights)
    return caught.value.worded(shell_words)


def test_both_sides_are_those_of_open_clip(folder: Path) -> None:
    tower = ImageTextTower.load(f"open_clip:{folder}")
    model = open_clip.create_model(f"local-dir:{folder}").eval()
    texts = ["a photo of a dog.", "a cat"] * 40  # more than are encoded at once
    tokens = open_clip.get_tokenizer(f"local-dir:{folder}")(texts)
    pixels = torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(
            tower.encode_texts(texts), model.encode_text(tokens).numpy(), rtol=1e-4, atol=1e-5
        )
        torch.testing.assert_close(tower(pixels), model.encode_image(pixels))
    assert not tower.training
    assert not any(parameter.requires_grad for parameter in tower.parameters())
    assert not np.allclose(*tower.encode_texts(["dog", "cat"]))


def test_a_name_with_a_file_is_the_same_tower_and_is_told_apart_by_its_weights(
    folder: Path, tmp_path: Path
) -> None:
    of_folder = ImageTextTower.load(f"open_clip:{folder}")
    of_name = ImageTextTower.load(add_to_library(tmp_path), weights_of(folder))
    np.testing.assert_array_equal(of_folder.encode_texts(["dog"]), of_name.encode_texts(["dog"]))
    assert of_folder.digest == of_name.digest
    write_tower(tmp_path / "other", seed=1)
    assert ImageTextTower.load(f"open_clip:{folder}", weights_of(tmp_path / "other")).digest != of_name.digest


def test_loading_gives_the_root_logger_no_handler(folder: Path) -> None:
    before = list(logging.getLogger().handlers)
    ImageTextTower.load(f"open_clip:{folder}")
    assert logging.getLogger().handlers == before


def test_nothing_is_fetched_unless_the_name_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no network here")

    for name in ("download_pretrained", "download_pretrained_from_hf"):
        monkeypatch.setattr(open_clip.factory, name, refuse)
    assert "open_clip:ViT-B-32: has no weights; give --weights, or let open_clip fetch some: " in said(
        "open_clip:ViT-B-32"
    )
    assert "its tokenizer is no part of open_clip and would be fetched" in said(
        "open_clip:ViT-B-16-SigLIP", weights_of(folder)
    )
    assert "its tokenizer is no part of open_clip" in said(
        "open_clip:xlm-roberta-base-ViT-B-32", weights_of(folder)
    )
    assert "no network here" in said("open_clip:RN50-quickgelu/openai")


def test_a_folder_cannot_name_models_that_would_be_fetched(folder: Path, tmp_path: Path) -> None:
    for side, key, value in (
        ("text_cfg", "hf_model_name", "someone/model"),
        ("vision_cfg", "timm_model_name", "hf-hub:someone/model"),
    ):
        settings = json.loads((folder / "open_clip_config.json").read_text())
        settings["model_cfg"][side][key] = value
        (tmp_path / "open_clip_config.json").write_text(json.dumps(settings))
        assert "a part of it is a model of the Hugging Face hub" in said(
            f"open_clip:{tmp_path}", weights_of(folder)
        )


@pytest.mark.parametrize(
    "given",
    [
        {"trust_remote_code": True},
        {"clean": "canonicalize", "cache_dir": "/elsewhere"},
        {"bpe_path": "/elsewhere/words.gz"},
        ["clean"],
    ],
)
@pytest.mark.parametrize("own", [True, False])
def test_a_folder_cannot_say_that_the_code_in_it_is_trusted(
    given: object, own: bool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers runs Python files beside a tokenizer if it is told to trust them."""
    asked: list[dict[str, object]] = []

    class AutoTokenizer:
        @staticmethod
        def from_pretrained(place: str, **options: object) -> AutoTokenizer:
            asked.append(options)
            return AutoTokenizer()

    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(AutoTokenizer=AutoTokenizer))
    settings = json.loads((folder / "open_clip_config.json").read_text())
    settings["model_cfg"]["text_cfg"]["tokenizer_kwargs"] = given
    if own:
        settings["model_cfg"]["text_cfg"]["hf_tokenizer_name"] = "someone/tokenizer"
    (tmp_path / "open_clip_config.json").write_text(json.dumps(settings))
    assert "its tokenizer_kwargs may only hold clean, strip_sep_token" in said(
        f"open_clip:{tmp_path}", weights_of(folder)
    )
    assert not asked


@pytest.mark.parametrize(
    ("side", "key", "value"),
    [
        ("text_cfg", "width", 10**9),
        ("text_cfg", "vocab_size", 10**9),
        ("vision_cfg", "layers", 10**9),
        ("vision_cfg", "width", 60_000),
    ],
)
def test_a_folder_cannot_ask_for_more_memory_than_its_weights_fill(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str, key: str, value: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the model is built")

    monkeypatch.setattr(open_clip, "create_model", refuse)
    monkeypatch.setattr(open_clip, "create_model_and_transforms", refuse)
    settings = json.loads((folder / "open_clip_config.json").read_text())
    settings["model_cfg"][side][key] = value
    (tmp_path / "open_clip_config.json").write_text(json.dumps(settings))
    sentence = said(f"open_clip:{tmp_path}", weights_of(folder))
    assert "its open_clip_config.json describes at least" in sentence
    assert sentence.endswith("give the configuration and the weights of one model.")


def test_what_cannot_be_loaded_is_said_in_a_sentence(folder: Path, tmp_path: Path) -> None:
    name = add_to_library(tmp_path)
    assert "open_clip has no model 'ViT-B-33' (did you mean 'ViT-B-32'?); name one" in said(
        "open_clip:ViT-B-33"
    )
    quick = "open_clip:RN50-quickgelu"
    assert (
        "open_clip has no weights 'opnai' of RN50-quickgelu (did you mean 'openai'?); it has openai"
        in said(f"{quick}/opnai")
    )
    assert "the name says to fetch the weights 'openai'; leave it out" in said(
        f"{quick}/openai", weights_of(folder)
    )
    assert said("open_clip:RN50/openai").endswith(
        "the weights 'openai' were trained with another activation than RN50 has; name the tower "
        "open_clip:RN50-quickgelu/openai."
    )
    assert (
        said(name, tmp_path / "none.pt")
        == f"--weights {tmp_path / 'none.pt'}: does not exist; correct the path."
    )
    assert said(name) == f"{name}: has no weights; give --weights."
    assert "has no open_clip_config.json that can be read" in said(f"open_clip:{tmp_path / 'nothing'}")
    (tmp_path / "open_clip_config.json").write_text("{}")
    assert "has no open_clip_config.json that can be read" in said(f"open_clip:{tmp_path}")
    (tmp_path / "open_clip_config.json").write_text((folder / "open_clip_config.json").read_text())
    assert "has none of open_clip_model.safetensors" in said(f"open_clip:{tmp_path}")
    torch.save({"weight": torch.zeros(3)}, tmp_path / "other.pt")
    (tmp_path / "text.pt").write_text("no tensors")
    for file in ("other.pt", "text.pt"):
        assert "does not hold the weights of this tower" in said(name, tmp_path / file)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "open_clip", None)
    assert said("open_clip:ViT-B-32").endswith(
        "needs the package open_clip_torch; run `pip install 'satl[clip]'`."
    )


def test_class_vectors_average_the_prompts_with_equal_weight(folder: Path) -> None:
    prompts = ("a photo of a {}.", "{} and {}")
    encoder = TextSource(f"open_clip:{folder}", prompts=prompts).load()
    found = encoder.class_vectors(["traffic_light", "dog"])
    tower = ImageTextTower.load(f"open_clip:{folder}")
    for row, name in enumerate(("traffic light", "dog")):
        vectors = tower.encode_texts([f"a photo of a {name}.", f"{name} and {name}"]).astype(np.float64)
        expected = sum(vector / np.sqrt((vector**2).sum()) for vector in vectors) / 2
        np.testing.assert_allclose(found[row], expected, rtol=1e-5)


def test_class_embeddings_are_as_long_as_word_vectors(folder: Path) -> None:
    found = embed_class_names(TextSource(f"open_clip:{folder}"), ["dog", "cat"])
    assert found.shape == (2, 12)
    assert found.dtype == np.float32
    assert np.linalg.norm(found, axis=1).mean() == pytest.approx(6.0)
    tower = ImageTextTower.load(f"open_clip:{folder}")
    given = tower.encode_texts(["a photo of a dog.", "a photo of a cat."])
    np.testing.assert_allclose(found / found[0, 0], given / given[0, 0], rtol=1e-4)


def test_a_problem_of_the_weights_names_the_argument(tmp_path: Path) -> None:
    source = TextSource(add_to_library(tmp_path), weights=tmp_path / "none.pt")
    with pytest.raises(ConfigError, match=r"^text_weights='.*none\.pt': does not exist; correct the path"):
        source.load()


def test_the_image_side_is_a_backbone_with_one_position(folder: Path) -> None:
    images = TowerImages(f"open_clip:{folder}")
    assert images.channels == 12
    # The folder says how to normalise; nothing is said about the interpolation.
    assert images.input == InputFormat(32, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25), "bicubic")
    pixels = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        expected = open_clip.create_model(f"local-dir:{folder}").eval().encode_image(pixels)
        torch.testing.assert_close(images(pixels), expected[:, :, None, None])
    images.require_size(32)
    with pytest.raises(
        ConfigError, match=r"size=48: open_clip:.* takes images of 32 pixels only; leave it out"
    ):
        images.require_size(48)


def test_images_alone_need_no_tokenizer(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no network here")

    monkeypatch.setattr(open_clip, "get_tokenizer", refuse)
    assert "its tokenizer cannot be loaded (no network here)" in said(f"open_clip:{folder}")
    assert TowerImages(f"open_clip:{folder}").channels == 12
    # A SigLIP, with weights of another model: all that is wrong is the weights.
    with pytest.raises(ConfigError, match="does not hold the weights of this tower"):
        TowerImages("open_clip:ViT-B-16-SigLIP", weights_of(folder))


def test_a_tower_that_takes_no_squares_is_refused(folder: Path, tmp_path: Path) -> None:
    settings = json.loads((folder / "open_clip_config.json").read_text())
    settings["model_cfg"]["vision_cfg"]["image_size"] = [32, 48]
    (tmp_path / "open_clip_config.json").write_text(json.dumps(settings))
    torch.manual_seed(0)
    torch.save(open_clip.CLIP(**settings["model_cfg"]).state_dict(), weights_of(tmp_path))
    with pytest.raises(ConfigError, match="takes images of 32 x 48 pixels, and satl makes squares"):
        TowerImages(f"open_clip:{tmp_path}")

"""Vectors of class names from a model of sentences; a stand-in takes the place of the package."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from satl.errors import ConfigError
from satl.methods import get_method
from satl.methods.networks import NetworkContext
from satl.models.class_prompts import TextSource, embed_class_names
from satl.runs.reading import read_config
from training.tiny import metrics, tiny_config, train


class Encoder:
    """Gives each name the number of its letters and of its words."""

    def __init__(self, name: str, device: str) -> None:
        if "missing" in name:
            raise OSError(f"{name} is not a local folder\nand more lines")
        self.scale = 0.0 if "zero" in name else 1.0
        assert device == "cpu"

    def encode(self, names: list[str], show_progress_bar: bool) -> np.ndarray:
        assert not show_progress_bar
        counts = [[len(name.replace(" ", "")), len(name.split())] for name in names]
        return self.scale * np.array(counts, dtype=np.float32)


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("sentence_transformers")
    module.SentenceTransformer = Encoder  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)


@pytest.mark.usefixtures("package")
def test_a_vector_for_each_name_in_the_scale_of_word_vectors() -> None:
    vectors = embed_class_names(TextSource("model"), ["traffic_light", "dog"])
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1).mean() == pytest.approx(6.0)
    factor = vectors[1, 1]
    np.testing.assert_allclose(vectors / factor, [[12, 2], [3, 1]], rtol=1e-6)


@pytest.mark.usefixtures("package")
def test_what_cannot_be_used_is_said() -> None:
    with pytest.raises(
        ConfigError, match=r"'missing' cannot be loaded \(missing is not a local folder\); give"
    ):
        embed_class_names(TextSource("missing"), ["dog"])
    with pytest.raises(ConfigError, match="'zero' gives no usable vectors"):
        embed_class_names(TextSource("zero"), ["dog"])


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ConfigError, match=r"pip install 'satl\[text\]'"):
        embed_class_names(TextSource("model"), ["dog"])


@pytest.mark.usefixtures("package")
def test_a_run_uses_them_and_needs_the_package_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config("model.text_model=model", "model.embedding_dim=2", "training.epochs=2")
    trainer = train(tmp_path / "run", config)
    embeddings = trainer.learner.network.embeddings
    wanted = embed_class_names(TextSource("model"), trainer.data.table.classes)
    np.testing.assert_allclose(embeddings.numpy(), wanted)
    assert len(metrics(tmp_path / "run")) == 2
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    context = NetworkContext(config.model, get_method("sst"), trainer.data.table.classes, None)
    shell = context.embeddings()
    assert shell is not None
    assert shell.shape == embeddings.shape


@pytest.mark.usefixtures("package")
def test_the_size_must_be_that_of_the_model() -> None:
    config = tiny_config("model.text_model=model", "model.embedding_dim=5")
    context = NetworkContext(config.model, get_method("sst"), ("dog",), np.ones((1, 1), dtype=np.int8))
    with pytest.raises(
        ConfigError, match=r"text_model: the vectors of model have 2 numbers, not 5; set model\.emb"
    ):
        context.embeddings()


def test_there_is_one_source_of_vectors_and_folders_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(
        "data: {scenes: {train: 8}}\nmodel: {text_model: ./folder, pretrained: false}\n"
    )
    assert read_config(tmp_path / "run.yaml").model.text_model == str(tmp_path / "folder")
    assert read_config(tmp_path / "run.yaml", ["model.text_model=a/name"]).model.text_model == "a/name"
    (tmp_path / "tower.yaml").write_text(
        "data: {scenes: {train: 8}}\nmodel: {text_model: 'open_clip:./folder', pretrained: false}\n"
    )
    assert read_config(tmp_path / "tower.yaml").model.text_model == f"open_clip:{tmp_path / 'folder'}"
    with pytest.raises(
        ConfigError, match=r"model\.text_model: word_vectors are given as well; remove one of the two"
    ):
        read_config(tmp_path / "run.yaml", ["model.word_vectors=words.txt"])


def test_keys_that_no_text_model_reads_are_refused() -> None:
    for setting, sentence in (
        ("model.text_weights=w.pt", r"text_weights: belongs to a text_model such as open_clip:ViT-B-32"),
        ("model.text_prompts=a {}", r"text_prompts: there is no text_model that reads them"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            tiny_config(setting)
    with pytest.raises(
        ConfigError, match=r"text_prompts: the prompt 'a photo' has no \{\} for the name of the class"
    ):
        tiny_config("model.text_model=model", "model.text_prompts=[a photo]")
    with pytest.raises(ConfigError, match="text_prompts: there is no prompt"):
        tiny_config("model.text_model=model", "model.text_prompts=[]")


@pytest.mark.usefixtures("package")
def test_prompts_of_a_model_of_sentences() -> None:
    source = TextSource("model", prompts=("a {}", "{}"))
    first, second = np.array([4.0, 2.0]), np.array([3.0, 1.0])
    expected = (first / np.linalg.norm(first) + second / np.linalg.norm(second)) / 2
    np.testing.assert_allclose(source.load().class_vectors(["dog"]), [expected])


def test_a_run_takes_the_vectors_of_a_tower(tmp_path: Path) -> None:
    from harness.tiny_tower import write_tower

    name = write_tower(tmp_path / "tower")
    config = tiny_config(f"model.text_model={name}", "model.embedding_dim=12", "training.epochs=2")
    trainer = train(tmp_path / "run", config)
    wanted = embed_class_names(TextSource(name), trainer.data.table.classes)
    np.testing.assert_allclose(trainer.learner.network.embeddings.numpy(), wanted)

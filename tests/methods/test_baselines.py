"""The methods that make no pseudo-labels: they learn, resume, and can be used like every other."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from cli.conftest import call
from harness.host_synchronisation import forbid_host_synchronisation
from methods.simple import default_settings
from reference import losses as plain_losses
from satl.errors import ConfigError
from satl.evaluation import evaluate_scores
from satl.inference.recogniser import Recogniser
from satl.methods import METHODS, Learner, StepInputs
from satl.models import (
    KGGRNetwork,
    MLGCNNetwork,
    SemanticTransferNetwork,
    SSGRLNetwork,
    convolution_graph,
    cooccurrence_graph,
)
from satl.runs.config import RunConfig
from satl.runs.data import load_data
from satl.training.build import build_learner
from training.tiny import KillAt, Killed, assert_same_run, metrics, resume, tiny_config, train

BASELINES = ("ssgrl", "ml-gcn", "kggr", "assume-negative")
NETWORK_OF = {
    "ssgrl": SSGRLNetwork,
    "ml-gcn": MLGCNNetwork,
    "kggr": KGGRNetwork,
    "assume-negative": SemanticTransferNetwork,
}
CLASSES = ("cat", "dog", "bird")
LABELS = np.array([[1, -1, 0], [1, -1, 0], [-1, -1, 0], [1, 1, 0]], dtype=np.int8)


def make_learner(name: str, *overrides: str, labels: np.ndarray[Any, Any] | None = LABELS) -> Learner:
    torch.manual_seed(0)
    return build_learner(tiny_config(f"method.name={name}", *overrides), CLASSES, labels)


def biases(network: nn.Module) -> Tensor:
    """The parameter that shifts the logit of every class."""
    owner = {
        "MLGCNNetwork": lambda: network,
        "KGGRNetwork": lambda: network.weight_head.classifier,
    }.get(type(network).__name__, lambda: network.class_head.classifier)()
    return owner.bias.detach()


@pytest.fixture
def words(tmp_path: Path) -> Path:
    path = tmp_path / "words.txt"
    path.write_text("cat 1 0 2 -1\ndog 1 1 0 0\nbird 0 3 1 1\n")
    return path


@pytest.mark.parametrize("name", BASELINES)
def test_both_stages_are_the_same_single_loss_without_pseudo_labels(name: str) -> None:
    method = METHODS[name]
    assert method.stage1 == method.stage2
    assert len(method.stage1) == 1
    assert not method.generators
    assert method.rule is None
    assert type(make_learner(name).network) is NETWORK_OF[name]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("ssgrl", {"network": {"tie_gates": False}}),
        ("ml-gcn", {"network": {"adjacency_threshold": 0.4, "adjacency_weight": 0.25}}),
        ("kggr", {"network": {"zero_gates": False}}),
        ("assume-negative", {}),
    ],
)
def test_published_values_are_the_defaults(name: str, given: dict[str, object]) -> None:
    losses = {loss: {"reduction": "known"} for loss in METHODS[name].losses}
    assert default_settings(name) == {**given, "losses": losses}


def test_sizes_left_out_are_those_of_each_publication() -> None:
    left_out = ("model.feature_dim=null", "model.attention_dim=null")
    expected = {"ssgrl": (16, 1024), "kggr": (1024, 512), "ignore": (1024, 512)}
    for name, (features, attention) in expected.items():
        network = make_learner(name, *left_out).network
        assert network.feature_dim == features
        assert network.decoupling.feature_projection.weight.shape == (attention, features)
    assert make_learner("ml-gcn", *left_out).network.first.weight.shape == (8, 1024)


def test_method_parameters_reach_the_network() -> None:
    assert make_learner("ssgrl", "method.network.tie_gates=true").network.propagation.reset_state is None
    weights = make_learner("kggr", "method.network.zero_gates=true").network.weight_head.propagation
    assert not any(bool(parameter.any()) for parameter in weights.parameters())
    loose = make_learner(
        "ml-gcn", "method.network.adjacency_threshold=0.3", "method.network.adjacency_weight=0.5"
    ).network
    torch.testing.assert_close(loose.graph, convolution_graph(LABELS, 0.3, 0.5))
    assert not torch.equal(loose.graph, make_learner("ml-gcn").network.graph)
    with pytest.raises(ConfigError, match="adjacency_threshold"):
        tiny_config("method.name=ml-gcn", "method.network.adjacency_threshold=0")
    with pytest.raises(
        ConfigError, match=r"method\.network: there is no key 'tie_gates' \(did you mean 'zero_gates'"
    ):
        tiny_config("method.name=kggr", "method.network.tie_gates=true")


@pytest.mark.parametrize("name", BASELINES)
def test_the_graph_is_that_of_the_known_positives(name: str) -> None:
    # The third class has no known positive, and of no image is anything known in the second table.
    for labels in (LABELS, np.zeros_like(LABELS)):
        graph = convolution_graph if name == "ml-gcn" else cooccurrence_graph
        wanted = graph(labels, encoding="signed")
        assert torch.equal(make_learner(name, labels=labels).network.graph, wanted)


@pytest.mark.parametrize("name", BASELINES)
def test_classes_start_at_the_log_odds_of_their_known_labels(name: str) -> None:
    expected = torch.logit(torch.tensor([4 / 6, 2 / 6, 1 / 2]))
    torch.testing.assert_close(biases(make_learner(name, "model.prior_bias=true").network), expected)
    # A shell for a checkpoint has the same parameters, though it knows no labels.
    shell = make_learner(name, "model.prior_bias=true", labels=None)
    assert list(shell.state_dict()) == list(make_learner(name, "model.prior_bias=true").state_dict())


def test_without_a_prior_ml_gcn_has_the_published_parameters_only() -> None:
    names = [name for name, _ in make_learner("ml-gcn").named_parameters() if "backbone" not in name]
    assert names == ["network.embeddings", "network.first.weight", "network.second.weight"]


@pytest.mark.parametrize("name", BASELINES)
def test_word_vectors_are_used_and_bad_ones_refused(name: str, words: Path) -> None:
    settings = (f"model.word_vectors={words}", "model.embedding_dim=4")
    network = make_learner(name, *settings).network
    assert network.embeddings[0].tolist() == [1, 0, 2, -1]
    assert not network.embeddings.requires_grad
    with pytest.raises(ConfigError, match=r"have 4 numbers, not 8; set model\.embedding_dim=4"):
        make_learner(name, settings[0])
    words.write_text(words.read_text().replace("dog 1 1", "dog 1 nan"))
    with pytest.raises(ConfigError, match=r"line 2 \('dog'\) have a NaN or infinite number"):
        make_learner(name, *settings)
    words.unlink()  # a trained run holds its vectors
    shell = make_learner(name, *settings, labels=None).network
    assert shell.embeddings.shape == network.embeddings.shape


def test_assume_negative_counts_unknown_cells_as_negative() -> None:
    learner = make_learner("assume-negative")
    labels = torch.tensor([[1, -1, 0], [0, 0, 0], [0, 1, -1]], dtype=torch.int8)
    pixels = torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        result = learner(StepInputs(pixels, labels, torch.arange(3), stage=1, ramp=1.0, observe=False))
        logits = learner.network(pixels).logits
    filled = torch.tensor([[1, -1, -1], [-1, -1, -1], [-1, 1, -1]])
    assert float(result.loss) == pytest.approx(float(plain_losses.partial_bce(logits, filled, "known")))
    assert float(result.loss) != pytest.approx(float(plain_losses.partial_bce(logits, labels, "known")))
    assert set(result.parts) == {"assumed"}


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("bf16", [False, True])
def test_a_step_asks_for_nothing_and_every_parameter_learns(name: str, bf16: bool) -> None:
    learner = make_learner(name, "model.prior_bias=true").train()
    pixels, labels = torch.randn(4, 3, 32, 32), torch.from_numpy(LABELS)
    with forbid_host_synchronisation(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        result = learner(StepInputs(pixels, labels, torch.arange(4), stage=2, ramp=1.0, observe=True))
        result.loss.backward()
        learner.remember(result.generator_inputs)
        learner.update_thresholds()
    assert result.loss.dtype == torch.float32
    assert bool(result.loss.isfinite())
    for parameter_name, parameter in learner.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert bool(parameter.grad.isfinite().all()), parameter_name


@pytest.mark.parametrize("name", BASELINES)
def test_a_batch_with_nothing_known_is_harmless(name: str) -> None:
    learner = make_learner(name, labels=np.zeros_like(LABELS)).train()
    labels = torch.zeros(4, 3, dtype=torch.int8)
    result = learner(
        StepInputs(torch.randn(4, 3, 32, 32), labels, torch.arange(4), stage=2, ramp=1.0, observe=True)
    )
    result.loss.backward()
    assert (float(result.loss.detach()) == 0.0) == (name != "assume-negative")
    assert all(bool(parameter.grad.isfinite().all()) for parameter in learner.parameters())


@pytest.mark.parametrize("name", BASELINES)
def test_one_class_is_enough(name: str) -> None:
    config = tiny_config(f"method.name={name}")
    learner = build_learner(config, ("cat",), LABELS[:, :1])
    labels = torch.from_numpy(LABELS[:, :1].copy())
    result = learner(
        StepInputs(torch.randn(4, 3, 32, 32), labels, torch.arange(4), stage=1, ramp=1.0, observe=True)
    )
    assert bool(result.loss.isfinite())
    assert learner.score(torch.randn(4, 3, 32, 32), labels, torch.arange(4))["probability"].shape == (4, 1)


def learning_config(name: str) -> RunConfig:
    return tiny_config(
        f"method.name={name}",
        "data.scenes.train=160",
        "data.scenes.val=80",
        "data.proportion=0.5",
        "training.epochs=5",
        "training.stage1_epochs=3",
        "training.lr=0.01",
        "model.backbone=satl_tiny",
        "model.backbone_kwargs={widths: [16, 32]}",
        "model.prior_bias=true",
        "model.feature_dim=32",
        "model.attention_dim=16",
    )


@pytest.mark.parametrize("name", BASELINES)
def test_training_learns(name: str, tmp_path: Path) -> None:
    config = learning_config(name)
    trainer = train(tmp_path / "run", config)
    losses = [row["losses"]["total"] for row in metrics(tmp_path / "run")]
    assert losses[-1] < 0.9 * losses[0]
    data = load_data(config)
    cells = data.table.cells[data.rows("val")]
    noise = np.random.default_rng(0)
    chance = evaluate_scores(noise.random(cells.shape), cells, data.table.classes).mAP
    assert trainer.best["mAP"] > chance + 0.08


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ssgrl", ("method.network.tie_gates=true", "training.ema=0.9")),
        ("ml-gcn", ("model.prior_bias=true", "training.optimiser=sgd", "training.clip_norm=1.0")),
        ("kggr", ("method.network.zero_gates=true", "training.precision=bf16")),
    ],
)
def test_a_run_killed_within_an_epoch_ends_like_one_left_alone(
    name: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    config = tiny_config(f"method.name={name}", "training.checkpoint_steps=1", "training.epochs=2", *options)
    train(tmp_path / "alone", config)
    with pytest.raises(Killed):
        train(tmp_path / "cut", config, KillAt(epoch=1, step=2))
    resume(tmp_path / "cut")
    assert_same_run(tmp_path / "alone", tmp_path / "cut")


@pytest.mark.parametrize("name", BASELINES)
def test_a_run_can_be_evaluated_and_used(name: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ("training.epochs=1", "training.stage1_epochs=1", "model.prior_bias=true")
    train(run, tiny_config(f"method.name={name}", *options))
    evaluated = call("evaluate", run, "--split", "val")
    assert evaluated.code == 0, evaluated.err
    assert (run / "evaluation-val.json").is_file()
    pixels = np.random.default_rng(0).integers(0, 255, (40, 50, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    predicted = call("predict", run, tmp_path / "photo.png", "-o", tmp_path / "out.csv")
    assert predicted.code == 0, predicted.err
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    recogniser = Recogniser.load(run)
    assert [row["label"] for row in rows] == list(recogniser.classes)
    assert all(0 <= float(row["probability"]) <= 1 for row in rows)
    data = load_data(recogniser.config)
    scores = recogniser.scores(data, data.rows("val")[:5])
    assert set(scores) == {"probability"}

"""The peer of the step's benchmark computes what satl computes: the comparison is one between equals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.scripts import script
from satl.losses import contrastive_loss, cooccurrence_loss, partial_bce
from satl.methods import Learner, StepInputs, configure, get_method
from satl.models import Backbone, SemanticTransferNetwork
from satl.models.functional import symmetric_pairs
from satl.scoring import CrossImageGenerator, GeneratorInputs, IntraImageGenerator

CLASSES, BATCH, BANK = 5, 4, 3
TINY = {"layers": [1, 1, 1, 1], "channels": [8, 8, 16, 16]}
SIZES = {"feature_dim": 12, "attention_dim": 6, "pair_dim": 7, "pair_hidden": 9}


plain = script("plain_sst")


@pytest.fixture
def networks() -> tuple[Any, SemanticTransferNetwork]:
    """The plain network and satl's with the same weights, in float64."""
    torch.manual_seed(0)
    graph, embeddings = torch.rand(CLASSES, CLASSES), torch.randn(CLASSES, 10)
    backbone = Backbone("resnet18", kwargs=TINY, train_stages=["layer4"])
    own = SemanticTransferNetwork(CLASSES, backbone, graph, embeddings, **SIZES)
    peer = plain.PlainSST(
        CLASSES, plain.PlainBackbone("resnet18", TINY), graph, embeddings, **SIZES, bank_size=BANK
    )
    peer.load_state_dict(own.state_dict())
    return peer.double().train(), own.double().train()


def images() -> Tensor:
    return torch.randn(BATCH, 3, 128, 128, generator=torch.Generator().manual_seed(1)).double()


def some_labels(seed: int, positive: float = 0.3) -> Tensor:
    draw = torch.rand(BATCH, CLASSES, generator=torch.Generator().manual_seed(seed))
    return torch.where(draw < positive, 1, torch.where(draw < positive + 0.3, -1, 0)).to(torch.int8)


MANY_POSITIVES = some_labels(2, positive=0.65)
"""Twice the pairs of positives are more than all other pairs, so that a random choice takes them all."""
SOME_POSITIVES = torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0], [1, -1, 0, 0], [-1, -1, 1, 0]], dtype=torch.int8)
"""4 pairs of positives and 7 mixed ones: chance takes these all, but not all are among the 4 most expensive."""
NO_TWO_POSITIVES = torch.tensor(
    [[1, -1, 0, -1, 0], [-1, 1, 0, -1, 1], [-1, 0, -1, -1, -1], [0, -1, 0, 0, -1]], dtype=torch.int8
)


def test_the_plain_network_is_satls(networks: tuple[Any, SemanticTransferNetwork]) -> None:
    peer, own = networks
    assert {name for name, parameter in peer.named_parameters() if parameter.requires_grad} == {
        name for name, parameter in own.named_parameters() if parameter.requires_grad
    }
    theirs, ours = peer(images()), own(images(), with_pairs=True)
    for name in ("features", "logits", "pair_logits"):
        torch.testing.assert_close(getattr(theirs, name), getattr(ours, name), rtol=0, atol=1e-6)
    assert theirs.pair_logits.std() > 1e-3  # a network that says nothing would agree with anything
    assert [module.training for module in peer.modules() if isinstance(module, torch.nn.BatchNorm2d)] == [
        module.training for module in own.modules() if isinstance(module, torch.nn.BatchNorm2d)
    ]


@pytest.mark.parametrize("labels", [MANY_POSITIVES, SOME_POSITIVES, NO_TWO_POSITIVES])
def test_the_plain_losses_are_satls(labels: Tensor) -> None:
    generator, classes = torch.Generator().manual_seed(3), labels.shape[1]
    logits = torch.randn(BATCH, classes, generator=generator).double()
    pairs = torch.randn(BATCH, classes * (classes - 1) // 2, generator=generator).double()
    features = torch.randn(BATCH, classes, 6, generator=generator).double()
    for theirs, ours in (
        (plain.known_bce(logits, labels), partial_bce(logits, labels)),
        (plain.pair_loss(pairs, labels), cooccurrence_loss(pairs, labels)),
        (plain.contrast_loss(features, labels), contrastive_loss(features, labels)),
    ):
        assert theirs > 0.01
        torch.testing.assert_close(theirs.float(), ours.float(), rtol=0, atol=1e-6)


def test_a_batch_without_a_known_cell_costs_nothing() -> None:
    logits, features = torch.randn(BATCH, CLASSES), torch.randn(BATCH, CLASSES, 6)
    nothing = torch.zeros(BATCH, CLASSES, dtype=torch.int8)
    assert plain.known_bce(logits, nothing) == 0
    assert plain.contrast_loss(features, nothing) == 0


def test_the_plain_scores_of_unknown_cells_are_satls() -> None:
    generator = torch.Generator().manual_seed(4)
    pairs = torch.randn(BATCH, CLASSES * (CLASSES - 1) // 2, generator=generator)
    features = torch.randn(BATCH, CLASSES, 6, generator=generator)
    bank = torch.randn(CLASSES, BANK, 6, generator=generator)
    labels = some_labels(5)
    unknown = labels == 0
    cross = CrossImageGenerator(CLASSES, 6, size=BANK)
    cross.rows[:-1] = torch.nn.functional.normalize(bank, dim=-1).flatten(0, 1)
    cross.owners[:-1] = 1000
    probabilities = symmetric_pairs(pairs.sigmoid(), CLASSES)
    evidence = GeneratorInputs(features, probabilities, labels, torch.arange(BATCH))
    for theirs, ours in (
        (plain.intra_scores(pairs, labels), IntraImageGenerator()(evidence).values),
        (plain.cross_scores(features, labels, bank), cross(evidence).values),
    ):
        assert theirs[unknown].std() > 0.01
        torch.testing.assert_close(theirs[unknown], ours[unknown], rtol=0, atol=1e-6)


def test_the_bank_holds_the_newest_positives_first(networks: tuple[Any, SemanticTransferNetwork]) -> None:
    peer, _ = networks
    features = torch.arange(BATCH * CLASSES * 12.0).view(BATCH, CLASSES, 12)
    labels = torch.zeros(BATCH, CLASSES, dtype=torch.int8)
    labels[1, 0] = labels[2, 0] = labels[3, 4] = 1
    labels[0, 1] = -1
    peer.fill_bank(features, labels)
    labels.zero_()
    labels[0, 0] = labels[1, 0] = 1
    peer.fill_bank(features, labels)
    assert torch.equal(peer.bank[0], features[[0, 1, 1], 0])
    assert torch.equal(peer.bank[4, 0], features[3, 4])
    assert not peer.bank[1].any()
    assert not peer.bank[4, 1:].any()


@pytest.mark.parametrize("threshold", [0.0, 0.5, 0.999])
def test_a_whole_step_has_satls_losses_and_gradients(
    networks: tuple[Any, SemanticTransferNetwork], threshold: float
) -> None:
    peer, own = networks
    labels = MANY_POSITIVES
    learner = _learner(own, threshold)
    evidence = GeneratorInputs(own.class_features(images()).detach(), None, labels, torch.arange(BATCH))
    for _ in range(BANK):  # as published the bank takes in a batch before it is scored, and no slot is empty
        peer.fill_bank(evidence.features, labels)
        learner.remember(evidence)
    terms = plain.plain_losses(peer, images(), labels, threshold=threshold)
    torch.stack(list(terms.values())).sum().backward()
    result = learner(StepInputs(images(), labels, torch.arange(BATCH), stage=2, ramp=1.0, observe=False))
    result.loss.backward()

    emitted = sum(int((filled != labels).sum()) for filled in result.pseudo.values())
    assert (emitted > 0) == (threshold < 0.9)
    theirs = {name: float(term.detach()) for name, term in terms.items()}
    theirs["pseudo"] = theirs.pop("intra") + theirs.pop("cross")
    assert theirs == pytest.approx({name: float(part) for name, part in result.parts.items()}, abs=1e-6)
    gradients = dict(own.named_parameters())
    for name, parameter in peer.named_parameters():
        if parameter.requires_grad:
            gradient = gradients[name].grad
            assert gradient is not None
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6, msg=name)


def _learner(network: SemanticTransferNetwork, threshold: float) -> Learner:
    as_published = {"intra": {"leave_one_out": False}, "cross": {"leave_one_out": False, "bank_size": BANK}}
    learner = Learner(*configure(get_method("sst"), {"generators": as_published}), network, proportion=0.5)
    for rule in learner.rules.values():
        rule.value.fill_(threshold)
    return learner


def test_the_plain_step_lowers_its_loss_and_reads_six_numbers(
    networks: tuple[Any, SemanticTransferNetwork],
) -> None:
    peer, _ = networks
    optimiser = plain.plain_optimiser(peer, lr=1e-3)
    steps = [plain.plain_step(peer, optimiser, images(), MANY_POSITIVES) for _ in range(6)]
    assert len(steps[0]) == 6
    assert steps[0]["total"] == pytest.approx(
        sum(value for name, value in steps[0].items() if name != "total")
    )
    assert steps[-1]["total"] < steps[0]["total"]

"""The probe: what it fits, what it has not seen, and how it is kept with a run."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from reference import scoring as plain
from satl.errors import ArrayError, RunError
from satl.evaluation import average_precision
from satl.inference.recogniser import Recogniser
from satl.runs.data import load_data
from satl.scoring import ProbeLogits, probe_logits
from training.tiny import KillAt, Killed, resume, tiny_config, train


def make_cells(images: int, classes: int, size: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Features, labels of which a third is unknown, and all labels: each class is a direction, with noise."""
    noise = torch.Generator().manual_seed(seed)
    features = torch.randn(images, size, generator=noise) * 3 + 1
    directions = torch.randn(size, classes, generator=noise)
    truth = torch.where(features @ directions + torch.randn(images, classes, generator=noise) * 3 > 4, 1, -1)
    unknown = torch.rand(images, classes, generator=noise) < 1 / 3
    return features, torch.where(unknown, 0, truth), truth


@pytest.mark.parametrize(("images", "classes", "folds"), [(24, 1, 2), (23, 3, 3)])
def test_logits_are_those_of_plain_fits_without_the_cell(images: int, classes: int, folds: int) -> None:
    features, labels, _ = make_cells(images, classes, size=4)
    found = probe_logits(features, labels, penalties=(0.01,), folds=folds)
    expected = plain.probe(features, labels, penalty=0.01, folds=folds)
    torch.testing.assert_close(found.double(), expected, rtol=5e-3, atol=5e-3)


def test_a_known_cell_has_no_say_in_its_own_logit() -> None:
    features, labels, _ = make_cells(40, 2, size=6)
    before = probe_logits(features, labels, penalties=(1e-3,))
    place = (int(labels[:, 0].nonzero()[0]), 0)
    labels[place] = -labels[place]
    after = probe_logits(features, labels, penalties=(1e-3,))
    assert float(after[place]) == pytest.approx(float(before[place]), abs=1e-4)
    assert not torch.allclose(before[:, 0], after[:, 0], atol=1e-2)
    # Classes are fitted apart; their line search is common, hence the tolerance.
    torch.testing.assert_close(before[:, 1], after[:, 1], rtol=2e-2, atol=2e-2)


def test_it_ranks_unknown_cells() -> None:
    features, labels, truth = make_cells(600, 3, size=12)
    logits = probe_logits(features, labels)
    hidden = torch.where(labels == 0, truth, 0)
    scored = average_precision(logits.numpy(), hidden.numpy())
    assert scored.mean() > 0.9
    assert (hidden > 0).sum() < 0.6 * (hidden != 0).sum()  # what any order scores


def test_the_penalty_is_the_one_that_fits_other_cells_best() -> None:
    noise = torch.Generator().manual_seed(1)
    features = torch.randn(60, 40, generator=noise)
    labels = torch.where(torch.rand(60, 1, generator=noise) < 0.5, 1, -1)  # nothing to learn
    weak, strong = 1e-6, 10.0
    chosen = probe_logits(features, labels, penalties=(weak, strong))
    torch.testing.assert_close(chosen, probe_logits(features, labels, penalties=(strong,)))
    assert not torch.allclose(chosen, probe_logits(features, labels, penalties=(weak,)), atol=0.1)


def test_classes_without_known_cells_or_of_one_kind_stay_finite() -> None:
    features, labels, _ = make_cells(20, 4, size=3)
    labels[:, 0] = 0
    labels[:, 1] = labels[:, 1].abs()
    labels[:, 2] = -labels[:, 2].abs()
    logits = probe_logits(features, labels)
    assert bool(logits.isfinite().all())
    assert bool((logits[:, 0] == 0).all())
    assert bool((logits[:, 1] > 0).all())
    assert bool((logits[:, 2] < 0).all())
    assert bool((probe_logits(features, torch.zeros_like(labels), encoding="signed") == 0).all())


def test_features_that_do_not_differ_say_nothing() -> None:
    labels = torch.tensor([[1], [-1], [-1], [-1], [0], [0]])
    logits = probe_logits(torch.ones(6, 5), labels, folds=2)
    assert logits[4:, 0].tolist() == pytest.approx([-0.8473] * 2, abs=1e-3)  # 1.5 of 5


def test_half_precision_features_are_computed_in_single_precision() -> None:
    features, labels, _ = make_cells(30, 2, size=4)
    rounded = features.to(torch.bfloat16)
    found = probe_logits(rounded, labels)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, probe_logits(rounded.float(), labels))


def test_an_opinion_alone_is_the_probability_of_its_log_odds() -> None:
    opinion = ProbeLogits(2)
    opinion.keep(torch.tensor([1, 3]), torch.tensor([[2.0, -1.0], [0.0, 8.0]]), num_images=5)
    found = opinion.probabilities(torch.tensor([3, 1, 3, 0]))
    two, minus_one, eight = (1 / (1 + math.exp(-odds)) for odds in (2, -1, 8))
    expected = [[0.5, eight], [two, minus_one], [0.5, eight], [0.5, 0.5]]
    torch.testing.assert_close(found, torch.tensor(expected))
    torch.testing.assert_close(
        found, opinion.blend(torch.full((4, 2), 0.3), torch.tensor([3, 1, 3, 0]), weight=1.0)
    )


def test_opinions_are_blended_in_log_odds() -> None:
    opinion = ProbeLogits(2)
    opinion.keep(torch.tensor([1, 3]), torch.tensor([[2.0, -1.0], [0.0, 8.0]]), num_images=5)
    assert opinion.logits.tolist() == [[0, 0], [2, -1], [0, 0], [0, 8], [0, 0]]
    probabilities = torch.tensor([[0.3, 1.0], [0.0, 0.6]])
    found = opinion.blend(probabilities, torch.tensor([3, 1]), weight=0.25)
    assert bool(found.isfinite().all())
    assert float(found[0, 0].logit()) == pytest.approx(0.75 * float(torch.tensor(0.3).logit()), abs=1e-5)
    assert float(found[1, 1].logit()) == pytest.approx(
        0.75 * float(torch.tensor(0.6).logit()) - 0.25, abs=1e-5
    )
    torch.testing.assert_close(opinion.blend(found, torch.tensor([3, 1]), weight=0.0), found)


def test_a_saved_opinion_finds_room() -> None:
    opinion, other = ProbeLogits(1), ProbeLogits(1)
    opinion.keep(torch.tensor([2]), torch.tensor([[1.5]]), num_images=3)
    other.load_state_dict(opinion.state_dict())
    assert torch.equal(other.logits, opinion.logits)


def test_a_run_fits_it_once_and_keeps_it(tmp_path: Path) -> None:
    config = tiny_config("method.name=satl+")
    data = load_data(config)
    whole = train(tmp_path / "whole", config, data=data)
    assert whole.learner.probe is not None
    logits = whole.learner.probe.logits
    assert logits.shape == data.table.cells.shape
    assert bool(logits[torch.from_numpy(data.rows("train"))].any(dim=1).all())
    assert not bool(logits[torch.from_numpy(data.rows("val"))].any())
    with pytest.raises(Killed):
        train(tmp_path / "cut", config, KillAt(2, 1), data)
    gone_on = resume(tmp_path / "cut")
    assert (tmp_path / "cut" / "train.log").read_text().count("probe: fitted") == 1
    assert gone_on.learner.probe is not None
    # Fitted anew it would be another one: the weights are not those that training started from.
    assert torch.equal(gone_on.learner.probe.logits, logits)
    for name, value in whole.learner.state_dict().items():
        assert torch.equal(value, gone_on.learner.state_dict()[name]), name
    recogniser = Recogniser.load(tmp_path / "whole", "last")
    rows = data.rows("train")
    shorter = replace(data, table=data.table.select(np.arange(len(logits) - 1)))
    with pytest.raises(
        RunError, match=rf"rows, but had {len(logits)} when the run was trained on it; restore"
    ):
        recogniser.scores(shorter, rows)
    scores = recogniser.scores(data, rows)
    blended = whole.learner.probe.blend(
        torch.from_numpy(scores["probability"]), torch.from_numpy(rows), whole.learner.probe_weight
    )
    torch.testing.assert_close(torch.from_numpy(scores["teacher"]), blended, rtol=1e-5, atol=1e-6)


def test_without_weight_there_is_none(tmp_path: Path) -> None:
    config = tiny_config("method.name=satl+", "method.teacher.probe_weight=0", "training.epochs=3")
    trainer = train(tmp_path / "run", config)
    assert trainer.learner.probe is None
    assert not any(name.startswith("probe") for name in trainer.learner.state_dict())


def test_an_opinion_of_another_number_of_classes_is_refused(tmp_path: Path) -> None:
    from satl.training.checkpoints import load_module, save_module

    save_module({"logits": torch.zeros(3, 2)}, tmp_path / "opinion.safetensors")
    with pytest.raises(RunError, match="does not fit"):
        load_module(ProbeLogits(1), tmp_path / "opinion.safetensors")


def test_labels_that_would_be_misread_are_refused_and_nan_is_unknown() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(30, 4, generator=generator)
    labels = torch.randint(-1, 2, (30, 3), generator=generator).float()
    with_nan = torch.where(labels == 0, torch.nan, labels)
    assert torch.equal(probe_logits(features, with_nan), probe_logits(features, labels))
    with pytest.raises(ArrayError, match="labels: can be read in 2 ways"):
        probe_logits(features, labels > 0)
    with pytest.raises(ValueError, match=r"of the same images, got \(29, 4\) and \(30, 3\)"):
        probe_logits(features[1:], labels)

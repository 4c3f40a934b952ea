"""The prototype contrast against plain loops: values, gradients and its two signs."""

from __future__ import annotations

import pytest
import torch

from losses.test_losses import MIXES, assert_same, gradient, random_labels
from reference import losses as reference
from satl.losses import prototype_contrast


@pytest.mark.parametrize("sign", ["fixed", "reference"])
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("classes", [1, 5])
def test_equals_the_loops(sign: str, mix: tuple[float, float, float], classes: int) -> None:
    torch.manual_seed(0)
    labels = random_labels(1, 6, classes, mix)
    assert_same(
        lambda s: prototype_contrast(s, labels, sign),  # type: ignore[arg-type]
        lambda s: reference.prototype_contrast(s, labels, sign),
        2 * torch.rand(6, classes) - 1,
    )


def test_positives_come_nearer_and_negatives_go_away_unless_the_published_sign_is_asked_for() -> None:
    scores, labels = torch.tensor([[0.5, 0.5, 0.5, 0.5]]), torch.tensor([[1, -1, 0, 0]])
    _, slope = gradient(lambda s: prototype_contrast(s, labels), scores)
    assert slope.tolist() == [[-0.25, 0.25, 0.0, 0.0]]
    _, slope = gradient(lambda s: prototype_contrast(s, labels, "reference"), scores)
    assert slope.tolist() == [[0.25, -0.25, 0.0, 0.0]]


@pytest.mark.parametrize("images", [0, 3])
def test_nothing_known_teaches_nothing(images: int) -> None:
    scores = torch.full((images, 2), torch.inf, requires_grad=True)
    loss = prototype_contrast(scores, torch.zeros(images, 2))
    loss.backward()
    assert float(loss.detach()) == (1.0 if images else 0.0)
    assert scores.grad is not None
    assert not scores.grad.any()


def test_half_precision_scores_give_a_float32_loss() -> None:
    scores, labels = (2 * torch.rand(8, 3) - 1).bfloat16(), random_labels(0, 8, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = prototype_contrast(scores, labels)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, prototype_contrast(scores.float(), labels))


def test_another_sign_is_refused() -> None:
    with pytest.raises(ValueError, match="sign must be"):
        prototype_contrast(torch.zeros(1, 1), torch.ones(1, 1), "wrong")  # type: ignore[arg-type]

"""What all losses refuse, and what they take for unknown."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from losses.test_losses import gradient, noise_of
from satl.errors import ArrayError
from satl.losses import (
    asymmetric_loss,
    contrastive_loss,
    cooccurrence_loss,
    differential_ranking,
    large_loss,
    partial_bce,
    prototype_contrast,
    self_paced_loss,
)
from satl.losses.partial_bce import mean_of_known

IMAGES, CLASSES = 4, 3
NOISE = noise_of(0, IMAGES, CLASSES)
# Of values and labels; three classes have three pairs, so values are (4, 3) for all but the contrast.
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "bce": partial_bce,
    "bce of images": lambda z, labels: partial_bce(z, labels, "sample"),
    "bce of a part": lambda z, labels: partial_bce(z, labels, batch=torch.cat([labels, labels])),
    "asymmetric": asymmetric_loss,
    "asymmetric of images": lambda z, labels: asymmetric_loss(z, labels, reduction="sample"),
    "ranking": lambda z, labels: differential_ranking(z, labels, torch.zeros(CLASSES)),
    "ranking of known": lambda z, labels: differential_ranking(
        z, labels, torch.zeros(CLASSES), reduction="known"
    ),
    "prototype": prototype_contrast,
    "prototype as published": lambda z, labels: prototype_contrast(z, labels, "reference"),
    "rejection": lambda z, labels: large_loss(z, labels, labels, "rejection"),
    "correction": lambda z, labels: large_loss(z, labels, labels, "correction"),
    "self-paced": lambda z, labels: self_paced_loss(z, labels, labels),
    "cooccurrence": cooccurrence_loss,
    "contrast": lambda z, labels: contrastive_loss(z, labels, NOISE),
}


def values_for(name: str) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(IMAGES, CLASSES, 5) if name == "contrast" else torch.randn(IMAGES, CLASSES)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shape", [(IMAGES, 1), (1, CLASSES), (CLASSES,), (IMAGES, 2), (IMAGES + 1, CLASSES)])
def test_labels_of_another_shape_are_refused(name: str, shape: tuple[int, ...]) -> None:
    values = values_for(name)
    sizes = f"{re.escape(str(tuple(values.shape)))} and {re.escape(str(shape))}"
    with pytest.raises(ValueError, match=sizes):
        LOSSES[name](values, torch.ones(shape))


@pytest.mark.parametrize("name", LOSSES)
def test_values_of_another_shape_are_refused(name: str) -> None:
    labels = torch.ones(IMAGES, CLASSES)
    for few in (values_for(name)[:1], values_for(name)[:, :1]):
        with pytest.raises(ValueError, match=re.escape(f"{tuple(few.shape)} and {(IMAGES, CLASSES)}")):
            LOSSES[name](few, labels)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.uint16])
def test_unsigned_labels_are_refused(name: str, dtype: torch.dtype) -> None:
    labels = torch.randint(-1, 2, (IMAGES, CLASSES)).to(dtype)
    with pytest.raises(ArrayError, match=rf"must be of a signed type, got {dtype}.* -1 \(absent\)"):
        LOSSES[name](values_for(name), labels)


@pytest.mark.parametrize("name", LOSSES)
def test_signed_labels_of_every_type_are_the_same(name: str) -> None:
    labels = torch.tensor([[1, -1, 0], [1, 1, -1], [0, -1, -1], [1, 1, 1]])
    wanted, wanted_slope = gradient(lambda z: LOSSES[name](z, labels), values_for(name))
    for dtype in (torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16, torch.float64):
        value, slope = gradient(lambda z, dtype=dtype: LOSSES[name](z, labels.to(dtype)), values_for(name))
        assert torch.equal(value, wanted)
        assert torch.equal(slope, wanted_slope)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("everywhere", [False, True])
def test_a_label_that_is_not_a_number_counts_as_unknown(name: str, everywhere: bool) -> None:
    labels = torch.tensor([[1.0, -1.0, 0.0], [1.0, 1.0, -1.0], [0.0, -1.0, -1.0], [1.0, 1.0, 0.0]])
    if everywhere:
        labels.zero_()
    holes = torch.where(labels == 0, torch.nan, labels)
    wanted, wanted_slope = gradient(lambda z: LOSSES[name](z, labels), values_for(name))
    value, slope = gradient(lambda z: LOSSES[name](z, holes), values_for(name))
    assert bool(value.isfinite())
    assert bool(slope.isfinite().all())
    assert torch.equal(value, wanted)
    assert torch.equal(slope, wanted_slope)


@pytest.mark.parametrize("shape", [(1,), (2,), (1, CLASSES), (IMAGES, CLASSES), (IMAGES, 1)])
def test_thresholds_are_one_for_each_class_or_a_scalar(shape: tuple[int, ...]) -> None:
    scores, labels = values_for("ranking"), torch.ones(IMAGES, CLASSES)
    sizes = f"{re.escape(str(shape))} for scores {re.escape(str((IMAGES, CLASSES)))}"
    with pytest.raises(ValueError, match=sizes):
        differential_ranking(scores, labels, torch.full(shape, 0.5))
    one, all_alike = torch.tensor(0.5), torch.full((CLASSES,), 0.5)
    assert torch.equal(
        differential_ranking(scores, labels, one), differential_ranking(scores, labels, all_alike)
    )


@pytest.mark.parametrize("wrong", [torch.ones(IMAGES, 1), torch.ones(IMAGES, CLASSES, dtype=torch.bool)])
def test_labels_with_pseudo_labels_are_checked_too(wrong: Tensor) -> None:
    logits, labels = values_for("bce"), torch.zeros(IMAGES, CLASSES)
    with pytest.raises(ValueError, match="chosen must"):
        large_loss(logits, labels, wrong, "correction")
    with pytest.raises(ValueError, match="corrected must"):
        self_paced_loss(logits, labels, wrong)


def test_the_batch_of_a_part_is_checked_too() -> None:
    cost, labels = torch.ones(IMAGES, CLASSES), torch.ones(IMAGES, CLASSES)
    with pytest.raises(ValueError, match=r"\(8, 1\) and \(4, 3\)"):
        mean_of_known(cost, labels, "known", torch.ones(8, 1))
    with pytest.raises(ArrayError, match="batch must be of a signed type"):
        mean_of_known(cost, labels, "known", torch.ones(8, CLASSES, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"cost and labels .* \(4, 1\) and \(4, 3\)"):
        mean_of_known(cost[:, :1], labels, "known", None)


@pytest.mark.parametrize("name", LOSSES)
def test_the_checks_compile_without_a_graph_break(name: str) -> None:
    labels = torch.tensor([[1, -1, 0], [1, 1, -1], [0, -1, -1], [1, 1, 1]], dtype=torch.int8)
    compiled = torch.compile(LOSSES[name], fullgraph=True, backend="aot_eager")
    wanted, wanted_slope = gradient(lambda z: LOSSES[name](z, labels), values_for(name))
    value, slope = gradient(lambda z: compiled(z, labels), values_for(name))
    torch.testing.assert_close(value, wanted)
    torch.testing.assert_close(slope, wanted_slope)

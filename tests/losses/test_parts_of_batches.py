"""The mean of the losses of equal parts of a batch is the loss of the batch, where its counts are known."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from satl.losses import asymmetric_loss, partial_bce
from satl.losses.partial_bce import count_of_part

LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor | None], Tensor]] = {
    "bce of cells": lambda logits, labels, batch: partial_bce(logits, labels, batch=batch),
    "bce of images": lambda logits, labels, batch: partial_bce(logits, labels, "sample", batch),
    "asymmetric of cells": lambda logits, labels, batch: asymmetric_loss(logits, labels, batch=batch),
    "asymmetric of images": lambda logits, labels, batch: asymmetric_loss(
        logits, labels, reduction="sample", batch=batch
    ),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("parts", [1, 2, 6])
def test_parts_make_the_batch(name: str, parts: int) -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(-1, 2, (12, 5), generator=generator)
    labels[:4] = 0  # some parts know less, one of six nothing at all
    logits = torch.randn(12, 5, generator=generator, requires_grad=True)
    loss = LOSSES[name]
    whole = loss(logits, labels, None)
    pieces = [
        loss(some, known, labels)
        for some, known in zip(logits.chunk(parts), labels.chunk(parts), strict=True)
    ]
    mean = torch.stack(pieces).mean()
    torch.testing.assert_close(mean, whole)
    torch.testing.assert_close(*(torch.autograd.grad(value, logits)[0] for value in (mean, whole)))
    if parts == 6:
        without = [
            loss(some, known, None) for some, known in zip(logits.chunk(6), labels.chunk(6), strict=True)
        ]
        assert abs(float(torch.stack(without).mean().detach()) - float(whole.detach())) > 0.01
        assert pieces[0].tolist() == 0.0


def test_a_batch_of_which_nothing_is_known() -> None:
    labels = torch.zeros(4, 3, dtype=torch.int64)
    assert float(partial_bce(torch.randn(2, 3), labels[:2], batch=labels)) == 0.0
    assert float(count_of_part(labels != 0, 4)) == 1.0

from __future__ import annotations

import numpy as np
import pytest
import torch

from satl.errors import SatlError
from satl.evaluation import average_precision
from satl.evaluation.tensors import average_precision_tensor


@pytest.mark.parametrize("interpolated", [True, False])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("levels", [2, 16, 4096])
def test_equals_the_numpy_version(dtype, levels, interpolated):
    rng = np.random.default_rng(levels)
    scores = torch.tensor(rng.integers(-levels, levels, (150, 9)) / levels).to(dtype)
    labels = torch.tensor(rng.integers(-1, 2, (150, 9)))
    labels[:, 4] = -labels[:, 4].abs()  # not measurable
    scores[::7, 2] = -torch.inf  # ties with the place where unknown cells are put
    expected = average_precision(scores.double().numpy(), labels.numpy(), interpolated=interpolated)
    got = average_precision_tensor(scores, labels, interpolated=interpolated)
    assert got.dtype == torch.float64
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12)


def test_edges():
    assert average_precision_tensor(torch.empty(0, 3), torch.empty(0, 3)).isnan().all()
    assert average_precision_tensor(torch.rand(4, 2), torch.zeros(4, 2)).isnan().all()
    assert average_precision_tensor(torch.rand(1, 2), torch.ones(1, 2)).tolist() == [1.0, 1.0]


def test_nan_spoils_its_own_class_only_and_only_where_known():
    scores = torch.tensor([[0.1, 0.2, torch.nan], [torch.nan, 0.3, 0.1]])
    labels = torch.tensor([[1, 1, 0], [1, -1, 1]])
    got = average_precision_tensor(scores, labels)
    assert got.isnan().tolist() == [True, False, False]
    assert got[1:].tolist() == [0.5, 1.0]


def test_no_gradient_and_shape_error():
    scores = torch.rand(5, 2, requires_grad=True)
    assert not average_precision_tensor(scores, torch.ones(5, 2)).requires_grad
    with pytest.raises(SatlError, match="one shape"):
        average_precision_tensor(scores, torch.ones(5, 3))


@pytest.mark.parametrize("interpolated", [True, False])
def test_does_not_wait_for_the_device(interpolated, monkeypatch):
    scores, labels = torch.rand(20, 3), torch.randint(-1, 2, (20, 3))

    def refuse(*_, **__):
        raise AssertionError("the host would wait for the device")

    waits = (
        "item",
        "tolist",
        "cpu",
        "numpy",
        "nonzero",
        "masked_select",
        "unique",
        "__bool__",
        "__int__",
        "__float__",
    )
    for name in waits:
        monkeypatch.setattr(torch.Tensor, name, refuse)
    result = average_precision_tensor(scores, labels, interpolated=interpolated)
    with pytest.raises(AssertionError, match="wait"):
        bool(result[0] > 0)

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from satl.errors import ArrayError
from satl.evaluation import average_precision, average_precision_pair
from satl.evaluation.tensor_average_precision import average_precision_pair_tensor, average_precision_tensor


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


@settings(max_examples=150)
@given(st.data())
def test_every_small_case_equals_the_numpy_version(data):
    shape = data.draw(st.tuples(st.integers(1, 10), st.integers(1, 4)))

    def matrix(values):
        cells = st.lists(st.sampled_from(values), min_size=shape[1], max_size=shape[1])
        return data.draw(st.lists(cells, min_size=shape[0], max_size=shape[0]))

    dtype = data.draw(st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]))
    # few distinct values on purpose: ties are the hard part
    scores = torch.tensor(matrix([-np.inf, -1.5, -0.0, 0.0, 0.25, 0.5, 3.0, np.inf]), dtype=dtype)
    labels = torch.tensor(matrix([-1, 0, 1]), dtype=torch.int8)
    expected = average_precision_pair(scores.double().numpy(), labels.numpy(), encoding="signed")
    found = average_precision_pair_tensor(scores, labels, encoding="signed")
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-12)


@pytest.mark.parametrize("levels", [30, 10**6])
def test_many_images_equal_the_numpy_version(levels):
    rng = np.random.default_rng(0)
    scores = (rng.integers(0, levels, (20_000, 6)) / levels).astype(np.float32)
    labels = np.where(rng.random(scores.shape) < np.geomspace(0.5, 0.0005, 6), 1, -1).astype(np.int8)
    labels[rng.random(scores.shape) < 0.3] = 0
    ours = average_precision_pair_tensor(torch.from_numpy(scores), torch.from_numpy(labels))
    for one, other in zip(ours, average_precision_pair(scores, labels), strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-12)


def test_edges():
    assert average_precision_tensor(torch.empty(0, 3), torch.empty(0, 3)).isnan().all()
    assert average_precision_tensor(torch.rand(4, 2), torch.zeros(4, 2), encoding="signed").isnan().all()
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
    with pytest.raises(ArrayError, match="must have the same shape"):
        average_precision_tensor(scores, torch.ones(5, 3))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8])
def test_labels_that_cannot_say_absent_are_refused(dtype):
    # Read as present and unknown, every class would have an average precision of 1.
    with pytest.raises(ArrayError, match="labels: can be read in 2 ways"):
        average_precision_tensor(torch.rand(2, 2), torch.eye(2).to(dtype))


def test_a_label_that_is_not_a_number_is_unknown():
    scores = torch.rand(40, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(-1, 2, (40, 3), generator=torch.Generator().manual_seed(1)).float()
    with_nan = torch.where(labels == 0, torch.nan, labels)
    assert torch.equal(average_precision_tensor(scores, with_nan), average_precision_tensor(scores, labels))


def test_whole_numbers_are_ranked_as_well():
    scores, labels = torch.randint(0, 9, (40, 3)), torch.randint(-1, 2, (40, 3))
    expected = average_precision(scores.numpy(), labels.numpy())
    np.testing.assert_allclose(average_precision_tensor(scores, labels).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_does_not_wait_for_the_device(dtype):
    # Tensors without content stand for a GPU; an operation that needs a value of theirs fails.
    with FakeTensorMode():
        scores = torch.empty(20, 3, dtype=dtype, device="cuda")
        labels = torch.empty(20, 3, dtype=torch.int8, device="cuda")
        for result in average_precision_pair_tensor(scores, labels, encoding="signed"):
            assert result.device.type == "cuda"
            assert result.shape == (3,)
            assert result.dtype == torch.float64
        with pytest.raises(DataDependentOutputException):
            result[0].item()

"""Chunked formulas against plain ones: value, gradient, memory, no waiting for the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from reference import network as reference
from satl.models import cooccurrence_graph, pair_indices, pair_scores, semantic_attention, symmetric_pairs
from satl.models.kernels.attention import attention_gradients_in_chunks, attention_in_chunks
from satl.models.kernels.pairs import pair_gradients_in_chunks, pair_scores_in_chunks

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


class Watch(TorchDispatchMode):
    """Record the largest tensor made and the names of the operators called."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0
        self.called: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.called.add(func.overloadpacket.__name__)
        for value in result if isinstance(result, list | tuple) else [result]:
            if isinstance(value, Tensor):
                self.largest = max(self.largest, value.numel())
        return result


def inputs(
    *shapes: tuple[int, ...], seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu"
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]
    return [values.to(device).requires_grad_() for values in drawn]


def value_and_gradients(function: Callable[..., Tensor], arguments: list[Tensor]) -> list[Tensor]:
    value = function(*arguments)
    positions = torch.arange(value.numel(), dtype=torch.float64, device=value.device)
    weights = torch.cos(positions).reshape(value.shape).to(value.dtype)
    gradients = torch.autograd.grad((value * weights).sum(), arguments, allow_unused=False)
    return [value.detach(), *gradients]


def attention_by_chunks(arguments: list[Tensor], max_elements: int) -> None:
    """Both passes of the attention outside its operator, into which a dispatch mode does not see."""
    tensors = [argument.detach() for argument in arguments]
    logits = attention_in_chunks(*tensors, max_elements)
    attention_gradients_in_chunks(logits, *tensors, max_elements)


def pair_scores_by_chunks(arguments: list[Tensor], max_elements: int) -> None:
    """Both passes of the pair scores outside their operator."""
    tensors = [argument.detach() for argument in arguments]
    scores = pair_scores_in_chunks(*tensors, max_elements)
    pair_gradients_in_chunks(scores, *tensors, max_elements)


def assert_same(left: list[Tensor], right: list[Tensor], tolerance: float) -> None:
    for a, b in zip(left, right, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(1, 3),
    locations=st.integers(1, 5),
    classes=st.integers(1, 6),
    dim=st.integers(1, 7),
    max_elements=st.integers(1, 300),
    seed=st.integers(0, 999),
)
def test_attention_equals_the_plain_formula(
    batch: int, locations: int, classes: int, dim: int, max_elements: int, seed: int
) -> None:
    arguments = inputs((batch, locations, dim), (classes, dim), (dim,), seed=seed)
    plain = value_and_gradients(reference.attention_logits, arguments)
    chunked = value_and_gradients(lambda *a: semantic_attention(*a, max_elements=max_elements), arguments)
    assert chunked[0].shape == (batch, classes, locations)
    assert_same(chunked, plain, 1e-10)


@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(1, 3),
    classes=st.integers(2, 9),
    dim=st.integers(1, 7),
    max_elements=st.integers(1, 2000),
    seed=st.integers(0, 999),
)
def test_pair_scores_equal_the_plain_formula(
    batch: int, classes: int, dim: int, max_elements: int, seed: int
) -> None:
    pairs = classes * (classes - 1) // 2
    arguments = inputs((batch, classes, dim), (batch, classes, dim), (pairs, dim), seed=seed)
    plain = value_and_gradients(reference.pair_scores, arguments)
    chunked = value_and_gradients(lambda *a: pair_scores(*a, max_elements=max_elements), arguments)
    assert chunked[0].shape == (batch, pairs)
    assert_same(chunked, plain, 1e-10)


def test_gradients_agree_with_finite_differences() -> None:
    attention = inputs((2, 3, 4), (3, 4), (4,))
    assert torch.autograd.gradcheck(lambda *a: semantic_attention(*a, max_elements=20), attention)
    pairs = inputs((2, 4, 3), (2, 4, 3), (6, 3))
    assert torch.autograd.gradcheck(lambda *a: pair_scores(*a, max_elements=40), pairs)


@pytest.mark.parametrize("device", DEVICES)
def test_results_do_not_depend_on_the_chunk_size(device: str) -> None:
    attention = inputs((3, 6, 8), (7, 8), (8,), device=device)
    pairs = inputs((3, 11, 8), (3, 11, 8), (55, 8), device=device)
    for function, arguments in ((semantic_attention, attention), (pair_scores, pairs)):
        whole = value_and_gradients(lambda *a, f=function: f(*a, max_elements=10**6), arguments)
        for max_elements in (1, 24, 100, 240, 700, None):
            part = value_and_gradients(
                lambda *a, f=function, m=max_elements: f(*a, max_elements=m), arguments
            )
            assert_same(part, whole, 1e-12)


def test_one_class_has_no_pairs_and_zero_gradients() -> None:
    value, *gradients = value_and_gradients(pair_scores, inputs((2, 1, 3), (2, 1, 3), (0, 3)))
    assert value.shape == (2, 0)
    assert all(not gradient.any() for gradient in gradients)


def test_wrong_number_of_pairs_and_chunk_size_are_refused() -> None:
    with pytest.raises(ValueError, match="3 classes have 3 pairs, not 4"):
        pair_scores(torch.zeros(1, 3, 2), torch.zeros(1, 3, 2), torch.zeros(4, 2))
    with pytest.raises(ValueError, match="max_elements is 0"):
        semantic_attention(torch.zeros(1, 1, 2), torch.zeros(1, 2), torch.zeros(2), max_elements=0)


def test_attention_never_holds_the_whole_product() -> None:
    batch, locations, classes, dim, max_elements = 4, 9, 12, 16, 600
    arguments = inputs((batch, locations, dim), (classes, dim), (dim,))
    with Watch() as watch:
        attention_by_chunks(arguments, max_elements)
    assert 0 < watch.largest <= max(max_elements, batch * locations * max(classes, dim))
    with Watch() as plain:
        value_and_gradients(reference.attention_logits, arguments)
    assert plain.largest == batch * locations * classes * dim


@pytest.mark.parametrize("max_elements", [1, 1500, 3000])
def test_pair_scores_never_hold_a_vector_per_image_and_pair(max_elements: int) -> None:
    batch, classes, dim = 5, 14, 16
    pairs = classes * (classes - 1) // 2
    arguments = inputs((batch, classes, dim), (batch, classes, dim), (pairs, dim))
    with Watch() as watch:
        pair_scores_by_chunks(arguments, max_elements)
    assert 0 < watch.largest <= max(max_elements, batch * classes * dim, pairs * dim)
    assert watch.largest < batch * pairs * dim


@pytest.mark.parametrize("device", DEVICES)
def test_nothing_waits_for_the_device(device: str, request: pytest.FixtureRequest) -> None:
    attention = inputs((2, 3, 4), (3, 4), (4,), device=device)
    pairs = inputs((2, 5, 4), (2, 5, 4), (10, 4), device=device)
    (values,) = inputs((2, 10), device=device)
    if device == "cuda":
        request.addfinalizer(lambda: torch.cuda.set_sync_debug_mode("default"))
        torch.cuda.set_sync_debug_mode("error")
    with Watch() as watch:
        value_and_gradients(semantic_attention, attention)
        value_and_gradients(pair_scores, pairs)
        attention_by_chunks(attention, 20)
        pair_scores_by_chunks(pairs, 40)
        value_and_gradients(lambda x: symmetric_pairs(x, 5, 1.0), [values])
    waiting = {"_local_scalar_dense", "item", "nonzero", "masked_select", "is_nonzero", "unique", "equal"}
    scattered = {"index_add", "index_add_", "scatter_add", "scatter_add_", "index_put_", "_index_put_impl_"}
    assert {"semantic_attention", "pair_scores", "tanh_", "bmm"} <= watch.called
    assert not watch.called & (waiting | scattered)
    with Watch() as control:
        torch.ones(1).item()
    assert control.called & waiting


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_half_precision_is_accumulated_in_float32(dtype: torch.dtype, device: str) -> None:
    attention = inputs((2, 9, 64), (5, 64), (64,), dtype=dtype, device=device)
    pairs = inputs((2, 6, 64), (2, 6, 64), (15, 64), dtype=dtype, device=device)
    for function, plain, arguments in (
        (semantic_attention, reference.attention_logits, attention),
        (pair_scores, reference.pair_scores, pairs),
    ):
        with torch.autocast(device, dtype=torch.bfloat16):
            value, *gradients = value_and_gradients(function, arguments)
        exact, *exact_gradients = value_and_gradients(
            plain, [a.detach().double().requires_grad_() for a in arguments]
        )
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-4)
        for argument, gradient, wanted in zip(arguments, gradients, exact_gradients, strict=True):
            assert gradient.dtype == argument.dtype
            rounding = 1e-2 if dtype == torch.bfloat16 else 1e-5
            torch.testing.assert_close(gradient.double(), wanted, rtol=rounding, atol=1e-4)


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_symmetric_pairs(classes: int) -> None:
    pairs = classes * (classes - 1) // 2
    (values,) = inputs((3, pairs))
    matrix = symmetric_pairs(values, classes, diagonal=0.5)
    assert matrix.shape == (3, classes, classes)
    for k, (i, j) in enumerate(pair_indices(classes).T.tolist()):
        assert torch.equal(matrix[:, i, j], values[:, k])
        assert torch.equal(matrix[:, j, i], values[:, k])
    assert bool((matrix.diagonal(dim1=1, dim2=2) == 0.5).all())
    if pairs:
        assert torch.autograd.gradcheck(lambda x: symmetric_pairs(x, classes, 0.5), [values])


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 5).flatmap(
        lambda c: st.lists(st.lists(st.integers(-1, 1), min_size=c, max_size=c), min_size=1)
    )
)
def test_graph_equals_counting_and_has_no_nan(labels: list[list[int]]) -> None:
    table = np.array(labels, dtype=np.int8)
    graph = cooccurrence_graph(table, encoding="signed")
    assert graph.dtype == torch.float32
    torch.testing.assert_close(graph, torch.tensor(reference.cooccurrence_graph(labels, table.shape[1])))
    assert torch.equal(graph, cooccurrence_graph(torch.from_numpy(table), encoding="signed"))


def test_graph_of_a_read_only_table_without_rows() -> None:
    table = np.zeros((0, 3), dtype=np.int8)
    table.flags.writeable = False
    assert torch.equal(cooccurrence_graph(table), torch.eye(3))

"""The operators of attention and pair scores: registration, compilation, and the fused kernels without a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from reference import network as reference
from satl.models import pair_scores, semantic_attention
from satl.models.kernels import attention, pairs
from satl.models.kernels.precision import fused

BF16, F32, F64 = torch.bfloat16, torch.float32, torch.float64
PLAIN = {"semantic_attention": reference.attention_logits, "pair_scores": reference.pair_scores}


def drawn(*shapes: tuple[int, ...], dtypes: tuple[torch.dtype, ...], seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(shape, generator=generator).to(dtype) for shape, dtype in zip(shapes, dtypes, strict=True)
    ]


def attention_inputs(
    batch: int, locations: int, classes: int, dim: int, *dtypes: torch.dtype
) -> list[Tensor]:
    return drawn((batch, locations, dim), (classes, dim), (dim,), dtypes=dtypes or (F32,) * 3)


def pair_inputs(batch: int, classes: int, dim: int, *dtypes: torch.dtype) -> list[Tensor]:
    side = (batch, classes, dim)
    return drawn(side, side, (classes * (classes - 1) // 2, dim), dtypes=dtypes or (F32,) * 3)


def weights_of(name: str, tensors: list[Tensor]) -> Tensor:
    """Weights of the output, other than one, so that a gradient at a wrong place is seen."""
    batch, second = tensors[0].shape[:2]
    shape = (batch, tensors[1].shape[0], second) if name == "semantic_attention" else (batch, len(tensors[2]))
    return drawn(shape, dtypes=(F32,), seed=1)[0]


def both(projected: Tensor, queries: Tensor, weight: Tensor, vectors: Tensor) -> Tensor:
    """Ordinary operations before, between and after both operators."""
    logits = semantic_attention(projected.tanh(), queries * 2, weight)
    features = torch.matmul(torch.softmax(logits, -1), projected.float())
    return torch.sigmoid(pair_scores(features, features + 1, vectors)).square()


def with_gradients(function: Callable[..., Tensor], tensors: list[Tensor]) -> list[Tensor]:
    arguments = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    value = function(*arguments)
    return [value.detach(), *torch.autograd.grad(value.sum(), arguments)]


@pytest.mark.parametrize("dtypes", [(F32,) * 3, (BF16, BF16, F32)])
def test_operators_keep_what_they_register(dtypes: tuple[torch.dtype, ...]) -> None:
    for name, operator, backward, tensors in (
        (
            "semantic_attention",
            torch.ops.satl.semantic_attention.default,
            torch.ops.satl.semantic_attention_backward.default,
            attention_inputs(2, 3, 4, 5, *dtypes),
        ),
        (
            "pair_scores",
            torch.ops.satl.pair_scores.default,
            torch.ops.satl.pair_scores_backward.default,
            pair_inputs(2, 4, 5, *dtypes),
        ),
    ):
        tensors[1] = tensors[1].mT.contiguous().mT  # strides are no matter of the result's
        torch.library.opcheck(operator, [tensor.clone().requires_grad_() for tensor in tensors])
        torch.library.opcheck(backward, [weights_of(name, tensors), *tensors])


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_as_one_graph_with_equal_values_and_gradients(backend: str) -> None:
    tensors = [*attention_inputs(2, 5, 4, 8), drawn((6, 8), dtypes=(F32,))[0]]
    compiled = torch.compile(both, fullgraph=True, backend=backend)
    for got, wanted in zip(with_gradients(compiled, tensors), with_gradients(both, tensors), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)


def test_one_node_each_in_a_traced_graph() -> None:
    seen: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    torch.compile(both, fullgraph=True, backend=backend)(
        *attention_inputs(2, 5, 4, 8), drawn((6, 8), dtypes=(F32,))[0]
    )
    own = [target for target in seen if "satl" in target]
    assert len(own) == 2
    assert len(seen) < 15


def test_inputs_may_be_views_and_results_are_contiguous() -> None:
    projected, queries, weight = attention_inputs(2, 6, 4, 8)
    left, right, vectors = pair_inputs(2, 4, 8)
    logits = semantic_attention(projected.transpose(1, 2).contiguous().transpose(1, 2), queries, weight)
    scores = pair_scores(left.transpose(0, 1).contiguous().transpose(0, 1), right, vectors.T.contiguous().T)
    torch.testing.assert_close(logits, semantic_attention(projected, queries, weight))
    torch.testing.assert_close(scores, pair_scores(left, right, vectors))
    assert logits.is_contiguous()
    assert scores.is_contiguous()


def test_a_second_derivative_is_refused() -> None:
    tensors = [tensor.requires_grad_() for tensor in attention_inputs(1, 2, 2, 3)]
    (first,) = torch.autograd.grad(semantic_attention(*tensors).square().sum(), tensors[0], create_graph=True)
    with pytest.raises(RuntimeError, match="autograd"):
        torch.autograd.grad(first.sum(), tensors[0])


def test_fused_only_on_cuda_and_not_in_float64() -> None:
    class OnCuda:
        is_cuda = True

        def __init__(self, dtype: torch.dtype) -> None:
            self.dtype = dtype

    assert not fused(torch.ones(1), torch.ones(1, dtype=BF16))
    assert not fused(OnCuda(F32), OnCuda(F64))
    assert not fused(OnCuda(F32), torch.ones(1))


def test_a_cpu_needs_no_triton() -> None:
    program = (
        "import sys; sys.modules['triton'] = None\n"
        "import torch\n"
        "from satl.models import pair_scores, semantic_attention\n"
        "from satl.models.kernels.precision import fused\n"
        "x = torch.ones(2, 3, 4, requires_grad=True)\n"
        "scores = pair_scores(x, x, torch.ones(3, 4)).sum()\n"
        "(scores + semantic_attention(x, torch.ones(3, 4), torch.ones(4)).sum()).backward()\n"
        "assert not [name for name in sys.modules if name.startswith('satl') and 'triton' in name]\n"
        "print(scores.item())"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.stdout.split() == ["48.0"], ran.stderr


if sys.platform == "linux":  # where Triton comes with PyTorch
    # Odd sizes: tiles cut off in every direction, one image, one location, one class, two classes, one number.
    INTERPRETED = [
        ("semantic_attention", attention_inputs(2, 5, 3, 7)),
        ("semantic_attention", attention_inputs(1, 1, 1, 1)),
        ("semantic_attention", attention_inputs(3, 11, 18, 40, BF16, BF16, F32)),
        ("semantic_attention", attention_inputs(2, 16, 5, 64, F32, BF16, BF16)),  # even: no predicates
        ("semantic_attention", [30 * attention_inputs(1, 4, 3, 9)[0], *attention_inputs(1, 4, 3, 9)[1:]]),
        ("pair_scores", pair_inputs(2, 5, 7)),
        ("pair_scores", pair_inputs(1, 2, 1)),
        ("pair_scores", pair_inputs(2, 1, 5)),  # no pairs
        ("pair_scores", pair_inputs(5, 6, 70, BF16, BF16, F32)),
        ("pair_scores", pair_inputs(3, 6, 128, F32, BF16, BF16)),
    ]

    @pytest.fixture(scope="module")
    def interpreted(tmp_path_factory: pytest.TempPathFactory) -> list[list[Tensor]]:
        folder = tmp_path_factory.mktemp("interpreted")
        torch.save(
            [(name, tensors, weights_of(name, tensors)) for name, tensors in INTERPRETED], folder / "in.pt"
        )
        worker = Path(__file__).with_name("kernel_worker.py")
        subprocess.run(
            [sys.executable, worker, folder / "in.pt", folder / "out.pt"],
            env={**os.environ, "TRITON_INTERPRET": "1"},
            check=True,
        )
        results: list[list[Tensor]] = torch.load(folder / "out.pt")
        return results

    @pytest.mark.parametrize("case", range(len(INTERPRETED)))
    def test_interpreted_kernels_equal_the_plain_formula(case: int, interpreted: list[list[Tensor]]) -> None:
        name, tensors = INTERPRETED[case]
        weights = weights_of(name, tensors).double()
        exact = [tensor.double().requires_grad_() for tensor in tensors]
        value = PLAIN[name](*exact)
        total = (value * weights).sum() + sum(0 * tensor.sum() for tensor in exact)  # there may be no pair
        gradients = torch.autograd.grad(total, exact)
        got, *got_gradients = interpreted[case]
        assert got.dtype == F32
        torch.testing.assert_close(got.double(), value.detach(), rtol=1e-5, atol=1e-5)
        for tensor, left, right in zip(tensors, got_gradients, gradients, strict=True):
            assert left.dtype == tensor.dtype
            # The interpreter cuts off where a device rounds to half precision.
            rounding = 8e-3 if tensor.dtype == BF16 else 1e-5
            torch.testing.assert_close(left.double(), right, rtol=rounding, atol=5e-5)

    @pytest.mark.parametrize("case", range(len(INTERPRETED)))
    def test_interpreted_kernels_equal_the_chunks(case: int, interpreted: list[list[Tensor]]) -> None:
        name, tensors = INTERPRETED[case]
        weights = weights_of(name, tensors)
        forward, backward = {
            "semantic_attention": (attention.attention_in_chunks, attention.attention_gradients_in_chunks),
            "pair_scores": (pairs.pair_scores_in_chunks, pairs.pair_gradients_in_chunks),
        }[name]
        wanted = [forward(*tensors, 1000), *backward(weights, *tensors, 1000)]
        for left, right in zip(interpreted[case], wanted, strict=True):
            rounding = 8e-3 if right.dtype == BF16 else 1e-5
            torch.testing.assert_close(left, right, rtol=rounding, atol=1e-4)

    class Launches:
        """Stands in for a kernel and notes how it is launched."""

        def __init__(self, kernel: Any, noted: list[tuple[Any, tuple[Any, ...], dict[str, Any]]]) -> None:
            self.kernel, self.noted = kernel, noted

        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            return lambda *args, **named: self.noted.append((self.kernel, args, named))

    def launches(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> Iterator[tuple[Any, Any, Any]]:
        """What is launched for 32 images, 80 classes and the dimensions of the published network."""
        from satl.models.kernels import triton_attention, triton_pairs

        noted: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
        for module, names in (
            (triton_attention, ("_forward", "_backward", "_sum_slices")),
            (triton_pairs, ("_forward", "_vectors_gradient", "_side_gradient")),
        ):
            for name in names:
                monkeypatch.setattr(module, name, Launches(getattr(module, name), noted))
        with torch.device("meta"):
            projected, queries, weight = torch.empty(32, 49, 512), torch.empty(80, 512), torch.empty(512)
            left, vectors = torch.empty(32, 80, 1024), torch.empty(3160, 1024)
            grad, pair_grad = torch.empty(32, 80, 49), torch.empty(32, 3160)
        projected, queries, left, vectors = (x.to(dtype) for x in (projected, queries, left, vectors))
        triton_attention.attention(projected, queries, weight)
        triton_attention.attention_gradients(grad, projected, queries, weight)
        triton_pairs.pair_scores(left, left, vectors)
        triton_pairs.pair_gradients(pair_grad, left, left, vectors)
        return iter(noted)

    @pytest.mark.parametrize("dtype", [BF16, pytest.param(F32, marks=pytest.mark.slow)])
    def test_kernels_compile_for_an_h200_and_keep_to_its_registers(
        dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
        kinds = {BF16: "*bf16", F32: "*fp32"}
        compiled = []
        for kernel, args, named in launches(monkeypatch, dtype):
            options = {"num_warps": named.pop("num_warps"), "enable_fp_fusion": True}
            assert named.pop("enable_fp_fusion")
            signature = dict.fromkeys(kernel.arg_names, "constexpr")
            for name, value in zip(kernel.arg_names, args, strict=False):
                plain = {int: "i32", float: "fp32"}
                signature[name] = kinds[value.dtype] if isinstance(value, Tensor) else plain[type(value)]
            constants = {(kernel.arg_names.index(name),): value for name, value in named.items()}
            source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
            built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
            (tmp_path / "kernel.cubin").write_bytes(built.asm["cubin"])
            tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
            usage = subprocess.run(
                [tool, "-res-usage", tmp_path / "kernel.cubin"], capture_output=True, text=True, check=True
            ).stdout
            stack = re.search(r"REG:\d+ STACK:(\d+)", usage)
            assert stack is not None, usage
            assert stack.group(1) == "0", f"{kernel.__name__} spills: {usage}"
            # No number is added atomically: what is repeated is repeated bit for bit.
            assert "atom" not in built.asm["ptx"]
            assert "red.global" not in built.asm["ptx"]
            compiled.append(kernel.__name__)
        assert sorted(compiled) == sorted(
            [
                "_forward",
                "_backward",
                *["_sum_slices"] * 3,
                "_forward",
                "_vectors_gradient",
                *["_side_gradient"] * 2,
            ]
        )


if torch.cuda.is_available():
    ON_CUDA = [
        ("semantic_attention", attention_inputs(4, 49, 80, 512, BF16, BF16, F32)),
        ("semantic_attention", attention_inputs(3, 49, 33, 100)),
        ("pair_scores", pair_inputs(4, 80, 1024, BF16, BF16, BF16)),
        ("pair_scores", pair_inputs(3, 33, 100)),
    ]
    FUNCTIONS = {"semantic_attention": semantic_attention, "pair_scores": pair_scores}

    @pytest.mark.parametrize(("name", "tensors"), ON_CUDA)
    def test_fused_kernels_equal_the_formula_in_float64_and_repeat_themselves(
        name: str, tensors: list[Tensor]
    ) -> None:
        weights = weights_of(name, tensors).cuda()
        arguments = [tensor.cuda().requires_grad_() for tensor in tensors]

        def ours() -> list[Tensor]:
            value = FUNCTIONS[name](*arguments)
            return [value, *torch.autograd.grad((value * weights).sum(), arguments)]

        exact = [tensor.detach().double().requires_grad_() for tensor in arguments]
        value = FUNCTIONS[name](*exact)  # float64: in chunks
        wanted = [value, *torch.autograd.grad((value * weights).sum(), exact)]
        for left, again, right in zip(ours(), ours(), wanted, strict=True):
            assert torch.equal(left, again)
            error = (left.double() - right).abs().max() / right.abs().max()
            assert float(error) < (5e-3 if left.dtype == BF16 else 1e-5)

    @pytest.mark.parametrize(("name", "tensors"), ON_CUDA)
    def test_fused_kernels_run_in_a_cuda_graph(name: str, tensors: list[Tensor]) -> None:
        arguments = [tensor.cuda().requires_grad_() for tensor in tensors]

        def step() -> list[Tensor]:
            value = FUNCTIONS[name](*arguments)
            return [value, *torch.autograd.grad(value.square().sum(), arguments)]

        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            wanted = step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = step()
        graph.replay()
        assert all(torch.equal(left, right) for left, right in zip(captured, wanted, strict=True))

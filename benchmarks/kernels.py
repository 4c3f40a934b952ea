"""Attention logits and pair scores: the fused operators against the plain formula, eager and compiled.

    python benchmarks/kernels.py [--device cuda|cpu] [--classes 80 200] [--dtype bfloat16|float32] [--sweep]

For each operator and number of classes: the time of the forward pass and of forward and backward together (median;
CUDA events on a GPU), the ratio to ours, the peak of the memory allocated besides the inputs and its ratio (CUDA
only), and the largest error against the formula in float64 on a few images. The peers are the formula with all its
tensors (``eager``) and the same under ``torch.compile`` (CUDA only); ours is the operator as the network calls it.
A variant that fails, for want of memory or otherwise, says so in its line, and the others go on.

``--sweep`` (CUDA only) tries other sizes of the kernels' tiles and prints the time of each pass, best first; of the
backward passes, which are several kernels, one kernel's tile is varied at a time.

On a CPU the defaults are small: the formula with all its tensors is slow there.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from satl.models.functional import pair_indices, pair_scores, semantic_attention

Function = Callable[..., Tensor]


def plain_attention(projected: Tensor, queries: Tensor, weight: Tensor) -> Tensor:
    gates = torch.tanh(projected[:, None].float() * queries[None, :, None].float())
    return gates @ weight.float()


def plain_pairs(left: Tensor, right: Tensor, vectors: Tensor) -> Tensor:
    i, j = pair_indices(left.shape[1], left.device)
    hidden = torch.relu(left.float()[:, i] + right.float()[:, j])
    return (hidden * vectors.float()).sum(-1)


OPERATORS: dict[str, tuple[Function, Function]] = {
    "semantic_attention": (semantic_attention, plain_attention),
    "pair_scores": (pair_scores, plain_pairs),
}


def inputs(name: str, batch: int, classes: int, options: argparse.Namespace) -> list[Tensor]:
    dtype = getattr(torch, options.dtype)
    if name == "semantic_attention":
        shapes = [(batch, options.locations, options.attention), (classes, options.attention)]
        last = (options.attention,)
    else:
        shapes = [(batch, classes, options.hidden)] * 2
        last = (classes * (classes - 1) // 2, options.hidden)
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(shape, generator=generator).to(options.device, dtype) for shape in shapes]
    # The folded weight of the attention is made outside autocast, the pairs' vectors inside.
    weight = torch.randn(last, generator=generator) / last[-1] ** 0.5
    drawn.append(weight.to(options.device, torch.float32 if name == "semantic_attention" else dtype))
    return [tensor.requires_grad_() for tensor in drawn]


def milliseconds(work: Callable[[], object], device: str, repeats: int) -> float:
    for _ in range(3 if device == "cuda" else 1):
        work()
    times = []
    for _ in range(repeats):
        if device == "cuda":
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            # Work queued ahead keeps the GPU busy while the host launches: the time is the kernels', not Python's.
            torch.cuda._sleep(4_000_000)
            start.record()
            work()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end))
        else:
            begin = time.perf_counter()
            work()
            times.append(1000 * (time.perf_counter() - begin))
    return statistics.median(times)


def peak(work: Callable[[], object]) -> float:
    """Megabytes allocated at most during the work, besides what was allocated before."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def steps(function: Function, arguments: list[Tensor]) -> tuple[Callable[[], object], Callable[[], object]]:
    with torch.no_grad():
        grad = torch.randn_like(function(*arguments))

    def forward() -> object:
        with torch.no_grad():
            return function(*arguments)

    def both() -> object:
        return torch.autograd.grad(function(*arguments), arguments, grad)

    return forward, both


def error(name: str, classes: int, options: argparse.Namespace) -> str:
    """Largest error of value and gradients, relative to the largest number of each, on two images."""
    arguments = inputs(name, 2, classes, options)
    exact = [tensor.detach().double().requires_grad_() for tensor in arguments]
    value, wanted = OPERATORS[name][0](*arguments), OPERATORS[name][0](*exact)  # float64 runs in chunks
    grad = torch.randn_like(wanted)
    got = [value.detach(), *torch.autograd.grad(value, arguments, grad.to(value.dtype))]
    known = [wanted.detach(), *torch.autograd.grad(wanted, exact, grad)]
    parts = [float((a.double() - b).abs().max() / b.abs().max()) for a, b in zip(got, known, strict=True)]
    return "value {:.1e}, gradients {:.1e} {:.1e} {:.1e}".format(*parts)


def guarded(label: str, work: Callable[[], None]) -> None:
    try:
        work()
    except Exception as problem:
        print(
            f"  {label:<10} failed: {type(problem).__name__}: {str(problem).splitlines()[0][:120]}",
            flush=True,
        )
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def compare(name: str, classes: int, options: argparse.Namespace) -> None:
    arguments = inputs(name, options.batch, classes, options)
    shapes = " ".join("x".join(map(str, tensor.shape)) for tensor in arguments)
    print(f"\n{name}, {classes} classes: {shapes} {options.dtype}{blocks(name, classes, options)}")
    print(f"  {'':<10}{'forward':>12}{'both':>12}{'ratio':>8}{'ratio':>8}{'peak MB':>10}{'ratio':>8}")
    ours, plain = OPERATORS[name]
    variants = {"ours": ours, "eager": plain}
    if options.device == "cuda":
        variants["compiled"] = torch.compile(plain, fullgraph=True, dynamic=False)
    own: list[float] = []

    def measure(label: str, function: Function) -> None:
        forward, both = steps(function, arguments)
        figures = [milliseconds(work, options.device, options.repeats) for work in (forward, both)]
        if options.device == "cuda":
            figures.append(peak(both))
        if label == "ours":
            own.extend(figures)
        ratios = [theirs / mine for theirs, mine in zip(figures, own, strict=False)] or [float("nan")] * 3
        memory = f"{figures[2]:>10.1f}{ratios[2]:>8.2f}" if len(figures) > 2 else ""
        print(
            f"  {label:<10}{figures[0]:>9.3f} ms{figures[1]:>9.3f} ms{ratios[0]:>8.2f}{ratios[1]:>8.2f}{memory}",
            flush=True,
        )

    for label, function in variants.items():
        guarded(label, lambda label=label, function=function: measure(label, function))
    guarded("error", lambda: print(f"  {'error':<10} {error(name, classes, options)}", flush=True))


def blocks(name: str, classes: int, options: argparse.Namespace) -> str:
    """The tiles the kernels use at these sizes, in words."""
    if options.device != "cuda":
        return ""
    from satl.models.kernels import triton_attention, triton_pairs

    if name == "semantic_attention":
        sizes = (options.batch * options.locations, classes, options.attention)
        return (
            f"\n  forward {triton_attention.forward_blocks(*sizes)}"
            f"\n  backward {triton_attention.backward_blocks(*sizes)}"
        )
    sizes = (options.batch, classes, options.hidden)
    return (
        f"\n  forward {triton_pairs.forward_blocks(*sizes)}\n  vectors {triton_pairs.vectors_blocks(*sizes)}"
        f"\n  sides {triton_pairs.side_blocks(*sizes)}"
    )


# Tiles worth a try. More warps lie along the last dimension where its size grows with them, else along another
# one, and then share inputs through shared memory.
ATTENTION_FORWARD = [  # rows, classes, dim, unroll, warps
    *[(8, 4, 32, unroll, 1) for unroll in (1, 2, 4)],
    *[(4, 4, 32, unroll, 1) for unroll in (2, 4)],
    *((4, 8, 32, 2, 1), (8, 2, 32, 2, 1), (16, 2, 32, 2, 1), (16, 4, 32, 1, 1), (8, 8, 32, 1, 1)),
    *((8, 4, 64, 1, 2), (8, 4, 128, 1, 4), (16, 8, 32, 2, 4)),
]
ATTENTION_BACKWARD = [  # rows, dim, warps; each with several slices of the classes
    *((32, 32, 1), (16, 32, 1), (8, 64, 1), (16, 64, 1), (32, 64, 2), (32, 128, 4), (16, 128, 4)),
]
PAIRS_FORWARD = [  # i, j, images, dim, unroll, warps
    *[(4, 4, 4, 32, unroll, 1) for unroll in (1, 2)],
    *[(4, 4, 2, 32, unroll, 1) for unroll in (1, 2, 4)],
    *(
        (2, 4, 4, 32, 2, 1),
        (2, 2, 8, 32, 2, 1),
        (2, 4, 8, 32, 1, 1),
        (4, 8, 2, 32, 1, 1),
        (8, 8, 1, 32, 1, 1),
    ),
    *((4, 4, 4, 64, 1, 2), (4, 4, 4, 128, 1, 4), (4, 4, 2, 128, 1, 4)),
    *(
        (4, 4, 8, 32, 1, 2),
        (4, 4, 16, 32, 1, 4),
        (8, 8, 4, 32, 1, 4),
        (8, 8, 8, 32, 1, 8),
        (4, 8, 16, 32, 1, 8),
    ),
]
PAIRS_VECTORS = [  # i, j, dim, warps
    *((4, 4, 128, 1), (4, 4, 64, 1), (2, 4, 128, 1), (4, 2, 128, 1), (2, 2, 256, 1), (4, 2, 64, 1)),
    *((4, 4, 256, 2), (4, 4, 512, 4), (4, 4, 128, 2), (4, 8, 64, 1), (8, 8, 64, 4)),
]
PAIRS_SIDES = [  # own classes, images, dim, warps
    *((4, 4, 128, 1), (4, 4, 64, 1), (2, 4, 128, 1), (4, 2, 128, 1), (2, 2, 256, 1), (2, 8, 128, 1)),
    *((8, 2, 128, 1), (2, 4, 64, 1), (4, 4, 256, 2), (4, 4, 512, 4), (4, 4, 128, 2), (4, 8, 64, 1)),
]


def candidates(classes: int, options: argparse.Namespace) -> Iterator[tuple[str, str, Callable[[], object]]]:
    """Kernel, tile and launch of every combination worth a try."""
    from satl.models.kernels.triton_attention import AttentionBlocks, attention, attention_gradients
    from satl.models.kernels.triton_pairs import PairBlocks, pair_gradients
    from satl.models.kernels.triton_pairs import pair_scores as fused_pair_scores

    p, q, w = (x.detach() for x in inputs("semantic_attention", options.batch, classes, options))
    grad = torch.randn(p.shape[0], classes, p.shape[1], device=options.device)
    left, right, vectors = (x.detach() for x in inputs("pair_scores", options.batch, classes, options))
    pair_grad = torch.randn(options.batch, len(vectors), device=options.device)
    for sizes in ATTENTION_FORWARD:
        tile = AttentionBlocks(*sizes)
        yield "attention forward", str(tile), partial(attention, p, q, w, tile)
    for (rows, dim, warps), slices in itertools.product(ATTENTION_BACKWARD, (2, 4, 8)):
        tile = AttentionBlocks(rows, -(-classes // slices), dim, 1, warps)
        yield "attention backward", str(tile), partial(attention_gradients, grad, p, q, w, tile)
    for sizes in PAIRS_FORWARD:
        tile = PairBlocks(*sizes)
        yield "pairs forward", str(tile), partial(fused_pair_scores, left, right, vectors, tile)
    gradients = partial(pair_gradients, pair_grad, left, right, vectors)
    for i, j, dim, warps in PAIRS_VECTORS:
        tile = PairBlocks(i, j, 1, dim, 1, warps)
        yield "pairs backward, vectors", str(tile), partial(gradients, for_vectors=tile)
    for own, b, dim, warps in PAIRS_SIDES:
        tile = PairBlocks(own, own, b, dim, 1, warps)
        yield "pairs backward, sides", str(tile), partial(gradients, for_sides=tile)


def sweep(classes: int, options: argparse.Namespace) -> None:
    print(f"\nother tiles, {classes} classes, best first")
    found: dict[str, list[tuple[float, str]]] = {}
    end = time.monotonic() + options.sweep_seconds
    left_out = 0
    for kernel, tile, launch in candidates(classes, options):
        if time.monotonic() > end:
            left_out += 1
            continue
        try:
            found.setdefault(kernel, []).append((milliseconds(launch, "cuda", 7), tile))
        except Exception as problem:
            first = (str(problem).splitlines() or [""])[0]
            print(f"  {kernel} {tile} failed: {type(problem).__name__}: {first[:80]}", flush=True)
    for kernel, times in found.items():
        for taken, tile in sorted(times)[: options.sweep_lines]:
            print(f"  {kernel:<32}{taken:>9.3f} ms  {tile}", flush=True)
    if left_out:
        print(f"  {left_out} tiles left out after {options.sweep_seconds} s (--sweep-seconds)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--device", choices=["cuda", "cpu"], default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument("--classes", type=int, nargs="+")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--locations", type=int, default=49)
    parser.add_argument("--attention", type=int)
    parser.add_argument("--hidden", type=int)
    parser.add_argument("--dtype", choices=["bfloat16", "float32"])
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--sweep-seconds", type=int, default=240, help="most time per number of classes")
    parser.add_argument("--sweep-lines", type=int, default=6, help="lines printed per kernel")
    options = parser.parse_args()
    on_cuda = options.device == "cuda"
    for name, large, small in (
        *(("classes", [80, 200], [20]), ("batch", 32, 4), ("attention", 512, 128), ("hidden", 1024, 128)),
        *(("dtype", "bfloat16", "float32"), ("repeats", 20, 5)),
    ):
        if getattr(options, name) is None:
            setattr(options, name, large if on_cuda else small)
    machine = torch.cuda.get_device_name() if on_cuda else f"{torch.get_num_threads()} threads"
    print(f"torch {torch.__version__}, {machine}, median of {options.repeats}; ratios: theirs / ours")
    for classes in options.classes:
        for name in OPERATORS:
            guarded(name, lambda name=name, classes=classes: compare(name, classes, options))
    if options.sweep and on_cuda:
        for classes in options.classes:
            guarded("sweep", lambda classes=classes: sweep(classes, options))


if __name__ == "__main__":
    main()

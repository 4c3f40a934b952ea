"""Average precision of 40,000 x 80 scores: satl against scikit-learn, in one run.

    python benchmarks/average_precision.py [--images 40000] [--classes 80] [--repeats 5] [--device cuda]

Both get the same complete labels and the same scores (with ties); the values must agree to 1e-12. The
times are the best of the repeats, taken in turn so that a busy machine slows both alike. scikit-learn
computes the plain average precision only; satl's time is for interpolated and plain together. With
``--device cuda`` the version for tensors is timed as well, from scores on the GPU to numbers on the host,
against the NumPy version with its copy from the GPU.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from sklearn.metrics import average_precision_score

from satl.evaluation import average_precision_pair, evaluate_scores

BUDGET = 0.5


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def tensors_against_numpy(scores: np.ndarray, labels: np.ndarray, repeats: int, device: str) -> bool:
    """Print one row for each dtype; whether every value agrees."""
    import torch

    from satl.evaluation.tensor_average_precision import average_precision_pair_tensor

    where = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    print(f"tensors on {where}, both APs as numbers on the host")
    print(f"{'scores':<24}{'tensors':>12}{'copy + NumPy':>14}{'ratio':>8}{'difference':>12}")
    truth = torch.from_numpy(labels).to(device)
    agree = True
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        matrix = torch.from_numpy(scores).to(device, dtype)

        def ours(matrix: torch.Tensor = matrix) -> np.ndarray:
            return torch.stack(average_precision_pair_tensor(matrix, truth, encoding="signed")).cpu().numpy()

        def numpy(matrix: torch.Tensor = matrix) -> np.ndarray:
            copied = matrix.float() if matrix.dtype == torch.bfloat16 else matrix
            return np.stack(average_precision_pair(copied.cpu().numpy(), labels))

        difference = float(np.abs(ours() - numpy()).max())
        times = [(seconds(ours), seconds(numpy)) for _ in range(repeats)]
        own, peer = (min(column) for column in zip(*times, strict=True))
        name = str(dtype).removeprefix("torch.")
        print(f"{name:<24}{own * 1000:>9.2f} ms{peer * 1000:>11.2f} ms{own / peer:>8.3f}{difference:>12.1e}")
        agree = agree and difference < 1e-12
    return agree


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=40_000)
    parser.add_argument("--classes", type=int, default=80)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--device", choices=["cpu", "cuda"], help="time the version for tensors there as well"
    )
    options = parser.parse_args()
    shape = (options.images, options.classes)
    rng = np.random.default_rng(0)
    share = np.geomspace(0.3, 0.002, options.classes)  # long-tailed, as in MS-COCO
    labels = np.where(rng.random(shape) < share, 1, -1).astype(np.int8)
    labels[0] = 1  # every class has a positive
    logits = rng.normal(size=shape) + 1.5 * (labels == 1) - 2.0
    scores = 1 / (1 + np.exp(-logits))
    half = scores.astype(np.float16)  # many ties
    missed = []
    print(f"{options.images} x {options.classes}, best of {options.repeats}")
    print(f"{'scores':<24}{'satl':>10}{'scikit-learn':>14}{'ratio':>8}{'difference':>12}")
    for name, matrix in (
        ("float32", scores.astype(np.float32)),
        ("float64", scores),
        ("float32, half's ties", half.astype(np.float32)),
        ("float16", half),
    ):

        def scikit_learn(matrix: np.ndarray = matrix) -> np.ndarray:
            return np.array(
                [average_precision_score(labels[:, c] == 1, matrix[:, c]) for c in range(options.classes)]
            )

        def ours(matrix: np.ndarray = matrix) -> np.ndarray:
            return average_precision_pair(matrix, labels)[1]

        difference = float(np.abs(ours() - scikit_learn()).max())
        times = [(seconds(ours), seconds(scikit_learn)) for _ in range(options.repeats)]
        own, peer = (min(column) for column in zip(*times, strict=True))
        print(f"{name:<24}{own:>8.3f} s{peer:>12.3f} s{own / peer:>8.3f}{difference:>12.1e}")
        if own / peer > BUDGET or difference > 1e-12:
            missed.append(name)
    names = [str(c) for c in range(options.classes)]
    whole = min(seconds(lambda: evaluate_scores(scores, labels, names)) for _ in range(options.repeats))
    print(f"evaluate_scores (both APs, 12 count metrics, per-class table), float64: {whole:.3f} s")
    if options.device and not tensors_against_numpy(scores, labels, options.repeats, options.device):
        missed.append("tensors")
    print(f"budget: ratio <= {BUDGET}: {'missed by ' + ', '.join(missed) if missed else 'kept'}")
    raise SystemExit(bool(missed))


if __name__ == "__main__":
    main()

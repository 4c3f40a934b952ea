"""Does a fast training learn what a plain one learns? Scenes, several seeds, paired.

    python benchmarks/same_numbers.py [--seeds 5] [--jobs 1] [--device cpu|cuda] [--json OUT]

Each seed draws its own pictures, mask and weights, and all variants of a seed share them: the published network
written plainly (``benchmarks/plain_sst.py``: nothing folded, everything materialised) in float32, satl's network
in float32, in bf16, and compiled in bf16 (with CUDA graphs on a GPU). Prints every run, then the test mAP of each
variant and its paired difference to the plain one.

The budget: no mean difference is larger than the standard deviation of the plain training over the seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

SMALL = (
    "warm_up=null",
    "data.scenes={train: 1600, val: 100, test: 1000, size: 64}",
    "images={size: 64, crop_sizes: [64, 56, 48]}",
    "model.backbone=resnet18",
    "model.backbone_kwargs={layers: [1, 1, 1, 1], channels: [16, 32, 64, 96], output_stride: 8}",
    "model.train_stages=[layer2, layer3, layer4]",
    "training.epochs=8",
    "training.evaluate_every=8",
    "training.lr=0.003",
)
"""A small ResNet whose first stage is frozen, so that every part of a fast training has its work to do."""
BF16, COMPILED, GRAPHS = "training.precision=bf16", "training.compile=true", "training.cuda_graphs=true"
VARIANTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "plain": ("plain network, fp32", ()),
    "fp32": ("satl, fp32", ()),
    "bf16": ("satl, bf16", (BF16,)),
    "compiled": (
        "satl, bf16 compiled",
        (BF16, COMPILED, GRAPHS),
    ),  # no graphs on a CPU, where they mean nothing
}


def use_plain_network() -> None:
    """Build the published network, written plainly, wherever satl would build its own; same weights, same seed."""
    from plain_sst import PlainSST
    from satl.methods.method_parts import NETWORKS
    from satl.models import NetworkOutput, SemanticTransferNetwork

    class PlainTransfer(PlainSST):
        """The plain network with the interface that a learner expects."""

        def forward(self, images: Any, with_pairs: bool = False) -> NetworkOutput:  # type: ignore[override]
            output = super().forward(images)
            return NetworkOutput(output.logits, output.features, output.pair_logits if with_pairs else None)

    part = NETWORKS["transfer"]

    def build(context: Any, parameters: Any) -> PlainTransfer:
        own = part.build(context, parameters)
        assert isinstance(own, SemanticTransferNetwork)
        model = context.model
        sizes = ("feature_dim", "attention_dim", "pair_dim", "pair_hidden", "steps")
        plain = PlainTransfer(
            own.num_classes,
            own.backbone,
            own.graph,
            own.embeddings,
            **{name: getattr(model, name) for name in sizes},
        )
        plain.load_state_dict(own.state_dict())
        return plain

    NETWORKS["transfer"] = replace(part, build=build)


def train(variant: str, seed: int, overrides: list[str], device: str) -> dict[str, float]:
    """Train and test one variant in this process."""
    import torch

    from satl.demo.demo_run import demo_config
    from satl.inference.run_evaluation import evaluate_run
    from satl.runs.data import load_data
    from satl.runs.run_folder import RunFolder
    from satl.training.trainer import Trainer

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if variant == "plain":
        use_plain_network()
    own = [*VARIANTS[variant][1], f"training.device={'auto' if device == 'cuda' else 'cpu'}"]
    config = demo_config("sst+satl", seed, [*overrides, *own])
    data = load_data(config)
    with tempfile.TemporaryDirectory(prefix="satl-same-numbers-") as name:
        folder = Path(name) / "run"
        begun = time.perf_counter()
        Trainer.start(config, data, RunFolder.create(folder)).fit()
        seconds = time.perf_counter() - begun
        evaluation, _ = evaluate_run(folder, "test")
    return {"mAP": 100 * evaluation.mAP, "CF1": 100 * evaluation.at_threshold.CF1, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1, help="trainings side by side")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--set", dest="overrides", action="append", default=[], help="section.key=value")
    parser.add_argument("--json", type=Path, help="write the numbers there as well")
    parser.add_argument("--one", nargs=2, metavar=("VARIANT", "SEED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    overrides = [*SMALL, *options.overrides]
    if options.one:
        print(json.dumps(train(options.one[0], int(options.one[1]), overrides, options.device)))
        return
    # The plain training comes first: everything is compared with it.
    variants = ["plain", *(name for name in options.variants if name != "plain")]
    cells = [(variant, seed) for seed in range(options.seeds) for variant in variants]

    def run(cell: tuple[str, int]) -> dict[str, float] | None:
        settings = [word for override in options.overrides for word in ("--set", override)]
        command = [
            sys.executable,
            __file__,
            "--one",
            cell[0],
            str(cell[1]),
            "--device",
            options.device,
            *settings,
        ]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        finished = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if finished.returncode:
            last = (finished.stderr.strip() or "no message").splitlines()[-1]
            print(f"{cell[0]:10} seed {cell[1]}  failed: {last}", flush=True)
            return None
        result: dict[str, float] = json.loads(finished.stdout.splitlines()[-1])
        numbers = "  ".join(f"{name} {value:.2f}" for name, value in result.items())
        print(f"{cell[0]:10} seed {cell[1]}  {numbers}", flush=True)
        return result

    with ThreadPoolExecutor(options.jobs) as pool:
        results = dict(zip(cells, pool.map(run, cells), strict=True))
    summary = summarise(results, variants, options.seeds)
    if options.json:
        content = {
            "same_numbers": summary,
            "seeds": options.seeds,
            "device": options.device,
        }
        options.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    raise SystemExit(not all(row["kept"] for row in summary))


def summarise(
    results: dict[tuple[str, int], dict[str, float] | None], variants: list[str], seeds: int
) -> list[dict[str, Any]]:
    """Print mean, deviation and paired difference of each variant, and return them."""
    from satl.evaluation import paired_test

    rows: list[dict[str, Any]] = []
    complete = [s for s in range(seeds) if all(results[v, s] is not None for v in variants)]
    if not complete:
        print("no seed has all its trainings")
        return [{"variant": variant, "n": 0, "kept": False} for variant in variants]
    values = {v: [results[v, s]["mAP"] for s in complete] for v in variants}  # type: ignore[index]
    noise = statistics.stdev(values["plain"]) if len(complete) > 1 else float("nan")
    print(f"\ntest mAP over {len(complete)} seeds")
    print(f"{'variant':<22}{'mean':>8}{'sd':>7}{'difference':>12}  95 % interval")
    for variant in variants:
        own = values[variant]
        row = {"variant": variant, "n": len(own), "mean": statistics.mean(own), "kept": True}
        row["sd"] = statistics.stdev(own) if len(own) > 1 else float("nan")
        line = f"{VARIANTS[variant][0]:<22}{row['mean']:>8.2f}{row['sd']:>7.2f}"
        if variant != "plain":
            test = paired_test(own, values["plain"])
            row |= {"difference": test.mean_difference, "low": test.interval_low, "high": test.interval_high}
            # One seed has no deviation, and a seed that failed could be the one that differs.
            row["kept"] = len(complete) == seeds and abs(test.mean_difference) <= noise
            line += f"{test.mean_difference:>+12.2f}  [{test.interval_low:+.2f}, {test.interval_high:+.2f}]"
        print(line)
        rows.append(row)
    kept = all(row["kept"] for row in rows)
    print(f"budget: differences within the seeds' deviation of {noise:.2f}: {'kept' if kept else 'missed'}")
    return rows


if __name__ == "__main__":
    main()

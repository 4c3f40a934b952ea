"""The demo over several seeds, paired: does SST+SATL beat ignore-unknown and SST?

Each seed draws its own pictures, mask and weights, warmed up once; the three methods of a seed share all of them.
Prints every run, then mean differences with paired t-tests.
Run: python benchmarks/demo_seeds.py [--seeds 5] [--first 0] [--jobs 2]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

WARM_UP = "warm-up"


def warm(seed: int, weights: Path, overrides: list[str]) -> dict[str, float]:
    """Do the warm-up of a seed in this process, unless it is switched off; say how it went."""
    from satl.demo.demo_run import DEMO_METHODS, demo_config, demo_content, warm_up_config

    settings = warm_up_config(demo_content(seed, overrides))
    if settings is None:
        return {}
    from satl.demo.warm_up import warm_up

    done = warm_up(demo_config(DEMO_METHODS[0], seed, overrides), settings, weights)
    return {"accuracy": 100 * done.accuracy, "seconds": done.seconds}


def train(method: str, seed: int, weights: Path, overrides: list[str]) -> dict[str, float]:
    """Train and test one method in this process, from the weights of the warm-up where there are any."""
    from satl.demo.demo_run import demo_config
    from satl.inference.run_evaluation import evaluate_run
    from satl.runs.data import load_data
    from satl.runs.run_folder import RunFolder
    from satl.training.trainer import Trainer

    config = demo_config(method, seed, overrides, weights if weights.exists() else None)
    data = load_data(config)
    folder = Path(tempfile.mkdtemp(prefix="satl-demo-seeds-")) / "run"
    begun = time.perf_counter()
    Trainer.start(config, data, RunFolder.create(folder)).fit()
    seconds = time.perf_counter() - begun
    pseudo = RunFolder.open(folder).read_metrics()[-1]["pseudo_labels"].get("union", {})
    evaluation, _ = evaluate_run(folder, "test")
    shutil.rmtree(folder.parent)
    return {
        "mAP": 100 * evaluation.mAP,
        "OF1": 100 * evaluation.at_threshold.OF1,
        "CF1": 100 * evaluation.at_threshold.CF1,
        "precision": 100 * (pseudo.get("micro_precision") or 0.0),
        "recall": 100 * (pseudo.get("micro_recall") or 0.0),
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="trainings side by side")
    parser.add_argument("--set", dest="overrides", action="append", default=[], help="section.key=value")
    parser.add_argument("--one", nargs=3, metavar=("METHOD", "SEED", "WEIGHTS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        import torch

        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        method, seed, weights = arguments.one[0], int(arguments.one[1]), Path(arguments.one[2])
        part = partial(warm, seed) if method == WARM_UP else partial(train, method, seed)
        print(json.dumps(part(weights, arguments.overrides)))
        return

    from satl.demo.demo_run import DEMO_METHODS
    from satl.evaluation import paired_test

    folder = Path(tempfile.mkdtemp(prefix="satl-demo-seeds-"))

    def run(cell: tuple[str, int]) -> dict[str, float]:
        weights = folder / f"{cell[1]}.safetensors"
        settings = [word for override in arguments.overrides for word in ("--set", override)]
        command = [sys.executable, __file__, "--one", cell[0], str(cell[1]), str(weights), *settings]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        finished = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        result: dict[str, float] = json.loads(finished.stdout.splitlines()[-1])
        print(
            f"{cell[0]:10s} seed {cell[1]}  " + "  ".join(f"{k} {v:.2f}" for k, v in result.items()),
            flush=True,
        )
        return result

    seeds = range(arguments.first, arguments.first + arguments.seeds)
    cells = [(method, seed) for seed in seeds for method in DEMO_METHODS]
    try:
        with ThreadPoolExecutor(arguments.jobs) as pool:
            list(pool.map(run, [(WARM_UP, seed) for seed in seeds]))
            results = dict(zip(cells, pool.map(run, cells), strict=True))
    finally:
        shutil.rmtree(folder)
    for measure in ("mAP", "OF1", "CF1"):
        values = {m: [results[m, s][measure] for s in seeds] for m in DEMO_METHODS}
        print(f"\n{measure}: " + ", ".join(f"{m} {sum(v) / len(v):.2f}" for m, v in values.items()))
        for other in ("ignore", "sst"):
            test = paired_test(values["sst+satl"], values[other])
            print(
                f"  sst+satl - {other}: {test.mean_difference:+.2f} "
                f"[{test.interval_low:+.2f}, {test.interval_high:+.2f}], t {test.t:.2f}, p {test.p_value:.4f}, "
                f"n {test.n}"
            )


if __name__ == "__main__":
    main()

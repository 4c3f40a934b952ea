"""The demo over several seeds, paired: does SST+SATL beat ignore-unknown and SST?

Each seed draws its own pictures, mask and weights; the three methods of a seed share all of them. Prints every
run, then mean differences with paired t-tests. Run: python benchmarks/demo_seeds.py [--seeds 5] [--jobs 2]
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
from pathlib import Path


def train(method: str, seed: int, overrides: list[str]) -> dict[str, float]:
    """Train and test one method in this process, and print its numbers as JSON."""
    import torch

    from satl.demo.run import demo_config
    from satl.training.data import load_data
    from satl.training.recogniser import evaluate_run
    from satl.training.run_folder import RunFolder
    from satl.training.trainer import Trainer

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    config = demo_config(method, seed, overrides)
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
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="trainings side by side")
    parser.add_argument("--set", dest="overrides", action="append", default=[], help="section.key=value")
    parser.add_argument("--one", nargs=2, metavar=("METHOD", "SEED"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(train(arguments.one[0], int(arguments.one[1]), arguments.overrides)))
        return

    from satl.demo.run import DEMO_METHODS
    from satl.evaluation import paired_test

    cells = [(method, seed) for seed in range(arguments.seeds) for method in DEMO_METHODS]

    def run(cell: tuple[str, int]) -> dict[str, float]:
        settings = [word for override in arguments.overrides for word in ("--set", override)]
        command = [sys.executable, __file__, "--one", cell[0], str(cell[1]), *settings]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        finished = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        result: dict[str, float] = json.loads(finished.stdout.splitlines()[-1])
        print(
            f"{cell[0]:10s} seed {cell[1]}  " + "  ".join(f"{k} {v:.2f}" for k, v in result.items()),
            flush=True,
        )
        return result

    with ThreadPoolExecutor(arguments.jobs) as pool:
        results = dict(zip(cells, pool.map(run, cells), strict=True))
    for measure in ("mAP", "OF1", "CF1"):
        values = {m: [results[m, s][measure] for s in range(arguments.seeds)] for m in DEMO_METHODS}
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

"""Print the three walks of docs/architecture.md: the functions between a command and what it does.

A walk has a few landmarks, such as the forward pass of the backbone or the row that is written to changes.csv. Printed
are all functions of satl on the call stack whenever a landmark is reached, in the order in which they are first met:
what a reader passes through who follows a batch, a table or a grid run.
Run: python tools/walks.py [batch] [table] [grid]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

RUN = """
data: {scenes: {train: 64, val: 24, test: 24, size: 32}, proportion: 0.3}
images: {size: 24, crop_sizes: [32, 28, 24]}
model: {backbone: satl_tiny, backbone_kwargs: {widths: [8, 16, 24]}, pretrained: false, train_stages: all, pool: 1,
  feature_dim: 16, attention_dim: 16, pair_dim: 16, pair_hidden: 16, embedding_dim: 16, steps: 1}
training: {epochs: 2, stage1_epochs: 1, batch_size: 16, device: cpu}
"""
GRID = "base: run.yaml\nmethods: [sst]\nproportions: [0.3]\nseeds: [0]\n"
REVIEW = "from satl.review.database import ReviewStore\nwith ReviewStore('done') as store: store.refresh()\n"
SATL = ("-m", "satl")
INPUTS = ("--scores", "scores.csv", "--labels", "labels.csv", "--held-out", "labels.csv")
WALKS: dict[str, tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]] = {
    "batch": (
        ((*SATL, "train", "run.yaml", "--set", "method.name=sst+satl", "--out", "run", "--quiet"),),
        (
            *(
                "ArrayImages.gather",
                "TrainAugment.forward",
                "Backbone.forward",
                "CrossImageGenerator.forward",
            ),
            *("pseudo_labels", "partial_bce", "differential_ranking", "EpochTally.add"),
            "RunFolder.append_metrics",
        ),
    ),
    "table": (
        (
            (*SATL, "complete", *INPUTS, "-o", "done"),
            ("-c", REVIEW),
            (*SATL, "merge", "done", "labels.csv", "-o", "merged.csv", "--include", "accepted"),
        ),
        (
            *("LabelTable.__post_init__", "ScoreAlignment.put", "passing_thresholds", "check_shift"),
            *("find_label_errors", "ChangeFormat.blocks", "read_changes", "CompletedFolder.read_report"),
            *("_suggestions", "_images", "write_csv"),
        ),
    ),
    "grid": (
        ((*SATL, "experiment", "grid.yaml", "--out", "grid", "--jobs", "1", "--quiet"),),
        (
            *("Trainer.fit", "TrainingStep.__call__", "evaluate_scores", "write_json"),
            *("Results.write", "Results.write_csv", "markdown"),
        ),
    ),
}
"""Commands and landmarks of each walk."""

# Every Python process of a command, workers included, imports a module of this name when it starts.
HOOK = """
import atexit, json, os, sys, threading
from importlib.util import find_spec
root = os.path.dirname(find_spec("satl").origin) + os.sep
landmarks, reached, passed = set(json.loads(os.environ["WALK_LANDMARKS"])), set(), {}
def watch(frame, event, _):
    name = frame.f_code.co_qualname
    if event != "call" or name not in landmarks or not frame.f_code.co_filename.startswith(root):
        return
    reached.add(name)
    stack = []
    while frame is not None:
        code, frame = frame.f_code, frame.f_back
        if code.co_filename.startswith(root) and "<" not in code.co_qualname.replace("<locals>", ""):
            stack.append(f"{code.co_filename.removeprefix(root)} {code.co_qualname}")
    passed.update(dict.fromkeys(reversed(stack)))
def write():
    sys.setprofile(None)
    with open(os.environ["WALK_OUT"], "a") as out:
        out.write(json.dumps([list(passed), sorted(reached)]) + "\\n")
sys.setprofile(watch)
threading.setprofile(watch)
atexit.register(write)
"""


def prepare(folder: Path) -> None:
    """Write the inputs of all walks: a run, a grid, and a half-filled table with scores."""
    random = np.random.default_rng(0)
    truth = random.random((600, 3)) < 0.4
    scores = np.clip(0.6 * truth + 0.2 + 0.15 * random.standard_normal(truth.shape), 0, 1)
    cells = np.where(random.random(truth.shape) < 0.5, truth.astype(int).astype(str), "")
    for name, values in (("labels", cells), ("scores", scores.round(5).astype(str))):
        rows = [f"{row}.jpg,{','.join(line)}" for row, line in enumerate(values)]
        (folder / f"{name}.csv").write_text("\n".join(["image,a,b,c", *rows, ""]))
    (folder / "run.yaml").write_text(RUN)
    (folder / "grid.yaml").write_text(GRID)
    (folder / "hook").mkdir()
    (folder / "hook" / "sitecustomize.py").write_text(HOOK)


def take_walk(name: str, folder: Path) -> list[str]:
    """Return the functions that a walk passes through.

    Raises:
        SystemExit: a command fails, or a landmark is not reached: it was renamed, or the walk changed.
    """
    commands, landmarks = WALKS[name]
    out = folder / f"{name}.jsonl"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder / "hook"), os.environ.get("PYTHONPATH", "")]),
        "WALK_OUT": str(out),
        "WALK_LANDMARKS": json.dumps(landmarks),
    }
    for command in commands:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(done.stderr)
    passed: dict[str, None] = {}
    reached: set[str] = set()
    for line in out.read_text().splitlines():
        functions, found = json.loads(line)
        passed.update(dict.fromkeys(functions))
        reached.update(found)
    if missed := set(landmarks) - reached:
        raise SystemExit(f"{name}: never reached {', '.join(sorted(missed))}; fix the landmarks in WALKS.")
    return list(passed)


def main() -> None:
    """Print the walks that are asked for, all by default."""
    with tempfile.TemporaryDirectory() as place:
        prepare(Path(place))
        for name in sys.argv[1:] or WALKS:
            functions = take_walk(name, Path(place))
            print(f"{name}: {len(functions)} functions")
            for function in functions:
                print(f"  {function}")


if __name__ == "__main__":
    main()

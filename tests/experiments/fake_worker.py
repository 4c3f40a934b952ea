"""Stands for a worker that trains: speaks its language, needs no torch, and misbehaves as the run's method says."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

RESULT = {"split": "test", "train_seconds": 1.0, "models": {"best": {"mAP": 0.5}}}


def send(**event: object) -> None:
    print(json.dumps(event), flush=True)


def saved(number: int, frame: object) -> None:
    send(event="stopped")
    sys.exit()


def main() -> None:
    for line in sys.stdin:
        task = json.loads(line)
        Path(task["path"]).mkdir(parents=True, exist_ok=True)
        (Path(task["path"]) / "ran.txt").write_text(f"{os.getpid()} {os.environ['OMP_NUM_THREADS']}")
        (Path(task["path"]) / "kept.txt").write_text(task["models"])
        send(event="begin", epochs=1, steps=1)
        kind = task["run"].rpartition("-")[-1]
        if kind == "crash":
            send(event="failed", error="ValueError: bad", traceback="Traceback ...")
        elif kind == "killed":
            print('{"event": "st', end="", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "exits":
            sys.exit(3)
        elif kind == "endless":
            signal.signal(signal.SIGTERM, saved)
            send(event="step", epoch=0, stage=1, step=0)
            time.sleep(600)
        elif kind == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            send(event="step", epoch=0, stage=1, step=0)
            time.sleep(600)
        else:
            send(event="done", result=RESULT)


if __name__ == "__main__":
    main()

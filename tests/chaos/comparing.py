"""What is in a folder, to the bit, without what depends on the clock."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import sqlite3
from pathlib import Path
from typing import Any

_PASSED_OVER = ("train.log", "environment.json", ".lock")
_SECONDS = "seconds"


def snapshot(place: Path) -> dict[str, str]:
    """Return name -> digest of every file below ``place``; empty folders are there too, as ``name/``.

    The checkpoint before the last one is not compared: which one it is depends on where the run was cut off.
    """
    found = {}
    for path in sorted(place.rglob("*")):
        name = path.relative_to(place).as_posix()
        parts = path.relative_to(place).parts
        if path.name in _PASSED_OVER or "last.previous" in parts or "logs" in parts:
            continue
        if path.name.endswith(("-wal", "-shm")):
            continue
        if path.is_dir():
            if not any(path.iterdir()):
                found[name + "/"] = ""
        else:
            found[name] = hashlib.sha256(_content(path)).hexdigest()[:16]
    return found


def difference(one: dict[str, str], other: dict[str, str]) -> str:
    """Say how two snapshots differ, in a few words; nothing where they do not."""
    names = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    words = [
        f"{name} ({'missing' if name not in other else 'too many' if name not in one else 'differs'})"
        for name in names
    ]
    return ", ".join(words[:4]) + (" ..." if len(words) > 4 else "")


def strays(place: Path) -> list[str]:
    """Return what a killed process left behind: hidden and temporary files and folders."""
    return [
        path.relative_to(place).as_posix()
        for path in sorted(place.rglob("*"))
        if path.name != ".lock"
        and (
            path.name.startswith(".") or path.name.endswith((".removed", ".new", ".partial", "best.previous"))
        )
    ]


def _content(path: Path) -> bytes:
    if path.suffix == ".sqlite":
        return _decisions(path)
    content = path.read_bytes()
    if path.name == "metrics.jsonl":
        return b"\n".join(_without_times(json.loads(line)) for line in content.splitlines())
    if path.suffix == ".pt":  # equal content may be pickled to other bytes
        import torch

        return _plain(torch.load(path, weights_only=True)).encode()
    if path.name == "checksums.json":
        return json.dumps(
            {name: value for name, value in json.loads(content).items() if not name.endswith(".pt")}
        ).encode()
    if path.name in ("result.json", "results.json"):
        return _without_times(json.loads(content))
    if path.name == "results.csv":
        rows = list(csv.DictReader(io.StringIO(content.decode())))
        return b"\n".join(_without_times(row) for row in rows)
    if path.name == "results.parquet":
        import pyarrow.parquet as pq

        return b"\n".join(_without_times(row) for row in pq.read_table(path).to_pylist())
    return content


def _without_times(content: Any) -> bytes:
    kept = {key: value for key, value in content.items() if not key.endswith(_SECONDS)}
    return json.dumps(kept, default=str).encode()


def _plain(content: Any) -> str:
    """Write nested data with tensors as text, to the bit."""
    if isinstance(content, dict):
        return "{" + ",".join(f"{key!r}:{_plain(value)}" for key, value in content.items()) + "}"
    if isinstance(content, (list, tuple)):
        return "[" + ",".join(map(_plain, content)) + "]"
    if hasattr(content, "numpy"):
        array = content.detach().contiguous().numpy()
        return f"{array.dtype}{array.shape}{hashlib.sha256(array.tobytes()).hexdigest()}"
    return repr(content)


def _decisions(path: Path) -> bytes:
    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT image, label, value, number FROM standing ORDER BY number").fetchall()
    return json.dumps(rows).encode()

"""One training step: the published code, the backbone alone, and satl, in one run.

    python benchmarks/step.py --device cuda --batch 32 --classes 80 200 1000 --json step.json
    python benchmarks/step.py --device cpu --tiny --batch 4 --classes 5 --steps 2 --warmups 1

Rows: the published step written plainly (``benchmarks/plain_sst.py``), the floor that no method with this backbone
can beat (backbone forward, backward of its last stage and fused Adam in bf16, compiled), and satl's step eager,
compiled and as a CUDA graph. Stage 2, 20 % of the labels known, normalised images already on the device
(``--with-augment`` starts from uint8 images). Times are medians of single steps on an idle device; memory is the
peak, with weights and state of the optimiser. Every row has a process of its own; one that fails says so in a line.
With several numbers of classes, memory by classes stands below the tables.

At the end stands what SATL (thresholds and ranking loss) adds to SST: both compiled in one process, their
steps taken in turn (eager on a CPU).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from step_rows import ROWS, TINY_SIZES, Shape, alternate, measure

FACTORISED_FROM = 500
"""Classes from which satl's rows use the factorised pair head."""
OVERHEAD_ROUNDS = 60


def shape_of(options: argparse.Namespace, classes: int) -> Shape:
    return Shape(
        device=options.device,
        batch=options.batch,
        classes=classes,
        size=64 if options.tiny else options.size,
        backbone=options.backbone,
        method=options.method,
        pair_head="factorised" if classes >= FACTORISED_FROM else "full",
        augment=options.with_augment,
        tiny=options.tiny,
        settings=tuple(options.settings),
    )


def run_row(name: str, shape: Shape, warmups: int, steps: int) -> dict[str, Any]:
    """Measure one row in this process."""
    row = ROWS[name]
    return measure(row.build(shape), shape.device, warmups, steps, row.graph)


def run_overhead(name: str, shape: Shape, methods: list[str], warmups: int, rounds: int) -> dict[str, Any]:
    """Measure several methods in turn in this process; the first is what the others are compared with."""
    from satl.evaluation import paired_test

    steps = [ROWS[name].build(dataclasses.replace(shape, method=method)) for method in methods]
    times = alternate(steps, shape.device, warmups, rounds)
    base = statistics.median(times[0])
    found: dict[str, Any] = {"methods": {}}
    for method, own in zip(methods, times, strict=True):
        test = paired_test(own, times[0])
        found["methods"][method] = {
            "ms": statistics.median(own),
            # The median of differences within a round: an interruption of the machine moves it little.
            "added": statistics.median(a - b for a, b in zip(own, times[0], strict=True)) / base,
            "half_interval": (test.interval_high - test.interval_low) / 2 / base,
        }
    return found


def why_left_out(name: str, shape: Shape) -> str | None:
    """Say why a row is not measured, if it is not."""
    if ROWS[name].graph and shape.device != "cuda":
        return "needs a GPU"
    if name == "plain" and shape.pair_head == "factorised":
        pairs = shape.classes * (shape.classes - 1) // 2
        hidden = TINY_SIZES["pair_hidden"] if shape.tiny else 1024
        return f"one activation of its pair branch takes {4e-9 * shape.batch * pairs * hidden:.0f} GB"
    return None


def child(arguments: dict[str, Any], limit: float) -> dict[str, Any]:
    """Run this script for one measurement; what goes wrong comes back as ``error``, in a line."""
    command = [sys.executable, __file__, "--one", json.dumps(arguments)]
    try:
        finished = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"took longer than {limit:.0f} s"}
    if finished.returncode:
        lines = [line for line in finished.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if "Error" in line and not line.startswith(" ")]
        return {"error": (errors or lines or [f"ended with {finished.returncode}"])[-1][:200]}
    found: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return found


def only(arguments: dict[str, Any]) -> None:
    """Do what a parent asked for and print the numbers."""
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", str(os.cpu_count()))))
    kind, shape = arguments.pop("kind"), arguments.pop("shape")
    shape = Shape(**{**shape, "settings": tuple(shape["settings"])})
    run = run_row if kind == "row" else run_overhead
    print(json.dumps(run(shape=shape, **arguments)))


def table(rows: list[dict[str, Any]], classes: int, batch: int) -> str:
    """The rows of one number of classes, with ratios to the plain step and to the floor."""
    own = sorted(
        (row for row in rows if row["classes"] in (classes, None)),
        key=lambda row: list(ROWS).index(row["variant"]),
    )
    by_name = {row["variant"]: row for row in own if "ms" in row}
    plain, floor = by_name.get("plain", {}).get("ms"), by_name.get("floor", {}).get("ms")
    head = f"C = {classes}"
    lines = [f"{head:<40}{'ms':>9}{'in a row':>10}{'images/s':>10}{'peak GB':>9}{'plain /':>9}{'/ floor':>9}"]
    for row in own:
        title = ROWS[row["variant"]].title
        if "ms" not in row:
            lines.append(f"{title:<40}  {row['error']}")
            continue
        ms = row["ms"]
        memory = f"{row['allocated_gb']:.2f}" if "allocated_gb" in row else "-"
        if ROWS[row["variant"]].graph:
            memory += f" ({row['reserved_gb']:.1f})"
        lines.append(
            f"{title:<40}{ms:>9.2f}{row['ms_in_a_row']:>10.2f}{1e3 * batch / ms:>10.0f}{memory:>9}"
            f"{f'{plain / ms:.2f}x' if plain else '-':>9}{f'{ms / floor:.2f}x' if floor else '-':>9}"
        )
    return "\n".join(lines)


def memory_table(rows: list[dict[str, Any]], classes: list[int]) -> str:
    """Peak memory by the number of classes."""
    lines = [f"{'peak GB':<40}" + "".join(f"{f'C = {number}':>10}" for number in classes)]
    for name in dict.fromkeys(row["variant"] for row in rows if row["classes"] is not None):
        peak = {row["classes"]: row.get("allocated_gb") for row in rows if row["variant"] == name}
        cells = [f"{'-' if peak.get(number) is None else f'{peak[number]:.2f}':>10}" for number in classes]
        lines.append(f"{ROWS[name].title:<40}{''.join(cells)}")
    return "\n".join(lines)


def machine(device: str) -> dict[str, Any]:
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()} CPU"
    return {"device": name, "torch": torch.__version__, "python": platform.python_version()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--classes", type=int, nargs="+", default=[80, 200, 1000])
    parser.add_argument("--backbone", default="resnet101")
    parser.add_argument("--size", type=int, default=448, help="side of the images in pixels")
    parser.add_argument("--method", default="sst+satl")
    parser.add_argument("--variants", default=",".join(ROWS), help=f"rows, of {', '.join(ROWS)}")
    parser.add_argument("--with-augment", action="store_true", help="satl's rows start from uint8 images")
    parser.add_argument("--overhead", nargs="*", default=["sst", "sst+satl"], help="methods to take in turn")
    parser.add_argument("--steps", type=int, default=15, help="steps that count")
    parser.add_argument("--warmups", type=int, default=5, help="steps before them")
    parser.add_argument("--limit", type=float, default=300, help="seconds for a row, compiling included")
    parser.add_argument("--tiny", action="store_true", help="small layers and images, to try this on a CPU")
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], help="section.key=value of satl"
    )
    parser.add_argument("--json", type=Path, help="write the numbers there as well")
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        only(options.one)
        return
    variants = [name for name in options.variants.split(",") if name]
    unknown = sorted(set(variants) - set(ROWS))
    if unknown:
        parser.error(f"there is no row {', '.join(unknown)}; rows: {', '.join(ROWS)}")
    facts = machine(options.device)
    print(
        f"one step of {options.method}, batch {options.batch}, {'tiny' if options.tiny else options.backbone}, "
        f"{64 if options.tiny else options.size} px, {facts['device']}, torch {facts['torch']}"
    )
    rows: list[dict[str, Any]] = []
    result = {"machine": facts, "batch": options.batch, "method": options.method, "rows": rows}

    def keep(row: dict[str, Any]) -> None:
        rows.append(row)
        said = f"{row['ms']:.2f} ms" if "ms" in row else row["error"]
        number = "" if row["classes"] is None else f", C = {row['classes']}"
        print(f"  {ROWS[row['variant']].title}{number}: {said}", flush=True)
        save(result, options.json)

    for classes in options.classes:
        shape = shape_of(options, classes)
        for name in variants:
            if not ROWS[name].by_classes and any(row["variant"] == name for row in rows):
                continue
            row: dict[str, Any] = {"variant": name, "classes": classes if ROWS[name].by_classes else None}
            reason = why_left_out(name, shape)
            asked = {"kind": "row", "name": name, "shape": dataclasses.asdict(shape)}
            asked |= {"warmups": options.warmups, "steps": options.steps}
            keep(row | ({"error": f"left out: {reason}"} if reason else child(asked, options.limit)))
    for classes in options.classes if variants else ():
        print(f"\n{table(rows, classes, options.batch)}")
    if options.device == "cuda" and len(options.classes) > 1:
        print(f"\n{memory_table(rows, options.classes)}")
    if len(options.overhead) > 1:
        result["overhead"] = overhead(options)
        save(result, options.json)
    failed = [row for row in rows if "ms" not in row and not row["error"].startswith("left out")]
    raise SystemExit(bool(failed))


def overhead(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Print what each further method adds to the first, for the first number of classes."""
    shape = shape_of(options, options.classes[0])
    fast = "graphed" if options.device == "cuda" else "eager-fp32"
    asked = {
        "kind": "overhead",
        "name": fast,
        "shape": dataclasses.asdict(shape),
        "methods": options.overhead,
    }
    rounds = min(OVERHEAD_ROUNDS, 4 * options.steps)
    found = child(asked | {"warmups": options.warmups, "rounds": rounds}, 2 * options.limit)
    print(f"\nin turn with {options.overhead[0]}, {ROWS[fast].title}, C = {shape.classes}")
    if "error" in found:
        print(f"  {found['error']}")
        return [{"classes": shape.classes, **found}]
    for method, numbers in found["methods"].items():
        interval = f"+- {100 * numbers['half_interval']:.2f}"
        print(f"  {method:<12}{numbers['ms']:>9.2f} ms  adds {100 * numbers['added']:+.2f} % ({interval})")
    return [{"classes": shape.classes, **found}]


def save(result: dict[str, Any], path: Path | None) -> None:
    if path is not None:
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

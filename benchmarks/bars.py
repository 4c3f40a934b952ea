"""Which bars are met, from the numbers that the benchmarks wrote.

    python benchmarks/bars.py FOLDER_OR_JSON...

Reads what ``step.py``, ``end_to_end.py`` and ``same_numbers.py`` wrote with ``--json`` (of several measurements of
one thing, the last file counts) and prints for each bar the number, what was wanted, and whether it is met. A bar
whose rows were not measured is not met.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FAST = ("graphed", "compiled")
"""satl's rows that may meet a bar, the product's default first."""
IMAGES_PER_SECOND, WAITING = 1900, 0.05
STORES = ("jpeg", "raw")


@dataclass
class Numbers:
    """Everything that was measured."""

    rows: dict[tuple[str, int | None], dict[str, Any]] = field(default_factory=dict)
    overhead: list[dict[str, Any]] = field(default_factory=list)
    end_to_end: dict[str, dict[str, Any]] = field(default_factory=dict)
    same: list[dict[str, Any]] = field(default_factory=list)

    def add(self, content: dict[str, Any]) -> None:
        """Take in one file."""
        for row in content.get("rows", []):
            if "ms" in row:
                self.rows[row["variant"], row["classes"]] = row
        self.overhead = [one for one in content.get("overhead", []) if "methods" in one] or self.overhead
        self.end_to_end |= {one["store"]: one for one in content.get("end_to_end", [])}
        self.same = content.get("same_numbers", self.same)

    def fast(self, classes: int) -> dict[str, Any] | None:
        """satl's step as the product runs it."""
        return next((self.rows[name, classes] for name in FAST if (name, classes) in self.rows), None)


@dataclass(frozen=True)
class Bar:
    """A number, or None where something is missing, and its limit."""

    name: str
    value: float | None
    limit: float
    at_least: bool
    unit: str = "x"

    @property
    def met(self) -> bool:
        """Whether the number is known and on the right side."""
        if self.value is None:
            return False
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def line(self) -> str:
        """The bar in a line."""
        shown = "not measured" if self.value is None else f"{self.value:.2f}{self.unit}"
        wanted = f"{'>=' if self.at_least else '<='} {self.limit:g}{self.unit}"
        return f"{self.name:<58}{shown:>15}{wanted:>14}  {'met' if self.met else 'NOT MET'}"


def ratio(first: dict[str, Any] | None, second: dict[str, Any] | None, what: str = "ms") -> float | None:
    """first / second, or None where one of them is missing."""
    if first is None or second is None or what not in first or what not in second:
        return None
    return float(first[what]) / float(second[what])


def step_bars(numbers: Numbers) -> Iterable[Bar]:
    """The bars of one step."""
    floor = numbers.rows.get(("floor", None))
    for classes, faster, smaller, above in ((80, 8, 7, 1.15), (200, 20, 14, 1.3)):
        own, plain = numbers.fast(classes), numbers.rows.get(("plain", classes))
        yield Bar(f"C = {classes}: faster than the plain step", ratio(plain, own), faster, True)
        memory = ratio(plain, own, "allocated_gb")
        yield Bar(f"C = {classes}: less memory than the plain step", memory, smaller, True)
        yield Bar(f"C = {classes}: time against the compiled backbone", ratio(own, floor), above, False)
    added = None
    for one in numbers.overhead:
        methods = one["methods"]
        if "sst+satl" in methods and next(iter(methods)) == "sst":
            added = 100 * methods["sst+satl"]["added"]
    yield Bar("SATE + DRL add to a step of SST", added, 1.0, False, " %")
    many = numbers.fast(1000)
    memory = None if many is None else many.get("allocated_gb")
    yield Bar("C = 1000: peak memory", memory, 16, False, " GB")
    yield Bar("C = 1000: time against C = 80", ratio(many, numbers.fast(80)), 3, False)


def other_bars(numbers: Numbers) -> Iterable[Bar]:
    """The bars of whole trainings."""
    for store in STORES:
        found = numbers.end_to_end.get(store)
        rate = None if found is None else found["images_per_second"]
        # The step's own rate is the bar where it is lower: a training cannot be faster than its steps.
        own = IMAGES_PER_SECOND if found is None else found["step_images_per_second"]
        wanted = round(min(IMAGES_PER_SECOND, own))
        yield Bar(f"end to end from a {store} store", rate, wanted, True, " images/s")
        waiting = None if found is None else 100 * found["waiting"]
        yield Bar(f"end to end from a {store} store: waiting for data", waiting, 100 * WAITING, False, " %")
    for row in numbers.same:
        if row["variant"] != "plain":
            plain = numbers.same[0]
            away = (
                None
                if not row.get("n") or not row["kept"]
                else abs(row["difference"]) / max(plain["sd"], 1e-9)
            )
            yield Bar(f"same mAP, {row['variant']}: difference in seed deviations", away, 1, False)
    if not numbers.same:
        yield Bar("same mAP as the plain network", None, 1, False)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path)
    options = parser.parse_args()
    files = [
        file for path in options.paths for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])
    ]
    numbers = Numbers()
    files = [file for file in files if file.is_file()]  # what was not run is not measured
    for file in sorted(files, key=lambda file: file.stat().st_mtime):
        numbers.add(json.loads(file.read_text(encoding="utf-8")))
    bars = [*step_bars(numbers), *other_bars(numbers)]
    for bar in bars:
        print(bar.line())
    met = sum(bar.met for bar in bars)
    print(f"{met} of {len(bars)} bars met")
    raise SystemExit(met < len(bars))


if __name__ == "__main__":
    main()

"""CPU seconds until the command line answers, and until ``import satl`` is done.

``python benchmarks/start_time.py`` runs each in a process of its own, a few times, and prints the least of them: user
and system time, which another program on the machine changes less than the time on the clock.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

PROGRAMS = {
    "python": ["-c", "pass"],
    "import satl": ["-c", "import satl"],
    "satl --help": ["-m", "satl", "--help"],
    "satl methods": ["-m", "satl", "methods"],
    "satl recipes": ["-m", "satl", "recipes"],
}


def cpu_seconds(arguments: list[str]) -> float:
    before = os.times()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    for name, arguments in PROGRAMS.items():
        print(f"{name:<14}{min(cpu_seconds(arguments) for _ in range(options.repeats)):.3f} s of CPU")


if __name__ == "__main__":
    main()

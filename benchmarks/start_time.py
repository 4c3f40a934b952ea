"""CPU seconds until the command line answers, and until ``import satl`` is done.

``python benchmarks/start_time.py`` runs each in a process of its own, a few times, and prints the least of them: user
and system time, which another program on the machine changes less than the time on the clock. Modules are compiled
before, as they are after an installation by pip, whatever PYTHONDONTWRITEBYTECODE says here.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile

PROGRAMS = {
    "python": ["-c", "pass"],
    "import satl": ["-c", "import satl"],
    "satl --help": ["-m", "satl", "--help"],
    "satl methods": ["-m", "satl", "methods"],
    "satl recipes": ["-m", "satl", "recipes"],
    "Tab in bash": ["-m", "satl"],
}
ASKED = {
    "_SATL_COMPLETE": "complete_bash",
    "COMP_WORDS": "satl train --recipe coco/",
    "COMP_CWORD": "3",
}
"""What bash says when it asks for the names of recipes."""


def cpu_seconds(arguments: list[str], environment: dict[str, str]) -> float:
    before = os.times()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True, env=environment)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as compiled:
        plain = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        plain["PYTHONPYCACHEPREFIX"] = compiled
        for name, arguments in PROGRAMS.items():
            environment = {**plain, **(ASKED if name.startswith("Tab") else {})}
            cpu_seconds(arguments, environment)
            least = min(cpu_seconds(arguments, environment) for _ in range(options.repeats))
            print(f"{name:<14}{least:.3f} s of CPU")


if __name__ == "__main__":
    main()

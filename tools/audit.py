"""Ask for known vulnerabilities of the tested versions: python tools/audit.py [--where-reachable]

pip-audit asks the advisory service of the package index. It calls a set without answers clean, so this program counts
the answers: 0 all versions are known and none has an advisory, 1 some have one, 2 not all could be asked about. With
--where-reachable the last is told and not an error, as for CI behind a mirror that has no advisories.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"


def verdict(answer: dict[str, Any] | None) -> tuple[int, list[str]]:
    """Return the exit code and the lines to print for what pip-audit answered; None for no answer.

    >>> verdict(None)[0]
    2
    >>> verdict({"dependencies": [{"name": "a", "version": "1", "vulns": []}]})
    (0, ['1 versions asked about, none has a known vulnerability.'])
    """
    if answer is None:
        return 2, ["Nothing was audited: the advisory service cannot be reached from here."]
    packages = answer["dependencies"]
    skipped = [one["name"] for one in packages if "skip_reason" in one]
    asked = len(packages) - len(skipped)
    if not asked:
        return 2, [
            "Nothing was audited: the advisory service cannot be reached from here, or knows none of the versions."
        ]
    lines = [
        f"{one['name']} {one['version']}: {found['id']}"
        + (f", fixed in {' or '.join(found['fix_versions'])}" if found["fix_versions"] else "")
        for one in packages
        for found in one.get("vulns", ())
    ]
    if lines:
        return 1, [*lines, f"{len(lines)} known vulnerabilities in {asked} versions."]
    if skipped:
        some = ", ".join(skipped[:5])
        return 2, [
            f"{asked} versions asked about, none has a known vulnerability; {len(skipped)} not: {some}."
        ]
    return 0, [f"{asked} versions asked about, none has a known vulnerability."]


def ask() -> dict[str, Any] | None:
    """Return what pip-audit says about the locked set as data, or None where it gets no answer."""
    command = [
        *(
            sys.executable,
            "-m",
            "uv",
            "tool",
            "run",
            "pip-audit",
            "--format",
            "json",
            "--progress-spinner",
            "off",
        ),
        *("--no-deps", "--disable-pip", "--requirement", str(CONSTRAINTS)),
    ]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return dict(json.loads(finished.stdout))
    except ValueError:
        last = finished.stderr.strip().splitlines()[-1:]
        print(*last, file=sys.stderr)
        return None


def exit_code(code: int, *, where_reachable: bool) -> int:
    """Return with which code to end.

    >>> [exit_code(code, where_reachable=True) for code in (0, 1, 2)]
    [0, 1, 0]
    """
    return 0 if where_reachable and code == 2 else code


if __name__ == "__main__":
    code, lines = verdict(ask())
    print("\n".join(lines))
    sys.exit(exit_code(code, where_reachable="--where-reachable" in sys.argv[1:]))

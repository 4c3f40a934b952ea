"""The coverage-guided lane: atheris chooses inputs that reach new lines of satl; targets and corpus are the same."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

MISSING = "atheris is not installed here; install the extra `fuzz`, or leave the option out."


def run(name: str, count: int, failures: Path) -> int:
    """Let atheris try ``count`` inputs of the target called ``name``; return the exit code.

    Inputs that fail are kept in ``failures``, and ``--repeat`` reads them again.
    """
    try:
        import atheris
    except ImportError:
        print(MISSING, file=sys.stderr)
        return 2
    with atheris.instrument_imports(include=["satl"]):
        import fuzz.targets  # noqa: F401  (registers every target)
    from fuzz.runner import fast_folder, try_input
    from fuzz.targets.registry import TARGETS

    if name not in TARGETS:
        print(f"there is no target {name!r}; --list names them, and this lane takes one", file=sys.stderr)
        return 2
    target = TARGETS[name]
    failures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=fast_folder(), prefix="satl-fuzz-") as place:
        work, seeds = Path(place) / "work", Path(place) / "seeds"
        target.prepare(work)
        seeds.mkdir()
        for number, data in enumerate(target.inputs):
            (seeds / str(number)).write_bytes(data)

        def one_input(data: bytes) -> None:
            came, what = try_input(target, work, data)
            if came == "fault":
                raise AssertionError(what)  # atheris keeps the input and ends

        options = [f"-runs={count}", f"-artifact_prefix={failures}/", "-timeout=60", "-rss_limit_mb=4096"]
        atheris.Setup([sys.argv[0], *options, str(seeds)], one_input)
        atheris.Fuzz()
    return 0

"""``python -m fuzz``: run the fuzzing suite. See ``--help``."""

from __future__ import annotations

import argparse
import fnmatch
import gc
import os
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="inputs over all targets")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs; the same gives the same inputs")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no further input after so many"
    )
    parser.add_argument("--only", default="*", help="targets, such as 'labels/*'")
    parser.add_argument(
        "--failures", type=Path, default=Path("fuzz-failures"), help="folder for inputs that fail"
    )
    parser.add_argument("--list", action="store_true", help="list the targets and end")
    parser.add_argument(
        "--repeat", type=Path, metavar="FILE", help="read one kept input again (with --only TARGET)"
    )
    parser.add_argument(
        "--coverage-guided",
        action="store_true",
        help="let atheris choose the inputs of one target (with --only TARGET; extra `fuzz`)",
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; return the exit code."""
    given = parsed(arguments)
    os.environ["SATL_CACHE"] = "off"  # what was read once must be read again
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # others take addresses in advance
    if given.coverage_guided:
        from fuzz import coverage_guided

        return coverage_guided.run(given.only, given.count, given.failures)
    import fuzz.targets  # noqa: F401  (registers every target)
    from fuzz.runner import HEADING, Suite, shared_out, summary
    from fuzz.targets.registry import TARGETS

    chosen = [target for name, target in TARGETS.items() if fnmatch.fnmatch(name, given.only)]
    if not chosen:
        print(f"there is no target {given.only!r}; --list names them", file=sys.stderr)
        return 2
    if given.list:
        print("\n".join(target.name for target in chosen))
        return 0
    if given.repeat is not None:
        return repeat(chosen[0], given.repeat)
    import_all()
    began = time.monotonic()
    print(HEADING, flush=True)
    suite = Suite(given.seed, given.failures, given.jobs, until=began + given.seconds)
    counts = shared_out(chosen, given.count)
    outcomes = suite.run(chosen, counts, told)
    print(summary(outcomes))
    print(f"{time.monotonic() - began:,.0f} s, seed {given.seed}")
    for name, outcome in outcomes.items():
        for what, file in outcome.kept:
            print(f"{what}\n    python -m fuzz --only '{name}' --repeat {file}")
    faults = sum(sum(outcome.faults.values()) for outcome in outcomes.values())
    print(f"{faults:,} inputs failed." if faults else "Only satl's own error came out.")
    left = sum(counts.values()) - sum(outcome.inputs for outcome in outcomes.values())
    if left:
        print(f"The time was over before the last {left:,} inputs.")
    return 1 if faults or left else 0


def told(name: str, outcome: object) -> None:
    """Print what came out of a target, at once."""
    from fuzz.runner import Outcome, lines

    assert isinstance(outcome, Outcome)
    print("\n".join(lines(name, outcome)), flush=True)


def import_all() -> None:
    """Import what readers import when they are called, once for all processes."""
    import pyarrow.compute
    import pyarrow.csv
    import pyarrow.parquet  # noqa: F401
    from PIL import Image

    for name in ("pandas", "openpyxl", "multiprocessing.pool", "xml.etree.ElementTree", "encodings.idna"):
        with suppress(ImportError):
            import_module(name)  # a second of every target that pyarrow imports pandas for

    from satl.images.decode import jpeg_decoder

    Image.init()
    jpeg_decoder()
    gc.collect()
    gc.freeze()  # or every process copies what the collector only looks at


def repeat(target: object, file: Path) -> int:
    """Read one input in this process, with its traceback."""
    from fuzz.runner import fast_folder
    from fuzz.targets.registry import Target
    from satl.errors import SatlError

    assert isinstance(target, Target)
    with tempfile.TemporaryDirectory(dir=fast_folder()) as work:
        target.prepare(Path(work))
        try:
            target.check(Path(work), file.read_bytes())
        except (SatlError, *target.refusals) as error:
            print(f"refused: {error}")
        except Exception:
            traceback.print_exc()
            return 1
        else:
            print("accepted")
    return 0


if __name__ == "__main__":
    sys.exit(main())

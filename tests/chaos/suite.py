"""Kill and starve satl's commands hundreds of times, and count what comes of it.

    python tests/chaos/suite.py            # the long form, by hand
    python tests/chaos/suite.py --short    # a few of each
    python tests/chaos/suite.py --every    # at every file operation, and at every write: hours

Everything is imported once; each trial is a fork of this process that is killed before one of its file operations, or
whose disk is full from one of its writes on. Then the same command is run again: it must end with the same bits as one
left alone, and leave nothing beside its result.
"""

from __future__ import annotations

import argparse
import errno
import gc
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]

from chaos.comparing import difference, snapshot, strays  # noqa: E402
from chaos.layer import COUNT, FULL, KILL, SHORT, Fault, build_shim, has_shim  # noqa: E402

_REASON = "SATL_CHAOS_WITHOUT_SHIM"


@dataclass
class Tally:
    """What was counted about one scenario."""

    name: str
    operations: int = 0
    kills: int = 0
    errors: int = 0
    same: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0


def spread(count: int, most: int) -> list[int]:
    """Return up to ``most`` numbers of 1 to ``count``, evenly spread, the first and the last among them.

    >>> spread(3, 5), spread(100, 4)
    ([1, 2, 3], [1, 34, 67, 100])
    """
    if count <= most:
        return list(range(1, count + 1))
    if most == 1:
        return [count]
    return sorted({1 + round(i * (count - 1) / (most - 1)) for i in range(most)})


class Trials:
    """All trials of one scenario, in one folder that has the same name every time."""

    def __init__(self, scenario: object, work: Path, short: bool, every: bool = False) -> None:
        from chaos.scenarios import Scenario

        assert isinstance(scenario, Scenario)
        self.scenario, self.work = scenario, work
        self.kills, self.faults = scenario.kills[short], scenario.faults[short]
        if every:
            self.kills, self.faults = sys.maxsize, sys.maxsize if self.faults else 0
        self.place, self.before, self.printed = work / "now", work / "before", work / "printed"
        self.tally = Tally(scenario.name)
        self.allowed: set[str] = set()

    def run(self) -> Tally:
        """Do them all."""
        begun = time.monotonic()
        try:
            self._begin()
        except AssertionError as error:
            self.tally.failures.append(f"undisturbed: {error}")
            return self.tally
        for number in spread(self.tally.operations, self.kills):
            self._kill(number)
        if has_shim():
            if any(self.scenario.faults):
                self._short_writes()
            for number in spread(self.writes, self.faults):
                self._full(number)
        self.tally.seconds = time.monotonic() - begun
        return self.tally

    def _begin(self) -> None:
        """Make what stands there before; run twice undisturbed, which must be the same; count operations."""
        shutil.rmtree(self.before, ignore_errors=True)
        self._fresh()
        if self.scenario.prepare is not None:
            self._require(self.scenario.prepare)
        self.place.rename(self.before)
        self.old = snapshot(self.before)
        self._fresh()
        if self.scenario.prepare is not None:
            self.allowed.add(self._read())
        log = self.work / "operations"
        self._require(self.scenario.run, Fault(COUNT, log=log))
        operations = [line.split("\t") for line in log.read_text().splitlines()]
        self.tally.operations = len(operations)
        self.writes = sum(line[0] == "write" for line in operations)
        self.end = snapshot(self.place)
        self.allowed.add(self._read())
        assert not strays(self.place), f"leaves {strays(self.place)}"
        out_of_order = unsynced(operations)
        assert not out_of_order, f"order of writing: {out_of_order}"
        self._check()
        self._fresh()
        self._require(self.scenario.run)
        assert self.end == snapshot(self.place), difference(self.end, snapshot(self.place))
        self._check()

    def _kill(self, number: int) -> None:
        self._fresh()
        ended = self._call(self.scenario.run, Fault(KILL, number))
        if ended.code == 0:
            self.tally.operations = min(self.tally.operations, number)  # threads may need one fewer
            return
        self.tally.kills += 1
        what = f"kill before operation {number} of {self.tally.operations}"
        if not ended.killed:
            self._fail(what, f"exit {ended.code}: {ended.text[-600:]}")
            return
        self._resume(what)

    def _full(self, number: int) -> None:
        """From a write on the disk is full."""
        error = errno.ENOSPC if number % 4 else errno.EFBIG
        self._fresh()
        ended = self._call(self.scenario.run, Fault(FULL, number, error))
        self.tally.errors += 1
        what = f"{errno.errorcode[error]} at write {number} of {self.writes}"
        if ended.code != 0 and not ended.is_sentence:
            self._fail(what, f"exit {ended.code}: {ended.text[-900:]}")
            return
        # The parts of a Parquet file are kept on purpose, to go on from.
        left = [name for name in strays(self.place) if not name.startswith(".vectors.features")]
        if ended.code == 0:
            found = difference(self.end, snapshot(self.place))
            if found:
                self._fail(what, f"exit 0, but {found}")
                return
        elif self.scenario.keeps_old and (found := difference(self.old, snapshot(self.place))):
            self._fail(what, f"the old output is not kept: {found}")
            return
        elif left:
            self._fail(what, f"left {left}")
            return
        self._resume(what)

    def _short_writes(self) -> None:
        """Every write takes half of the bytes: whoever writes must go on with the rest."""
        self._fresh()
        ended = self._call(self.scenario.run, Fault(SHORT))
        self.tally.errors += 1
        if ended.code != 0:
            self._fail("short writes", f"exit {ended.code}: {ended.text[-600:]}")
            return
        found = difference(self.end, snapshot(self.place))
        if found:
            self._fail("short writes", found)
        else:
            self.tally.same += 1

    def _resume(self, what: str) -> None:
        """Look at what is left as readers do, run the same again, and compare."""
        seen = self._read()
        if seen not in self.allowed and not (
            seen.startswith("refused") and not self.scenario.always_readable
        ):
            self._fail(what, f"a reader sees neither the old nor the new one: {seen}")
            return
        try:
            self._check()
        except AssertionError as error:
            self._fail(what, str(error))
            return
        ended = self._call(self.scenario.run)
        if ended.code != 0:
            self._fail(what, f"then exit {ended.code}: {ended.text[-600:]}")
            return
        try:
            self._check()
        except AssertionError as error:
            self._fail(what, str(error))
            return
        found = difference(self.end, snapshot(self.place))
        left = strays(self.place)
        if found or left:
            self._fail(what, f"{found} {f'left {left}' if left else ''}")
            return
        self.tally.same += 1

    def _fail(self, what: str, why: str) -> None:
        self.tally.failures.append(f"{what}: {' '.join(why.split())}")

    def _fresh(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        if self.before.is_dir():
            shutil.copytree(self.before, self.place)
        else:
            self.place.mkdir()

    def _call(self, action: object, fault: Fault | None = None):  # type: ignore[no-untyped-def]
        from chaos.forks import call

        return call(action, self.place, self.printed, fault)  # type: ignore[arg-type]

    def _require(self, action: object, fault: Fault | None = None) -> None:
        ended = self._call(action, fault)
        assert ended.code == 0, f"exit {ended.code}: {ended.text[-2000:]}"

    def _read(self) -> str:
        """Return a digest of what a reader sees, or that it is refused, or what is wrong."""
        from chaos.scenarios import digest
        from satl.errors import SatlError

        if self.scenario.read is None:
            return "refused"
        read = self.scenario.read

        def show(place: Path) -> None:
            try:
                print("seen " + digest(read(place)))
            except SatlError as error:
                print(f"refused: {error}")

        ended = self._call(show)
        line = ended.text.strip().splitlines()[-1:] or [""]
        return line[0] if ended.code == 0 else f"exit {ended.code}: {ended.text[-600:]}"

    def _check(self) -> None:
        if self.scenario.check is not None:
            ended = self._call(self.scenario.check)
            assert ended.code == 0, ended.text[-600:]


def unsynced(operations: list[list[str]]) -> list[str]:
    """Return files that took their final name, alone or with their folder, before their content was synced.

    Folders whose names were changed and not synced afterwards are told too.
    """
    dirty, folders = set[str](), set[str]()
    wrong = list[str]()
    for word, path, target in operations:
        if word in ("write", "truncate"):
            dirty.add(path)
        elif word == "sync":
            # safetensors writes `.tmpXXXXXX` and renames it by a call that is not seen: it is synced by its new name.
            unseen = [file for file in dirty if file.startswith(str(Path(path).parent / ".tmp"))]
            dirty.discard(path if path in dirty or not unseen else min(unseen))
            folders.discard(path)
        elif word == "name":
            moved = {file for file in dirty if file == path or file.startswith(path + "/")}
            dirty -= moved
            if any(
                part.startswith(".") or part.endswith((".new", ".removed")) for part in Path(target).parts
            ):
                dirty |= {target + file.removeprefix(path) for file in moved}  # not its final name yet
            else:
                wrong += [f"{file} before it was synced" for file in sorted(moved)]
                folders.add(str(Path(target).parent))
    return [*wrong, *(f"names in {folder} are not synced" for folder in sorted(folders))]


def each(scenarios: list[object], work: Path, jobs: int, short: bool, every: bool) -> Iterator[Tally]:
    """Yield what was counted of each scenario as it ends; each has a process and a folder of its own."""
    waiting, running = list(enumerate(scenarios)), dict[int, tuple[Path, str]]()
    while waiting or running:
        while waiting and len(running) < jobs:
            number, scenario = waiting.pop(0)
            folder = work / f"scenario{number}"
            folder.mkdir()
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    os.environ["SATL_CACHE"] = str(folder / "cache")
                    tally = Trials(scenario, folder, short, every).run()
                    (folder / "tally.json").write_text(json.dumps(asdict(tally)))
                    code = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(code)
            running[child] = (folder / "tally.json", scenario.name)  # type: ignore[attr-defined]
        child, status = os.wait()
        file, name = running.pop(child)
        if status == 0:
            yield Tally(**json.loads(file.read_text()))
        else:
            yield Tally(name, failures=[f"the suite itself ended with {os.waitstatus_to_exitcode(status)}"])


def report(tallies: list[Tally], seconds: float) -> str:
    """Return the table of counts, failures below it."""
    rows = [("scenario", "operations", "kills", "errors", "same bits", "failures", "seconds")]
    for one in tallies:
        counts = (one.operations, one.kills, one.errors, one.same, len(one.failures), round(one.seconds))
        rows.append((one.name, *map(str, counts)))
    total = [
        sum(values)
        for values in zip(*((t.kills, t.errors, t.same, len(t.failures)) for t in tallies), strict=True)
    ]
    rows.append(("all", "", *map(str, total), str(round(seconds))))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(
            text.ljust(width) if column == 0 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    lines += [f"FAILED {one.name}: {failure}" for one in tallies for failure in one.failures]
    return "\n".join(lines)


def _import_all(names: list[str]) -> None:
    """Import what a command needs once, here, and not in every fork."""
    for name in names:
        with suppress(Exception):
            import_module(name)
    import torch

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()


def main() -> int:
    """Run the suite; the exit code is 0 where nothing failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="a few trials of each scenario")
    parser.add_argument("--every", action="store_true", help="a trial for every operation and every write")
    parser.add_argument("--only", help="scenarios whose name contains this")
    parser.add_argument("--jobs", type=int, default=1, help="scenarios at once")
    parser.add_argument("--keep", action="store_true", help="keep the folders of the last trials")
    chosen = parser.parse_args()
    begun = time.monotonic()
    if not has_shim() and _REASON not in os.environ:
        folder = Path(tempfile.mkdtemp(prefix="satl-chaos-shim-"))
        library, reason = build_shim(folder)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "SATL_CACHE": str(folder / "cache")}
        environment[_REASON] = reason
        if library is not None:
            environment["LD_PRELOAD"] = str(library)
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    if not has_shim():
        print(f"Disk errors are left out ({os.environ[_REASON]}); kills are at Python's own file operations.")
    work = Path(tempfile.mkdtemp(prefix="satl-chaos-")).resolve()
    from chaos.forks import call
    from chaos.scenarios import make_inputs, scenarios

    base = work / "base"
    base.mkdir()
    made = call(make_inputs, base, work / "printed")
    if made.code != 0:
        print(made.text)
        return 1
    _import_all((base / "modules").read_text().split())
    print(f"inputs after {time.monotonic() - begun:.0f} s", flush=True)
    wanted = [one for one in scenarios(base) if chosen.only is None or chosen.only in one.name]
    tallies = list[Tally]()
    for tally in each(wanted, work, chosen.jobs, chosen.short, chosen.every):
        tallies.append(tally)
        print(report([tally], 0).splitlines()[1], flush=True)
        for failure in tally.failures[:3]:
            print("   ", failure[:1500], flush=True)
    print()
    print(report(tallies, time.monotonic() - begun))
    if chosen.keep:
        print(work)
    else:
        shutil.rmtree(work, ignore_errors=True)
        if "LD_PRELOAD" in os.environ:
            shutil.rmtree(Path(os.environ["LD_PRELOAD"]).parent, ignore_errors=True)
    return int(any(one.failures for one in tallies))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # libraries that were never used complain about their own end otherwise

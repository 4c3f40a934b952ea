"""Run targets on mutated inputs in processes of their own, count what came out, and keep what failed.

The process that is started imports everything once and forks one process a target. An input that ends its process, or
keeps it busy for too long, costs only that process: the next one goes on with the next input.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from fuzz.mutators import mutated
from fuzz.targets.registry import Target
from satl.errors import SatlError

SECONDS = 5.0
"""Processor time that an input may take; not time on the clock, which depends on what else a machine does."""
MEMORY = 1 << 30
"""Bytes that an input may take beyond what the process has before the first one."""
_KILL_AFTER = 20
"""Seconds of processor time after which a process is ended, because its input may never end."""
_HANG_AFTER = 600
"""Seconds on the clock after which a process that does nothing is ended."""
_KEPT = 3
"""Inputs that are kept of each place that fails."""


@dataclass
class Outcome:
    """What came out of the inputs of one target.

    Attributes:
        inputs, accepted, refused: how many.
        faults: what came out that must not, and where: number of inputs.
        seconds, slowest: processor time of all inputs, and of the slowest.
        memory: bytes that the process grew by.
        kept: (what, file) of the inputs that failed.
    """

    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    slowest: float = 0.0
    memory: int = 0
    kept: list[tuple[str, Path]] = field(default_factory=list)


def make_input(target: Target, seed: int, number: int) -> bytes:
    """Return input ``number`` of a target; the same for ever."""
    random = Random(f"{seed}/{target.name}/{number}")
    return mutated(random, target.inputs, target.kind, target.tokens)


def try_input(target: Target, work: Path, data: bytes) -> tuple[str, str | None]:
    """Read one input; return "accepted", "refused" or "fault", and for the last what came out and where."""
    try:
        accepted = target.check(work, data)
    except SatlError as error:
        if _chain_has(error, MemoryError):
            return "fault", f"refused only when the memory was gone, {_place(error)}"
        return "refused", None
    except target.refusals:
        return "refused", None
    except Exception as error:
        return "fault", f"{type(error).__name__} {_place(error)}"
    return ("accepted" if accepted else "refused"), None


def _chain_has(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None:
        if isinstance(error, kind):
            return True
        error = error.__cause__ or error.__context__
    return False


def _place(error: BaseException) -> str:
    """Return the innermost line of satl, or of the suite, that an error came through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "satl" in Path(frame.filename).parts] or frames[-1:]
    last = own[-1]
    name = last.filename.rpartition(f"satl{os.sep}")[2]
    return f"at {name}:{last.lineno} ({last.name})"


class Suite:
    """Runs targets.

    Args:
        seed: of all inputs.
        failures: folder for inputs that failed.
        jobs: processes at once.
        limit_memory: whether processes may take only so much memory.
        until: `time.monotonic()` at which no further input begins.
    """

    def __init__(
        self,
        seed: int,
        failures: Path,
        jobs: int = 1,
        limit_memory: bool = True,
        until: float = float("inf"),
    ) -> None:
        self.seed, self.failures, self.jobs, self.limit_memory = seed, failures, jobs, limit_memory
        self.until = until

    def run(
        self,
        targets: Sequence[Target],
        counts: Mapping[str, int],
        tell: Callable[[str, Outcome], object] | None = None,
    ) -> dict[str, Outcome]:
        """Run each target on as many inputs as ``counts`` says; return what came out by the names of targets.

        Args:
            targets: what is run; those that never began because the time was over are not in what is returned.
            counts: inputs by the names of targets.
            tell: is called with each target that has ended.
        """
        outcomes: dict[str, Outcome] = {}
        waiting = [target for target in targets if counts[target.name]][::-1]
        running: dict[int, _Process] = {}
        while waiting or running:
            if time.monotonic() > self.until:
                waiting.clear()
            while waiting and len(running) < self.jobs:
                target = waiting.pop()
                outcomes[target.name] = Outcome()
                process = _Process(self, target, 0, counts[target.name])
                running[process.pid] = process
            for pid, process in list(running.items()):
                status = process.ended()
                if status is None:
                    continue
                del running[pid]
                name = process.target.name
                following = process.collect(outcomes[name], status)
                if following < process.last and time.monotonic() <= self.until:
                    again = _Process(self, process.target, following, process.last)
                    running[again.pid] = again
                elif tell is not None:
                    tell(name, outcomes[name])
            time.sleep(0.02)
        return outcomes

    def keep(self, target: Target, number: int, outcome: Outcome, what: str) -> None:
        """Count a fault, and keep its input if it is one of the first."""
        outcome.faults[what] += 1
        if outcome.faults[what] > _KEPT:
            return
        data = make_input(target, self.seed, number)
        name = f"{target.name.replace('/', '--')}--{zlib.crc32(what.encode()):08x}-{outcome.faults[what]}"
        self.failures.mkdir(parents=True, exist_ok=True)
        file = self.failures / name
        file.write_bytes(data)
        outcome.kept.append((what, file))


_STATE = struct.Struct("<QQQdQd")
"""Next input, accepted, refused, slowest, memory, seconds: what a process shares with the one that waits for it."""
_ROOM = 1 << 20


class _Process:
    """A process that works on the inputs of a target."""

    def __init__(self, suite: Suite, target: Target, first: int, last: int) -> None:
        self.suite, self.target, self.last = suite, target, last
        # Shared with the child: numbers, then lines "number<TAB>fault" that end in a zero.
        self._shared = mmap.mmap(-1, _ROOM)
        self._shared[: _STATE.size] = _STATE.pack(first, 0, 0, 0.0, 0, 0.0)
        self._begun, self._seen = time.monotonic(), first
        self._first = first
        # Made and removed by the process that waits, whatever becomes of the one that works there.
        self._folder = tempfile.TemporaryDirectory(dir=fast_folder(), prefix="satl-fuzz-")
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                self._work(first)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)

    def ended(self) -> int | None:
        """Return how the process ended, or None while it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        at = _STATE.unpack_from(self._shared)[0]
        if at != self._seen:
            self._seen, self._begun = at, time.monotonic()
        elif time.monotonic() - self._begun > _HANG_AFTER:
            os.kill(self.pid, signal.SIGKILL)
        return None

    def collect(self, outcome: Outcome, status: int) -> int:
        """Add what the process found, and what its end says; return the input to go on with."""
        at, accepted, refused, slowest, memory, seconds = _STATE.unpack_from(self._shared)
        outcome.accepted += accepted
        outcome.refused += refused
        outcome.seconds += seconds
        outcome.slowest, outcome.memory = max(outcome.slowest, slowest), max(outcome.memory, memory)
        lines = self._shared[_STATE.size :].partition(b"\0")[0].decode("utf-8", "replace").splitlines()
        for line in lines:
            number, _, what = line.partition("\t")
            self.suite.keep(self.target, int(number), outcome, what)
        if status != 0:
            if status == 1:
                what = "the suite itself failed"
            elif -status in (signal.SIGPROF, signal.SIGKILL):
                what = f"did not end within {_KILL_AFTER} s"
            else:
                what = f"ended the process with {signal.Signals(-status).name}"
            self.suite.keep(self.target, at, outcome, what)
            at += 1
        outcome.inputs += at - self._first
        self._shared.close()
        self._folder.cleanup()
        return self.last if status == 1 else at

    def _work(self, first: int) -> None:
        target, suite = self.target, self.suite
        faulthandler.disable()  # the process that waits says it in one line
        signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends a process that does not come back
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        warnings.simplefilter("ignore")
        work = Path(self._folder.name)
        target.prepare(work)
        start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if suite.limit_memory:
            most = _virtual_memory() + MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
        state = [first, 0, 0, 0.0, 0, 0.0]
        end = _STATE.size
        for number in range(first, self.last):
            if time.monotonic() > suite.until:
                break
            data = make_input(target, suite.seed, number)
            signal.setitimer(signal.ITIMER_PROF, _KILL_AFTER)
            before = time.process_time()
            came, what = try_input(target, work, data)
            taken = time.process_time() - before
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) * 1024
            if taken > SECONDS:
                came, what = "fault", f"took longer than {SECONDS:g} s"
            elif grown > MEMORY and grown > state[4] + MEMORY // 8:
                came, what = "fault", f"took more than {MEMORY >> 30} GB"
            if came == "accepted":
                state[1] += 1
            elif came == "refused":
                state[2] += 1
            else:
                line = f"{number}\t{what}\n".encode()[:400]
                if end + len(line) < _ROOM - 1:
                    self._shared[end : end + len(line)] = line
                    end += len(line)
            state[0], state[5] = number + 1, state[5] + taken
            state[3], state[4] = max(state[3], taken), max(state[4], grown)
            self._shared[: _STATE.size] = _STATE.pack(*state)
        signal.setitimer(signal.ITIMER_PROF, 0)


def fast_folder() -> str | None:
    """Return a folder in memory where there is one: an input is written to a file each time."""
    return next((place for place in ("/dev/shm",) if os.access(place, os.W_OK)), None)


def _virtual_memory() -> int:
    """Return the bytes of address space that this process has taken."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")


def shared_out(targets: Sequence[Target], total: int) -> dict[str, int]:
    """Return how many inputs each target gets of ``total``, by its share, at least one each."""
    whole = sum(target.share for target in targets)
    counts = {target.name: max(1, int(total * target.share / whole)) for target in targets}
    largest = max(targets, key=lambda target: target.share).name
    counts[largest] += max(0, total - sum(counts.values()))
    return counts


HEADING = (
    f"{'target':<62} {'inputs':>9} {'accepted':>9} {'refused':>9} {'uncaught':>8}"
    f" {'slowest':>8} {'all':>8} {'memory':>8}"
)


def lines(name: str, outcome: Outcome) -> Iterator[str]:
    """Yield the line of a target in the table under :data:`HEADING`, and one for each kind of fault."""
    yield _line(name, outcome)
    for what, number in outcome.faults.most_common():
        yield f"    {number:,} x {what}"


def summary(outcomes: Mapping[str, Outcome]) -> str:
    """Return the last line of the table: all targets together."""
    every = Outcome()
    for outcome in outcomes.values():
        every.inputs += outcome.inputs
        every.accepted += outcome.accepted
        every.refused += outcome.refused
        every.seconds += outcome.seconds
        every.faults.update(outcome.faults)
        every.slowest, every.memory = max(every.slowest, outcome.slowest), max(every.memory, outcome.memory)
    return _line(f"{len(outcomes)} targets", every)


def _line(name: str, outcome: Outcome) -> str:
    return (
        f"{name:<62} {outcome.inputs:>9,} {outcome.accepted:>9,} {outcome.refused:>9,} "
        f"{sum(outcome.faults.values()):>8,} {outcome.slowest:>6.2f} s {outcome.seconds:>6.0f} s "
        f"{outcome.memory / 2**20:>5.0f} MB"
    )

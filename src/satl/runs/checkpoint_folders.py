"""Checkpoints on the disk: written whole or not at all, kept through a loss of power, checked when they are read."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from satl.distributed import launched_rank
from satl.errors import RunError, SatlWarning
from satl.files import CHECKSUMS, checksum, read_checksums, sync, sync_names, write_checksums

_REMOVED = ".removed"
"""Ending of a checkpoint that is being removed."""
_PREVIOUS = ".previous"
_OLD = ".old"
"""Ending of the same in runs of satl 0.1, which removed it a moment later."""
_ATTEMPTS = 100

Content = TypeVar("Content")


class DamagedError(RunError):
    """A file of a checkpoint is missing, or is not what was written."""

    @classmethod
    def of(cls, file: Path, reason: str) -> DamagedError:
        """Return the error of a file."""
        return cls(reason, where=file, remedy="start the run again or restore the file")


@contextmanager
def new_checkpoint(final: Path, keep_previous: bool) -> Iterator[Path]:
    """Yield a folder to write a checkpoint into; it takes the place ``final`` only when complete and on the disk.

    Args:
        final: the place of the checkpoint.
        keep_previous: whether the checkpoint that stood there stays beside it. Where there is no room for three of
            them, it is removed before the new one is written.

    Raises:
        OSError: there is no room, or the place is at fault; what was half written is removed.
    """
    fresh, previous = _beside(final, ".new"), _beside(final, _PREVIOUS)
    _remove(fresh)
    if final.is_dir() and not _has_room(final):
        _remove(previous)
    fresh.mkdir(parents=True)
    try:
        yield fresh
        write_checksums(fresh)
        sync(fresh)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)  # a disk that is full needs the room
        raise
    if final.is_dir():
        _remove(previous)
        final.replace(previous)
    fresh.replace(final)
    sync_names(final.parent)
    with suppress(OSError):  # what cannot be removed now is removed the next time
        _remove(_beside(final, _OLD))
        if not keep_previous:
            _remove(previous)


def places(final: Path) -> list[Path]:
    """Return the folders that hold a checkpoint of this name, the newest first.

    The first may be missing: the process died between two renames.
    """
    every = (final, _beside(final, _PREVIOUS), _beside(final, _OLD))
    return [place for place in every if place.is_dir()]


def require_whole(checkpoint: Path, names: Collection[str] | None = None) -> None:
    """Compare files of a checkpoint with their checksums; one of an older version has none and passes.

    Args:
        checkpoint: its folder.
        names: files to compare; None for all of them. One that the checkpoint does not have passes.

    Raises:
        DamagedError: a file differs or is missing.
    """
    try:
        expected = read_checksums(checkpoint)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise DamagedError.of(checkpoint / CHECKSUMS, "cannot be read") from error
    for name, value in expected.items():
        file = checkpoint / name
        if names is None or name in names:
            try:
                same = checksum(file) == value
            except OSError as error:
                raise DamagedError.of(file, f"cannot be read ({error.strerror})") from error
            if not same:
                raise DamagedError.of(file, "is damaged: it does not have its checksum")


def read_first_whole(candidates: Callable[[], Sequence[Path]], read: Callable[[Path], Content]) -> Content:
    """Return what ``read`` makes of the first checkpoint that is whole, and tell if it is not the first one.

    A training may put new checkpoints into the same places meanwhile. What was read while that happened is read again.

    Args:
        candidates: returns folders of checkpoints, one at least, the best first.
        read: reads one of them; must replace everything that an earlier call did.

    Raises:
        DamagedError: none of them is whole; the error is that of the first one.
    """
    for _ in range(_ATTEMPTS):
        found = candidates()
        before = [_identity(place) for place in found]
        damage: list[DamagedError] = []
        for number, place in enumerate(found):
            try:
                content = read(place)
            except DamagedError as error:
                damage.append(error)
                continue
            if [_identity(other) for other in found[: number + 1]] != before[: number + 1]:
                break
            if damage and launched_rank() == 0:
                warnings.warn(_fallback(damage[0], place), stacklevel=2)
            return content
        else:
            if candidates() == found and [_identity(place) for place in found] == before:
                raise damage[0]
    raise RunError("is replaced faster than it can be read", where=found[0], remedy="try again later")


def remove_others(folder: Path, kept: Collection[Path]) -> None:
    """Remove all checkpoints but these, and what is left of earlier removals.

    Raises:
        OSError: one of them cannot be removed.
    """
    for leftover in folder.glob(f"*{_REMOVED}"):
        shutil.rmtree(leftover)
    # The one before goes first: alone it would be taken for the checkpoint itself.
    for entry in sorted(folder.iterdir(), reverse=True):
        if entry.is_dir() and entry not in kept:
            _remove(entry)


def remove_half_written(folder: Path) -> None:
    """Remove what a process that was killed had not finished, written or removed; a folder is left as it should be.

    Raises:
        OSError: something cannot be removed.
    """
    for entry in list(folder.iterdir()):
        if entry.suffix in (".new", _REMOVED):
            shutil.rmtree(entry)
    for entry in list(folder.iterdir()):
        replaced = entry.suffix in (_PREVIOUS, _OLD) and entry.name != f"last{_PREVIOUS}"
        if replaced and entry.with_suffix("").is_dir():  # alone it is the checkpoint itself
            _remove(entry)


def _fallback(error: DamagedError, used: Path) -> SatlWarning:
    return SatlWarning(f"{error.where}: {error.what}; {used} is used instead.")


def _beside(final: Path, ending: str) -> Path:
    return final.with_name(final.name + ending)


def _remove(checkpoint: Path) -> None:
    """Remove a checkpoint if there is one; one that is half removed must not be taken for a checkpoint."""
    half = _beside(checkpoint, _REMOVED)
    if half.exists():
        shutil.rmtree(half)
    if checkpoint.exists():
        shutil.rmtree(checkpoint.replace(half))


def _has_room(final: Path) -> bool:
    """Whether another checkpoint of the size of ``final`` fits on the disk."""
    size = sum(file.stat().st_size for file in final.iterdir())
    return shutil.disk_usage(final).free > size + size // 8


def _identity(place: Path) -> tuple[int, int] | None:
    """What tells a folder from another one that takes its place."""
    try:
        facts = place.stat()
    except OSError:
        return None
    return facts.st_ino, facts.st_mtime_ns

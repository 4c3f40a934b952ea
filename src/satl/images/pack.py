"""Write a packed store: in order, and resumable however a call ended.

Images are decoded and encoded by several threads and written in the order of the table. What is finished stands
in a journal: its lines are written only after the bytes they describe have reached the disk, so whatever is in
``pixels.bin`` beyond the last whole line is cut off when packing is resumed. ``store.json``, written last, makes a
folder a store.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from satl.errors import Argument, ArrayError, ImageError, Sentence
from satl.files import UnwritableError, atomic_path, check_out_folder, is_disk_error, try_lock
from satl.images.broken_list import BROKEN, read_broken, write_broken
from satl.images.broken_pictures import BrokenPicture, require_few
from satl.images.source import ImageSource, available_cores, reason_of
from satl.images.store import (
    FORMAT,
    HEADER,
    INDEX,
    JOURNAL,
    PIXELS,
    RESIZE,
    VERSION,
    Kind,
    is_store,
    open_store,
    write_index,
)
from satl.parsing import parse_json

JPEG_QUALITY = 95
_BYTES_BETWEEN_COMMITS = 64 << 20
_SECONDS_BETWEEN_COMMITS = 1.0
_NEW_FOLDER = Sentence("pass another folder as {out}", out=Argument("out"))
_BROKEN_BYTES = b""
"""What is packed of an image that cannot be read; no image is encoded so."""
_IMAGES_AHEAD = 4  # for every worker: enough that none waits, few enough that memory stays small


class PackResult(NamedTuple):
    """What a call of :func:`pack_images` found and did."""

    total: int
    """Images of the table."""
    found: int
    """Of them those that were in the folder already."""
    num_bytes: int
    """Bytes of all images of the store."""
    broken: tuple[str, ...] = ()
    """Images of the table that cannot be read and are not in the store."""


def pack_images(
    source: ImageSource,
    image_ids: Sequence[str],
    folder: str | Path,
    *,
    kind: Kind = "jpeg",
    quality: int = JPEG_QUALITY,
    workers: int = 0,
    broken_share: float | None = None,
    progress: Callable[[int, int], Any] | None = None,
) -> PackResult:
    """Write the images of ``source`` into a store, or finish one that was begun.

    A store that is finished and holds these images is left alone. In one that is not, the images that are done
    must be the first of ``image_ids``.

    Args:
        source: images as they are to be stored, such as :class:`satl.images.FolderImages`.
        image_ids: an id for every image.
        folder: the store; made if missing.
        kind: ``jpeg``, or ``raw`` for plain bytes.
        quality: of the JPEGs, whose colours are kept at full resolution.
        workers: threads that decode; 0 takes one for every core.
        broken_share: leave out images that cannot be read, up to this share of all, and list them in ``broken.csv`` of
            the store; None: such an image is an error.
        progress: called as ``progress(done, total)``.

    Raises:
        ArrayError: the number of ids is not that of the images.
        ImageError: an image cannot be read, the disk is full, or the folder is used for something else. What is
            done stays, and the same call resumes after it.
        ConfigError: the folder cannot be made or written to.
    """
    folder = Path(folder)
    if len(image_ids) != len(source):
        raise ArrayError(f"{len(image_ids)} ids for {len(source)} images")
    if not image_ids:
        raise ImageError("the table has no image to pack", remedy="pass another table")
    settings = {"kind": kind, "size": source.size, "quality": quality if kind == "jpeg" else None}
    if (folder / HEADER).is_file():
        return _finished(folder, settings, image_ids, broken_share)
    if folder.exists() and not is_store(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise ImageError(f"'{folder}' exists already and is not a packed store", remedy=_NEW_FOLDER)
    check_out_folder(folder)
    encode = _jpeg(quality) if kind == "jpeg" else _raw
    reasons: dict[int, str] = {}

    def packed(i: int) -> bytes:
        try:
            return encode(source.image(i))
        except ImageError as error:
            if broken_share is None:
                raise
            reasons[i] = reason_of(error)
            return _BROKEN_BYTES

    with _translate_disk_errors(folder), _Writer(folder, settings, image_ids) as writer:
        if writer.finished_by_another:
            return _finished(folder, settings, image_ids, broken_share)
        for i in (
            writer.broken()
        ):  # of an earlier call; one that can be read by now is packed, and all that follow
            if broken_share is None or packed(i) != _BROKEN_BYTES:
                writer.cut(i)
                break
        found = writer.done
        executor = ThreadPoolExecutor(workers or available_cores())
        try:
            for data in _in_order(executor, packed, found, len(image_ids), workers):
                if progress is not None:
                    progress(writer.done, len(image_ids))
                writer.add(data)
                if broken_share is not None and len(reasons) > broken_share * len(image_ids):
                    break  # there is no need to read the others before that is said
        finally:
            executor.shutdown(wait=True, cancel_futures=True)
        broken = [BrokenPicture(image_ids[i], reason) for i, reason in sorted(reasons.items())]
        if broken_share is not None:
            require_few(broken, len(image_ids), broken_share, Argument("broken_share", broken_share))
        num_bytes = writer.finish(broken)
    if progress is not None:
        progress(len(image_ids), len(image_ids))
    return PackResult(len(image_ids), found, num_bytes, tuple(one.image for one in broken))


def _in_order(
    executor: ThreadPoolExecutor, work: Callable[[int], bytes], first: int, last: int, workers: int
) -> Iterator[bytes]:
    """Results for ``first`` to ``last`` in order, a bounded number of them ahead of the caller."""
    pending: deque[Future[bytes]] = deque()
    ahead = _IMAGES_AHEAD * (workers or available_cores())
    for i in range(first, last):
        pending.append(executor.submit(work, i))
        if len(pending) >= ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _jpeg(quality: int) -> Callable[[NDArray[np.uint8]], bytes]:
    def encode(pixels: NDArray[np.uint8]) -> bytes:
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "JPEG", quality=quality, subsampling="4:4:4")
        return buffer.getvalue()

    return encode


def _raw(pixels: NDArray[np.uint8]) -> bytes:
    return pixels.tobytes()


def _finished(
    folder: Path, settings: dict[str, Any], image_ids: Sequence[str], broken_share: float | None
) -> PackResult:
    store = open_store(folder)
    _require_same(folder, "is finished", settings, {key: getattr(store, key) for key in settings})
    known = set(store.ids)
    missing = [image_id for image_id in image_ids if image_id not in known]
    broken: tuple[str, ...] = ()
    if missing and broken_share is not None:
        listed = {row["image"] for row in read_broken(folder / BROKEN)}
        broken = tuple(image_id for image_id in missing if image_id in listed)
        missing = [image_id for image_id in missing if image_id not in listed]
    if missing:
        raise ImageError(
            f"packed store '{folder}' is finished and lacks {len(missing)} of the {len(image_ids)} images of"
            f" this table, '{missing[0]}' first",
            remedy=_NEW_FOLDER,
        )
    with suppress(OSError):  # of a call that was killed at its very end; the store needs it no more
        (folder / JOURNAL).unlink(missing_ok=True)
    return PackResult(len(image_ids), len(image_ids), store.num_bytes, broken)


def _require_same(folder: Path, state: str, wanted: dict[str, Any], found: dict[str, Any]) -> None:
    """Refuse to continue a store with other settings; ``state`` is "is finished" or "was begun"."""
    different = [key for key, value in wanted.items() if found[key] != value]
    if different:
        before = {f"before_{key}": Argument(key, found[key]) for key in different if found[key] is not None}
        now = {f"now_{key}": Argument(key, wanted[key]) for key in different if wanted[key] is not None}
        texts = [" ".join(f"{{{key}}}" for key in part) for part in (before, now)]
        raise ImageError(
            Sentence(f"{state} with {texts[0]}, not {texts[1]}", **before, **now),
            where=f"packed store '{folder}'",
            remedy=Sentence("pass another folder as {out}, or the same settings", out=Argument("out")),
        )


class _Writer:
    """The pixels and the journal of a store that is being written."""

    def __init__(self, folder: Path, settings: dict[str, Any], image_ids: Sequence[str]) -> None:
        self._folder, self._settings, self._ids = folder, settings, image_ids
        self._lengths: list[int] = []
        self._checksums: list[int] = []
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._last_commit = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        self._files = ExitStack()
        with self._files:
            self._journal = self._files.enter_context((folder / JOURNAL).open("ab", buffering=0))
            if not try_lock(self._journal.fileno()):
                raise ImageError(
                    f"packed store '{folder}' is being written by another process",
                    remedy="wait until it ends",
                )
            # Asked once more, now that nobody else can write: its pixels must not be cut off.
            self.finished_by_another = (folder / HEADER).is_file()
            if self.finished_by_another:
                return
            self._pixels = self._files.enter_context((folder / PIXELS).open("ab", buffering=0))
            self._read_journal()
            self._pixels.truncate(sum(self._lengths))  # what the journal does not know is not finished
            self._files = self._files.pop_all()

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        with self._files:
            # What is done stays, whatever ended the work, unless it was the disk.
            if kind is not None and not isinstance(error, OSError):
                self._commit()

    @property
    def done(self) -> int:
        """Images that are packed."""
        return len(self._lengths)

    def broken(self) -> list[int]:
        """Return which of the images that are done could not be read."""
        return [i for i, length in enumerate(self._lengths) if length == len(_BROKEN_BYTES)]

    def cut(self, done: int) -> None:
        """Forget all but the first images."""
        del self._lengths[done:], self._checksums[done:]
        lines = (self._folder / JOURNAL).read_bytes().split(b"\n")
        self._journal.truncate(sum(len(line) + 1 for line in lines[: done + 1]))
        self._pixels.truncate(sum(self._lengths))

    def add(self, data: bytes) -> None:
        """Pack the next image; no bytes stand for one that cannot be read."""
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        self._lengths.append(len(data))
        self._checksums.append(zlib.crc32(data))
        late = time.monotonic() - self._last_commit >= _SECONDS_BETWEEN_COMMITS
        if late or self._waiting_bytes >= _BYTES_BETWEEN_COMMITS:
            self._commit()

    def finish(self, broken: Sequence[BrokenPicture] = ()) -> int:
        """Make the folder a store, without the images that cannot be read; return its bytes."""
        self._commit()
        write_broken(self._folder / BROKEN, [(one.image, one.reason) for one in broken])
        left_out = set(self.broken())
        kept = [i for i in range(self.done) if i not in left_out]
        ids = [self._ids[i] for i in kept]
        lengths, checksums = ([values[i] for i in kept] for values in (self._lengths, self._checksums))
        with atomic_path(self._folder / INDEX) as temporary:
            write_index(temporary, ids, lengths, checksums)
            digest = hashlib.sha256(temporary.read_bytes()).hexdigest()
            _to_disk(temporary)
        header = {
            "format": FORMAT,
            "version": VERSION,
            **self._settings,
            "count": len(ids),
            "bytes": sum(self._lengths),
            "resize": RESIZE,
            "index_sha256": digest,
        }
        with atomic_path(self._folder / HEADER) as temporary:
            temporary.write_text(json.dumps(header, indent=2) + "\n", encoding="utf-8")
            _to_disk(temporary)
        (self._folder / JOURNAL).unlink(missing_ok=True)  # another call may have seen the header already
        for left in self._folder.glob(".*.partial.*"):  # of an earlier call that was killed just here
            left.unlink()
        return sum(self._lengths)

    def _commit(self) -> None:
        """Write what waits, wait until it is on the disk, then say so in the journal."""
        if self._waiting:
            _write_all(self._pixels, b"".join(self._waiting))
            os.fsync(self._pixels.fileno())
            first = self.done - len(self._waiting)
            lines = (
                _line(id=self._ids[i], bytes=self._lengths[i], crc32=self._checksums[i])
                for i in range(first, self.done)
            )
            _write_all(self._journal, b"".join(lines))
        self._waiting, self._waiting_bytes = [], 0
        self._last_commit = time.monotonic()

    def _read_journal(self) -> None:
        """Take over what the journal says is done, and cut off what was not finished."""
        *lines, _ = (self._folder / JOURNAL).read_bytes().split(b"\n")
        entries = list(_whole_entries(lines))
        if len(entries) < 2:  # nothing is done, so nothing is decided
            self._journal.truncate(0)
            _write_all(self._journal, _line(format=FORMAT, **self._settings))
            return
        begun, *entries = entries
        _require_same(
            self._folder, "was begun", self._settings, {key: begun.get(key) for key in self._settings}
        )
        room = (self._folder / PIXELS).stat().st_size
        for number, entry in enumerate(entries):
            if not _is_entry(entry):
                raise ImageError(
                    f"packed store '{self._folder}': line {number + 2} of {JOURNAL} is damaged",
                    remedy="delete the folder and pack the images again",
                )
            room -= entry["bytes"]
            if room < 0:
                break
            if number >= len(self._ids) or entry["id"] != self._ids[number]:
                raise ImageError(
                    f"packed store '{self._folder}' was begun with another table, its image {number + 1} is"
                    f" '{entry['id']}'",
                    remedy=Sentence("pass another folder as {out}, or the same table", out=Argument("out")),
                )
            self._lengths.append(entry["bytes"])
            self._checksums.append(entry["crc32"])
        self._journal.truncate(sum(len(line) + 1 for line in lines[: self.done + 1]))


def _whole_entries(lines: Sequence[bytes]) -> Iterator[dict[str, Any]]:
    """Entries up to the first line that a failing system left half written."""
    for line in lines:
        try:
            entry = parse_json(line)
        except ValueError:
            return
        yield entry if isinstance(entry, dict) else {}


def _is_entry(entry: dict[str, Any]) -> bool:
    """Whether a line of a journal is about an image: its id, how many bytes it has, and their checksum."""
    size, value = entry.get("bytes"), entry.get("crc32")
    return (
        isinstance(entry.get("id"), str)
        and type(size) is int
        and 0 <= size < 1 << 62
        and type(value) is int
        and 0 <= value < 1 << 32
    )


def _line(**entry: Any) -> bytes:
    return json.dumps(entry).encode() + b"\n"


def _write_all(file: io.FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _to_disk(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def _translate_disk_errors(folder: Path) -> Iterator[None]:
    """Raise what the system says of a full disk or an unwritable file of the store as an error of satl."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ImageError(
                f"packed store '{folder}': the disk is full",
                remedy="make room and pack the same table again to resume",
            ) from None
        if error.filename is None and is_disk_error(error):  # a limit of the size of files names none
            raise ImageError(
                f"packed store '{folder}': cannot be written ({error.strerror})",
                remedy="lift the limit or choose another place, and pack the same table again to resume",
            ) from None
        if isinstance(error.filename, str) and Path(error.filename).is_relative_to(folder):
            raise UnwritableError.of(Path(error.filename), error) from None
        raise

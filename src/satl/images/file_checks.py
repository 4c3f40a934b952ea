"""Check the images of a table before any training: which are missing, broken, or the same as another."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from satl.errors import Argument, ImageError
from satl.images.decode import grey_thumbnail, unsupported_reason
from satl.images.near_duplicates import SIDE, near_duplicates
from satl.images.source import FileFinder
from satl.images.store import WRONG_CHECKSUM, Store, is_store, open_store, read_stored
from satl.labels.cells import NameIndex
from satl.labels.file_report import DuplicateGroup, FileReport
from satl.labels.table import ABSENT, PRESENT, LabelTable
from satl.remote.copies import fill


class FileVerdict(NamedTuple):
    """What became of one image file: all empty where it is missing.

    Attributes:
        digest: of the content of a good one.
        reason: why a broken one cannot be read.
        thumbnail: of a good one, uint8 (18, 18).
    """

    digest: bytes | None = None
    reason: str | None = None
    thumbnail: npt.NDArray[np.uint8] | None = None


Progress = Callable[[int, int], None]


def inspect_images(table: LabelTable, place: str | Path, progress: Progress | None = None) -> FileReport:
    """Read every image of a table: which are missing, broken, or the same as another.

    Args:
        table: whose images are looked for.
        place: the image folder, in which files are found and refused as in training; or a packed store, whose
            images are compared with their checksums.
        progress: called with (images done, images in all).

    Raises:
        ImageError: it is not a folder, or a store that is damaged as a whole or not finished.
    """
    path = Path(place)
    return (_inspect_store if is_store(path) else _inspect_folder)(table, path, progress)


def _inspect_folder(table: LabelTable, folder: Path, progress: Progress | None) -> FileReport:
    if not folder.is_dir():
        raise ImageError(
            "is not a folder", where=Argument("images", folder), remedy="give the folder of the image files"
        )
    fill(folder, table.images)
    finder = FileFinder(folder)

    def check(image: str) -> FileVerdict:
        found: Sequence[Path] = ()
        with suppress(ImageError):  # a folder that may not be listed: the file itself is asked
            found = finder.find(image)
        if len(found) > 1:
            names = ", ".join(file.name for file in found[:3])
            return FileVerdict(
                reason=f"the id matches {len(found)} files, {names}: write it with its extension"
            )
        return _check_file(found[0] if found else folder / image)

    report = _check_all(table, folder, check, progress)
    return report if not report.missing else replace(report, hint=_hint_in_folder(folder, report.missing[0]))


def _inspect_store(table: LabelTable, path: Path, progress: Progress | None) -> FileReport:
    store = open_store(path)
    index = NameIndex(store.ids)

    def check(image: str) -> FileVerdict:
        position = index.position(image)
        return _check_stored(store, position) if position >= 0 else FileVerdict()

    report = _check_all(table, path, check, progress)
    if not report.missing:
        return report

    def siblings(parent: str) -> Iterable[str]:
        ids = map(PurePosixPath, store.ids)
        return (image.name for image in ids if image.parent == PurePosixPath(parent))

    hint = _missing_hint(path, report.missing[0], index.__contains__, siblings)
    return replace(report, hint=hint)


def _check_stored(store: Store, position: int) -> FileVerdict:
    # What has the checksum of its packing can be decoded: it was encoded by the packing itself.
    from PIL import Image

    try:
        data = read_stored(store, position)
    except ImageError:
        return FileVerdict(reason=WRONG_CHECKSUM)
    except OSError as error:
        return FileVerdict(reason=error.strerror or str(error))
    if store.kind == "raw":
        pixels = np.frombuffer(data, dtype=np.uint8).reshape(store.size, store.size, 3)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PPM")
        thumbnail = _thumbnail(buffer.getvalue())
    else:
        thumbnail = _thumbnail(data)
    return FileVerdict(_content_digest(data), thumbnail=thumbnail)


def _thumbnail(data: bytes) -> npt.NDArray[np.uint8] | None:
    from PIL import Image

    with suppress(Exception), Image.open(io.BytesIO(data)) as image:
        return grey_thumbnail(image, SIDE)
    return None


def _check_all(
    table: LabelTable, place: Path, check: Callable[[str], FileVerdict], progress: Progress | None = None
) -> FileReport:
    """Return what ``check`` finds for every image of a table, in several threads; without a hint.

    Args:
        place: where the images are, for the report.
    """
    missing: list[str] = []
    unreadable: list[tuple[str, str]] = []
    same: dict[bytes, list[int]] = {}
    thumbnails: dict[bytes, npt.NDArray[np.uint8]] = {}
    # Reading waits for the disk and decoding releases the interpreter, so threads help with both.
    with ThreadPoolExecutor(max_workers=min(16, 2 * (os.cpu_count() or 1))) as pool:
        for row, (digest, reason, thumbnail) in enumerate(pool.map(check, table.images, chunksize=1)):
            if digest is None and reason is None:
                missing.append(table.images[row])
            elif digest is None:
                unreadable.append((table.images[row], str(reason)))
            else:
                same.setdefault(digest, []).append(row)
                if thumbnail is not None:
                    thumbnails.setdefault(digest, thumbnail)
            if progress is not None:
                progress(row + 1, table.num_images)
    duplicates = tuple(_duplicate_group(table, rows) for rows in same.values() if len(rows) > 1)
    digests = list(thumbnails)
    alike = near_duplicates(np.stack([thumbnails[digest] for digest in digests])) if digests else []
    near = tuple(
        _duplicate_group(table, sorted(row for place in group for row in same[digests[place]]))
        for group in alike
    )
    return FileReport(
        str(place), table.num_images, tuple(missing), tuple(unreadable), duplicates, near_duplicates=near
    )


def _content_digest(data: bytes) -> bytes:
    """Return what two images with the same content have in common."""
    return hashlib.blake2b(data, digest_size=16).digest()


def _check_file(path: Path) -> FileVerdict:
    from PIL import Image

    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return FileVerdict()
    except OSError as error:
        return FileVerdict(reason=error.strerror or str(error))
    if not data:
        return FileVerdict(reason="empty file")
    reason = unsupported_reason(data)
    if reason is not None:
        return FileVerdict(reason=reason)
    thumbnail = None
    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.format == "JPEG":
                # Decoding at an eighth of the size still reads all data, several times faster.
                image.draft("RGB", (max(2 * SIDE, image.width // 8), max(2 * SIDE, image.height // 8)))
                image.load()
                with suppress(Exception):  # a thumbnail is only compared with others
                    thumbnail = grey_thumbnail(image, SIDE)
            else:
                image.verify()
                with Image.open(io.BytesIO(data)) as again:
                    again.load()
                    with suppress(Exception):
                        thumbnail = grey_thumbnail(again, SIDE)
    except Exception as error:
        # Decoders raise errors of many kinds on broken data; to the user they are all one.
        name = type(error).__name__
        reason = "not an image" if name == "UnidentifiedImageError" else str(error).strip() or name
        return FileVerdict(reason=reason)
    return FileVerdict(_content_digest(data), thumbnail=thumbnail)


def _duplicate_group(table: LabelTable, rows: list[int]) -> DuplicateGroup:
    cells = table.cells[rows]
    both: npt.NDArray[np.bool_] = (cells == PRESENT).any(axis=0) & (cells == ABSENT).any(axis=0)
    splits = () if table.split is None else tuple(sorted({str(table.split[i]) for i in rows}))
    return DuplicateGroup(tuple(table.images[i] for i in rows), bool(both.any()), splits)


def _hint_in_folder(folder: Path, image: str) -> str | None:
    def siblings(parent: str) -> Iterable[str]:
        place = folder / parent
        entries = place.iterdir() if place.is_dir() else ()
        return (entry.name for entry in entries if entry.is_file())

    return _missing_hint(folder, image, lambda name: (folder / name).is_file(), siblings)


def _missing_hint(
    place: Path, image: str, exists: Callable[[str], bool], siblings: Callable[[str], Iterable[str]]
) -> str | None:
    """Name a file that a missing id could have meant, however it was written.

    Args:
        exists: whether there is an image of that id.
        siblings: names of the images in a folder, which is relative to ``place``.
    """
    slashed = image.replace("\\", "/")
    slashes = "" if slashed == image else ", with / between folders"
    parts = slashed.split("/")
    # A drive letter in front is no part of any id; to join it with a folder would mean the root of that drive.
    for start in range(1 if slashed == image else 0, len(parts)):
        shorter = "/".join(parts[start:])
        if shorter and not shorter.startswith("/") and exists(shorter):
            return f"{image!r} is missing, but {shorter!r} exists: write ids relative to {place}{slashes}"
    expected = PurePosixPath(slashed)
    stems = {expected.name.lower(), expected.stem.lower()}
    names = sorted(siblings(str(expected.parent)))
    for name in names:
        if name.lower() in stems or PurePosixPath(name).stem.lower() in stems:
            return f"{image!r} is missing, but {name!r} exists: write the full file name as id"
    number = _number(expected)
    for name in names if number is not None else ():
        if _number(PurePosixPath(name)) == number:
            return (
                f"{image!r} is missing, but {name!r} exists: write the full file name as id; a spreadsheet drops "
                "zeros in front unless the column is text"
            )
    return None


def _number(name: PurePosixPath) -> str | None:
    """Return the number that a file is called by, without zeros in front."""
    digits = name.stem
    return digits.lstrip("0") if digits.isascii() and digits.isdecimal() else None

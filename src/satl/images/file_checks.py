"""Image files of a table, each read once: which are missing, broken, or the same as another."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from satl.errors import ImageError
from satl.labels.table import ABSENT, PRESENT, LabelTable

Verdict = tuple[bytes | None, str | None]
"""What became of one image file: (digest, None) of a good one, (None, None) missing, (None, reason) broken."""
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class DuplicateGroup:
    """Images whose files have the same content.

    contradictory: whether some class is known to be present in one and absent in another.
    splits: the splits they lie in; more than one means that a test image was seen in training.
    """

    images: tuple[str, ...]
    contradictory: bool
    splits: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileReport:
    """What became of the image files.

    missing: ids without a file. unreadable: (id, reason) of files that cannot be decoded completely.
    hint: what the missing ones have in common, where that can be told.
    """

    folder: str
    checked: int
    missing: tuple[str, ...]
    unreadable: tuple[tuple[str, str], ...]
    duplicates: tuple[DuplicateGroup, ...]
    hint: str | None = None


def inspect_files(
    table: LabelTable,
    images_dir: str | os.PathLike[str],
    progress: Progress | None = None,
    find: Callable[[str], Sequence[Path]] | None = None,
    refuse: Callable[[bytes], str | None] | None = None,
) -> FileReport:
    """Read and decode the file of every image: which are missing, broken, or the same as another.

    find: the files that an id stands for, none, one or several; by default the one that is called so.
    refuse: says why the content of a file is refused before it is decoded, or None; by default nothing is.
    """
    folder = Path(images_dir)
    if not folder.is_dir():
        raise ImageError(f"{folder} is not a folder: pass the folder of the image files as --images.")

    def check(image: str) -> Verdict:
        found: Sequence[Path] = ()
        if find is not None:
            with suppress(ImageError):  # a folder that may not be listed: the file itself is asked
                found = find(image)
        if len(found) > 1:
            names = ", ".join(file.name for file in found[:3])
            return None, f"the id matches {len(found)} files, {names}: write it with its extension"
        return _check_file(found[0] if found else folder / image, refuse)

    report = check_all(table, folder, check, progress)
    return report if not report.missing else replace(report, hint=_hint_in_folder(folder, report.missing[0]))


def check_all(
    table: LabelTable, place: Path, check: Callable[[str], Verdict], progress: Progress | None = None
) -> FileReport:
    """Return what ``check`` finds for every image of a table, in several threads; without a hint.

    place: where the images are, for the report.
    """
    missing: list[str] = []
    unreadable: list[tuple[str, str]] = []
    same: dict[bytes, list[int]] = {}
    # Reading waits for the disk and decoding releases the interpreter, so threads help with both.
    with ThreadPoolExecutor(max_workers=min(16, 2 * (os.cpu_count() or 1))) as pool:
        for row, (digest, reason) in enumerate(pool.map(check, table.images, chunksize=1)):
            if digest is None and reason is None:
                missing.append(table.images[row])
            elif digest is None:
                unreadable.append((table.images[row], str(reason)))
            else:
                same.setdefault(digest, []).append(row)
            if progress is not None:
                progress(row + 1, table.num_images)
    duplicates = tuple(_duplicate_group(table, rows) for rows in same.values() if len(rows) > 1)
    return FileReport(str(place), table.num_images, tuple(missing), tuple(unreadable), duplicates)


def content_digest(data: bytes) -> bytes:
    """Return what two images with the same content have in common."""
    return hashlib.blake2b(data, digest_size=16).digest()


def _check_file(path: Path, refuse: Callable[[bytes], str | None] | None) -> Verdict:
    from PIL import Image

    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    except OSError as error:
        return None, error.strerror or str(error)
    if not data:
        return None, "empty file"
    refusal = None if refuse is None else refuse(data)
    if refusal is not None:
        return None, refusal
    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.format == "JPEG":
                # Decoding at an eighth of the size reads all data all the same, several times faster.
                image.draft("RGB", (max(1, image.width // 8), max(1, image.height // 8)))
                image.load()
            else:
                image.verify()
                with Image.open(io.BytesIO(data)) as again:
                    again.load()
    except Exception as error:
        # Decoders raise errors of many kinds on broken data; to the user they are all one.
        name = type(error).__name__
        reason = "not an image" if name == "UnidentifiedImageError" else str(error).strip() or name
        return None, reason
    return content_digest(data), None


def _duplicate_group(table: LabelTable, rows: list[int]) -> DuplicateGroup:
    cells = table.cells[rows]
    both: npt.NDArray[np.bool_] = (cells == PRESENT).any(axis=0) & (cells == ABSENT).any(axis=0)
    splits = () if table.split is None else tuple(sorted({str(table.split[i]) for i in rows}))
    return DuplicateGroup(tuple(table.images[i] for i in rows), bool(both.any()), splits)


def _hint_in_folder(folder: Path, image: str) -> str | None:
    parent = (folder / image).parent
    entries = parent.iterdir() if parent.is_dir() else ()
    siblings = (entry.name for entry in entries if entry.is_file())
    return missing_hint(folder, image, (folder / Path(image).name).is_file(), siblings)


def missing_hint(place: Path, image: str, at_the_top: bool, siblings: Iterable[str]) -> str | None:
    """Name a file that a missing id could have meant: with an extension, another one, or without its folder.

    at_the_top: whether there is a file of that name without its folder.
    siblings: names of the files in the folder of the id.
    """
    expected = Path(image)
    if expected.name != image and at_the_top:
        return f"{image!r} is missing, but {expected.name!r} exists: write ids relative to {place}"
    stems = {expected.name.lower(), expected.stem.lower()}
    for name in sorted(siblings):
        if name.lower() in stems or Path(name).stem.lower() in stems:
            return f"{image!r} is missing, but {name!r} exists: write the full file name as id"
    return None

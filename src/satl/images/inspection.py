"""A look at the images of a table before any training, in a folder or in a packed store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

from satl.errors import ImageError
from satl.images.decode import refusal
from satl.images.file_checks import (
    FileReport,
    Progress,
    Verdict,
    check_all,
    content_digest,
    inspect_files,
    missing_hint,
)
from satl.images.source import FileFinder
from satl.images.store import WRONG_CHECKSUM, Store, is_store, open_store, read_stored
from satl.labels.table import LabelTable


def inspect_images(table: LabelTable, place: str | Path, progress: Progress | None = None) -> FileReport:
    """Read every image of a table: which are missing, broken, or the same as another.

    Args:
        table: whose images are looked for.
        place: the image folder, in which files are found and refused as in training; or a packed store, whose
            images are compared with their checksums.
        progress: called with (images done, images in all).

    Raises:
        ImageError: it is no folder, or a store that is damaged as a whole or not finished.
    """
    path = Path(place)
    return (
        _inspect_store(table, path, progress)
        if is_store(place)
        else inspect_files(table, path, progress, FileFinder(path).find, refusal)
    )


def _inspect_store(table: LabelTable, path: Path, progress: Progress | None) -> FileReport:
    store = open_store(path)
    position_of = {image: i for i, image in enumerate(store.ids)}

    def check(image: str) -> Verdict:
        return _check_stored(store, position_of[image]) if image in position_of else (None, None)

    report = check_all(table, path, check, progress)
    if not report.missing:
        return report
    first = report.missing[0]
    parent = PurePosixPath(first).parent
    siblings = (PurePosixPath(image).name for image in store.ids if PurePosixPath(image).parent == parent)
    hint = missing_hint(path, first, PurePosixPath(first).name in position_of, siblings)
    return replace(report, hint=hint)


def _check_stored(store: Store, position: int) -> Verdict:
    # What has the checksum of its packing can be decoded: it was encoded by the packing itself.
    try:
        return content_digest(read_stored(store, position)), None
    except ImageError:
        return None, WRONG_CHECKSUM
    except OSError as error:
        return None, error.strerror or str(error)

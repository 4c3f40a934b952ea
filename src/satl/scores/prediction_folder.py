"""The files of a folder of predictions: the names that both its writer and the readers of scores know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from satl.errors import RunError, Sentence, Task

MANIFEST, BROKEN = "_predictions.json", "_broken.csv"
"""Files beside the table; programs that read a folder of Parquet files ignore names that begin with ``_``."""
IMAGE, PRESENT = "image", "present"
"""Columns that are not classes."""


def is_prediction_folder(path: Path) -> bool:
    """Whether a path is a folder of predictions."""
    return (path / MANIFEST).is_file()


def part_file(folder: Path, number: int) -> Path:
    """Return the path of a part."""
    return folder / f"part-{number:06d}.parquet"


def part_files(folder: Path) -> list[Path]:
    """Return the files of a folder of predictions, in the order of the images.

    Raises:
        RunError: some are still missing.
    """
    content = read_manifest(folder / MANIFEST)
    try:
        count = -(-int(content["images"]) // int(content["part_size"]))
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        raise _no_manifest(folder / MANIFEST) from None
    files = [part_file(folder, number) for number in range(count)]
    absent = sum(not file.is_file() for file in files)
    if absent:
        raise RunError(
            f"{absent:,} of {count:,} files of predictions are still missing",
            where=folder,
            remedy=Sentence("run the same {predict} again to resume", predict=Task("predict")),
        )
    return files


def read_manifest(file: Path) -> dict[str, Any]:
    """Return the content of the manifest of a folder."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict):
        raise _no_manifest(file)
    return content


def _no_manifest(file: Path) -> RunError:
    return RunError("cannot be read", where=file, remedy="make the predictions again in another folder")


def broken_images(file: Path) -> list[tuple[str, str]] | None:
    """Return the images of a part that could not be read; None: there is no such part yet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not file.is_file():
        return None
    try:
        found = json.loads((pq.read_schema(file).metadata or {})[b"broken"])
    except (pa.ArrowInvalid, OSError, KeyError, ValueError):
        return None  # not one of ours, or damaged: it is made again
    return [(image, reason) for image, reason in found]

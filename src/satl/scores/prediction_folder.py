"""The files of a folder of predictions: the names that both its writer and the readers of scores know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from satl.checks.plain_files import refuse_endless_files
from satl.errors import RunError, Sentence, TableError, Task
from satl.labels.io.arrow_files import arrow_errors
from satl.parsing import parse_json

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
    refuse_endless_files(folder, RunError, "make the predictions again in another folder")
    content = read_manifest(folder / MANIFEST)
    images, part_size = content.get("images"), content.get("part_size")
    if type(images) is not int or type(part_size) is not int or min(images, part_size) < 1:
        raise _no_manifest(folder / MANIFEST)
    count = -(-images // part_size)
    # What is there is counted, not what the manifest claims: it may claim any number.
    present = {file.name for file in folder.glob("part-*.parquet")}
    if len(present) < count:
        absent = count - len(present)
    else:
        files = [part_file(folder, number) for number in range(count)]
        absent = sum(file.name not in present for file in files)
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
        content = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict):
        raise _no_manifest(file)
    return content


def _no_manifest(file: Path) -> RunError:
    return RunError("cannot be read", where=file, remedy="make the predictions again in another folder")


def broken_images(file: Path) -> list[tuple[str, str]] | None:
    """Return the images of a part that could not be read; None: there is no such part yet."""
    import pyarrow.parquet as pq

    if not file.is_file():
        return None
    try:
        with arrow_errors(file, "Parquet"):
            metadata = pq.read_schema(file).metadata or {}
        found = [(str(image), str(reason)) for image, reason in parse_json(metadata[b"broken"])]
    except (TableError, KeyError, ValueError, TypeError):
        return None  # not one of ours, or damaged: it is made again
    return found

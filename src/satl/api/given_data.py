"""Data that a call was given, as the files that runs read: what is in memory is kept in a folder beside the run."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from satl.api.frame_numbers import Numbers, numbers_of
from satl.api.memory_data import MemoryData, read_memory
from satl.errors import Argument, ArrayError, ImageError, RunError, Sentence
from satl.files import UnwritableError, file_ending, sync
from satl.inference.pictures import save_picture
from satl.labels import LabelTable, read_table, truth_path, write_table
from satl.labels.cells import IMAGE_EXTENSIONS
from satl.labels.frames import FrameKind
from satl.remote.copies import local_copy

PathLike = str | os.PathLike[str]
_ABOUT = "about.json"
_EXTENSIONS = {"JPEG": ".jpg", "TIFF": ".tif"}


@dataclass(frozen=True)
class GivenData:
    """The files of the data of a call.

    Attributes:
        table: the label table.
        images: folder of its images, or None.
        features: file of its features, or None.
        truth: table of its hidden truth, or None.
        encoding, ignore_columns: of the table.
        kind: whose frame it was, so that results come back as one.
    """

    table: Path
    images: Path | None = None
    features: Path | None = None
    truth: Path | None = None
    encoding: str | None = None
    ignore_columns: tuple[str, ...] = ()
    kind: FrameKind | None = None

    def section(self) -> dict[str, Any]:
        """Return the keys of the section ``data`` of a configuration."""
        paths = {
            name: str(path)
            for name in ("table", "images", "features", "truth")
            if (path := getattr(self, name)) is not None
        }
        columns = {"ignore_columns": list(self.ignore_columns)} if self.ignore_columns else {}
        return {**paths, **columns, **({} if self.encoding is None else {"encoding": self.encoding})}

    def read(self) -> LabelTable:
        """Return the table."""
        return read_table(
            local_copy(self.table), self.encoding, truth=self.truth, ignore_columns=self.ignore_columns
        )


def given_data(
    data: Any,
    folder: Path,
    *,
    images: PathLike | None = None,
    features: Any = None,
    encoding: str | None = None,
    ignore_columns: Sequence[str] = (),
    classes: Sequence[str] | None = None,
    force: bool = False,
    needs_images: bool = True,
) -> GivenData:
    """Return the files of data; what is in memory is written to ``folder`` first.

    Args:
        data: a path of a table, or anything that :func:`satl.api.memory_data.read_memory` reads.
        folder: for what is in memory: ``labels.csv``, ``images`` and ``features.npz``, as far as they are needed.
        images: folder of the images, or a packed store.
        features: a file of features; an array (N, D) or (N, views, D) in the order of the table; or a frame of them.
        encoding, ignore_columns, classes: how labels are read.
        force: replace other data in ``folder``.
        needs_images: whether images or features are needed, so that a frame without either is one of paths.

    Raises:
        RunError: ``folder`` holds other data, or files that no call wrote.
    """
    ignored = (ignore_columns,) if isinstance(ignore_columns, str) else tuple(ignore_columns)
    shown = None if images is None else Path(images)
    file = Path(features) if isinstance(features, str | os.PathLike) else None
    array = None if features is None or file is not None else _feature_array(features, data)
    if isinstance(data, str | os.PathLike):
        given = GivenData(Path(data), shown, file, None, encoding, ignored)
        if classes is not None:
            raise ArrayError(
                "a table in a file names its classes",
                where=Argument("classes"),
                remedy=Sentence("leave out {classes}", classes=Argument("classes")),
            )
        if array is None:
            return given
        ids = given.read().images
        with _new_folder(folder, force) as place:
            _write_features(place, ids, array)
        return GivenData(Path(data), shown, folder / "features.npz", None, encoding, ignored)
    with _new_folder(folder, force) as place:
        found = read_memory(
            data,
            lambda name, picture: _keep_picture(place / "images", name, picture),
            encoding,
            ignored,
            classes,
        )
        vectors = array if array is not None or found.features is None else Numbers(found.features)
        if vectors is not None:
            _write_features(place, found.table.images, vectors)
        write_table(found.table, place / "labels.csv")
    return GivenData(
        folder / "labels.csv",
        _images_of(found, shown, folder, needs_images and file is None and vectors is None),
        file if vectors is None else folder / "features.npz",
        None if found.table.truth is None else truth_path(folder / "labels.csv"),
        kind=found.kind,
    )


def _images_of(found: MemoryData, shown: Path | None, folder: Path, paths: bool) -> Path | None:
    """Return the folder that image ids are relative to: the one given, that of the pictures, or the working folder."""
    if found.pictures:
        if shown is not None:
            raise ImageError(
                "the data holds the pictures themselves",
                where=Argument("images", shown),
                remedy=Sentence("leave out {images}", images=Argument("images")),
            )
        return folder / "images"
    return Path.cwd() if shown is None and paths else shown


def _feature_array(features: Any, table: Any) -> Numbers:
    found = numbers_of(features, "features", table)
    array = found.values
    if array.ndim not in (2, 3) or array.dtype.kind not in "fiu":
        raise ArrayError(
            f"features cannot be {array.dtype} {array.shape}",
            where=Argument("features"),
            remedy="give numbers (rows, numbers) or (rows, views, numbers), or the path of a file",
        )
    return found if array.dtype.kind == "f" else replace(found, values=array.astype(np.float32))


def _write_features(place: Path, ids: Sequence[str], numbers: Numbers) -> None:
    array = numbers.values
    if numbers.ids is not None:
        ids = numbers.ids
    elif len(array) != len(ids):
        raise ArrayError(
            f"there are {len(array):,} rows of features for {len(ids):,} images",
            where=Argument("features"),
            remedy="give one row for each row of the table, in its order",
        )
    np.savez(place / "features.npz", images=np.array(ids, dtype=np.str_), features=array)


def _keep_picture(folder: Path, image_id: str, picture: Any) -> None:
    """Write a picture into the folder under its id; bytes of a file stay as they are."""
    pure = PurePosixPath(image_id)
    if pure.is_absolute() or ".." in pure.parts or "\\" in image_id or ":" in image_id:
        raise ImageError(
            "the id of a picture leads out of its folder", where=image_id, remedy="use a plain name as its id"
        )
    named = pure.suffix.lower() in IMAGE_EXTENSIONS
    if isinstance(picture, dict):
        data = picture.get("bytes")
        if data is None and picture.get("path"):
            data = Path(picture["path"]).read_bytes()
        if data is None:
            raise ImageError("has no picture", where=image_id, remedy="remove the row")
        kind = _kind_of_bytes(data)
        if kind is not None:
            file = folder / (image_id if named else image_id + kind)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            return
        raise ImageError(
            "is not an image in a format that can be read", where=image_id, remedy="remove the row"
        )
    save_picture(picture, folder / (image_id if named else image_id + ".png"))


def _kind_of_bytes(data: bytes) -> str | None:
    """Return the extension of an image format that is read, or None."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            name = str(image.format)
    except Exception:  # damage of any kind
        return None
    extension = _EXTENSIONS.get(name, f".{name.lower()}")
    return extension if extension in IMAGE_EXTENSIONS else None


@contextmanager
def _new_folder(folder: Path, force: bool) -> Iterator[Path]:
    """Yield a folder to write data into, which becomes ``folder`` unless that holds the same already.

    A folder of other data is replaced with ``force`` only, and one that no call wrote never.
    """
    if folder.exists() and not (folder / _ABOUT).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(
            "exists, and no call of satl wrote it",
            where=folder,
            remedy=Sentence("move it, or choose another {out}", out=Argument("out")),
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    except OSError as error:
        raise UnwritableError.of(folder, error) from error
    try:
        yield place
        digest = _digest(place)
        (place / _ABOUT).write_text(json.dumps({"digest": digest}) + "\n", encoding="utf-8")
        if _kept_digest(folder) == digest:
            return
        if folder.exists() and any(folder.iterdir()) and not force:
            raise RunError(
                "holds the data of another call",
                where=folder,
                remedy=Sentence(
                    "choose another {out}, or pass {force} to replace it",
                    out=Argument("out"),
                    force=Argument("force", True),
                ),
            )
        place.chmod(0o777 & ~_umask())
        sync(place)
        if folder.exists():
            shutil.rmtree(folder)
        place.replace(folder)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(file.relative_to(folder).as_posix().encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _kept_digest(folder: Path) -> str | None:
    try:
        return str(json.loads((folder / _ABOUT).read_text(encoding="utf-8"))["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_table_path(path: Path) -> bool:
    """Whether a path is a table and not a run; one that does not exist is what its name looks like.

    >>> is_table_path(Path("no such labels.csv")), is_table_path(Path("no such run"))
    (True, False)
    """
    from satl.labels.io.registry import FORMATS

    endings = {ending for format in FORMATS.values() for ending in format.extensions}
    return path.is_file() or (not path.exists() and file_ending(path) in endings)


def free_folder(wanted: Path) -> Path:
    """Return the folder that is wanted, or the next with a number that is free.

    >>> free_folder(Path("no such folder")).name
    'no such folder'
    """
    number, place = 1, wanted
    while place.exists():
        number += 1
        place = wanted.with_name(f"{wanted.name}-{number}")
    return place

"""A folder of features: float16 parts that are mapped into memory, the ids of their rows, and a record about both.

``features.json`` is the record and says that the folder is complete; ``ids.txt`` has an id a line, in the order of the
rows; ``features-00000.npy``, ... are float16 (n, V, D), V views of each picture; ``broken.csv`` lists pictures that
could not be read, where there were any. While a folder is being made, ``_unfinished.json`` stands for the record and
each part has its ids beside it, so that work can be resumed after a kill and ends with the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.checks.plain_files import refuse_endless_files
from satl.errors import Argument, ArrayError, ConfigError, Sentence, TableError, Task
from satl.features.half_arrays import HalfArray, as_half, first_not_finite, map_array, not_finite, unreadable
from satl.files import atomic_path, check_out_folder, is_file_name
from satl.images.broken_list import BROKEN, read_broken, write_broken
from satl.labels.io.wide import unique_images
from satl.parsing import parse_json

RECORD, UNFINISHED, IDS = "features.json", "_unfinished.json", "ids.txt"
FORMAT = 1
PART_ROWS = 4096
"""Rows in a part, unless the writer chooses otherwise."""

Broken = Sequence[tuple[str, str]]
"""Ids of pictures that could not be read, each with the reason."""


@dataclass(frozen=True)
class FeaturePart:
    """A file of a folder: its name, its rows, and the SHA-256 of its bytes."""

    file: str
    rows: int
    sha256: str


@dataclass(frozen=True)
class FeatureFolder:
    """A complete folder of features.

    Attributes:
        path: the folder.
        dim: D, numbers in a vector.
        views: V, vectors of each picture; the first is of the whole picture.
        rows: number of pictures.
        parts: the files, in the order of the rows.
        ids_sha256: of ``ids.txt``.
        made_by: what made the features, such as the network and its preprocessing: plain data, free in form.
    """

    path: Path
    dim: int
    views: int
    rows: int
    parts: tuple[FeaturePart, ...]
    ids_sha256: str
    made_by: Mapping[str, Any]

    @staticmethod
    def is_one(path: Path) -> bool:
        """Whether a path is a folder of features, complete or not."""
        return (path / RECORD).is_file() or (path / UNFINISHED).is_file()

    @classmethod
    def open(cls, path: str | Path) -> FeatureFolder:
        """Open a folder: its record, and whether every part is there with the shape that the record says.

        Raises:
            TableError: it is not complete, or a file is missing, damaged or of another folder.
        """
        path = Path(path)
        if not (path / RECORD).is_file():
            if (path / UNFINISHED).is_file():
                raise TableError(
                    "the features are not complete",
                    where=path,
                    remedy=Sentence("run the same {embed} again to resume", embed=Task("embed")),
                )
            raise TableError(f"holds no {RECORD}, so it is no folder of features", where=path)
        refuse_endless_files(path, TableError, "make the features again in another folder")
        content = _read_json(path / RECORD)
        try:
            if content["format"] != FORMAT:
                raise TableError(
                    f"has the format {content['format']!r}, and this version reads {FORMAT}",
                    where=path / RECORD,
                    remedy="read it with the version of satl that wrote it, or make the features again",
                )
            folder = cls(
                path=path,
                dim=int(content["dim"]),
                views=int(content["views"]),
                rows=int(content["rows"]),
                parts=tuple(
                    FeaturePart(str(one["file"]), int(one["rows"]), str(one["sha256"]))
                    for one in content["parts"]
                ),
                ids_sha256=str(content["ids_sha256"]),
                made_by=dict(content["made_by"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError):
            raise unreadable(path / RECORD, "is not the record of a folder of features") from None
        if sum(part.rows for part in folder.parts) != folder.rows or min(folder.dim, folder.views) < 1:
            raise unreadable(path / RECORD, "contradicts itself")
        if not all(is_file_name(part.file) for part in folder.parts):
            raise unreadable(path / RECORD, "names a file that is not in its folder")
        for _ in folder.arrays():
            pass
        return folder

    @classmethod
    def write(
        cls,
        path: str | Path,
        ids: Sequence[str],
        features: npt.NDArray[Any],
        made_by: Mapping[str, Any] | None = None,
        *,
        part_rows: int = PART_ROWS,
        force: bool = False,
    ) -> FeatureFolder:
        """Write features that are in memory, (N, D) or (N, V, D), as a folder; see :class:`FeatureWriter`."""
        views, dim = features.shape[1:] if features.ndim == 3 else (1, features.shape[-1])
        unique_images(tuple(ids), Path(path))
        writer = FeatureWriter(path, ids, dim, views, made_by or {}, part_rows=part_rows, force=force)
        for number in writer.missing():
            begin = number * part_rows
            end = begin + part_rows
            writer.write_part(number, ids[begin:end], features[begin:end])
        return writer.finish()

    def read_ids(self) -> tuple[str, ...]:
        """Return the id of every row.

        Raises:
            TableError: the list of ids was changed.
        """
        try:
            content = (self.path / IDS).read_bytes()
        except OSError as error:
            raise unreadable(self.path / IDS, f"cannot be read ({error.strerror or error})") from None
        if hashlib.sha256(content).hexdigest() != self.ids_sha256:
            raise unreadable(self.path / IDS, "is not the list of ids that the record is about")
        try:
            return tuple(content.decode("utf-8").splitlines())
        except UnicodeDecodeError:
            raise unreadable(self.path / IDS, "is not UTF-8 text") from None

    @staticmethod
    def read_broken(path: str | Path) -> dict[str, str]:
        """Return the pictures of a folder that could not be read, with the reason; none for any other path."""
        if not FeatureFolder.is_one(Path(path)):
            return {}
        return {row["image"]: row["reason"] for row in read_broken(Path(path) / BROKEN)}

    def arrays(self) -> Iterator[HalfArray]:
        """Yield each part, float16 (n, V, D), mapped into memory.

        Raises:
            TableError: a part is missing, or has another shape than the record says.
        """
        for part in self.parts:
            file = self.path / part.file
            array = map_array(file)
            expected = (part.rows, self.views, self.dim)
            if array.dtype != np.float16 or array.shape != expected:
                raise unreadable(
                    file, f"is {array.dtype} {array.shape}, but the record says float16 {expected}"
                )
            yield array

    def verify(self) -> None:
        """Compare every part with its checksum, which reads all of them.

        Raises:
            TableError: names the first part that was changed.
        """
        for part in self.parts:
            if _digest_of(self.path / part.file) != part.sha256:
                raise unreadable(
                    self.path / part.file, "was changed since it was written: its checksum differs"
                )


class FeatureWriter:
    """Makes a folder of features part by part, and goes on where another process was stopped.

    Args:
        path: the folder; it is made, or holds what an earlier process with the same arguments left.
        ids: of all pictures, in their order.
        dim: D, numbers in a vector.
        views: V, vectors of each picture.
        made_by: what makes the features; plain data, compared when work is resumed.
        part_rows: pictures in a part.
        force: replace a folder of features that is there.

    Raises:
        ConfigError: the folder holds something else, or cannot be written.

    >>> import tempfile
    >>> writer = FeatureWriter(tempfile.mkdtemp(), ["a", "b", "c"], dim=2, views=1, made_by={}, part_rows=2)
    >>> writer.write_part(1, ["c"], np.ones((1, 1, 2)))
    >>> writer.missing(), writer.ids_of(0)
    ([0], ('a', 'b'))
    >>> writer.write_part(0, ["a"], np.zeros((1, 1, 2)), broken=[("b", "is no picture")])
    >>> writer.finish().read_ids()
    ('a', 'c')
    """

    def __init__(
        self,
        path: str | Path,
        ids: Sequence[str],
        dim: int,
        views: int,
        made_by: Mapping[str, Any],
        *,
        part_rows: int = PART_ROWS,
        force: bool = False,
    ) -> None:
        self.path = Path(path)
        self.ids, self.dim, self.views, self.made_by = tuple(ids), dim, views, dict(made_by)
        if min(dim, views, part_rows, len(self.ids)) < 1:
            raise ArrayError("features need at least one row, one view and one number.")
        for name in self.ids:
            if name.splitlines() != [name]:
                raise TableError(f"the id {name!r} is no single line", where=self.path, remedy="rename it")
        self.part_rows = part_rows
        self.num_parts = -(-len(self.ids) // part_rows)
        self.content: dict[str, Any] = {
            "format": FORMAT,
            "dim": dim,
            "views": views,
            "part_rows": part_rows,
            "ids": hashlib.sha256("\0".join(self.ids).encode()).hexdigest(),
            "made_by": json.loads(json.dumps(self.made_by)),  # as it is read back: a tuple is a list there
        }
        self._begin(force)

    @property
    def finished(self) -> bool:
        """Whether the folder is complete."""
        return (self.path / RECORD).is_file()

    def ids_of(self, number: int) -> tuple[str, ...]:
        """Return the ids of the pictures of a part."""
        return self.ids[number * self.part_rows : (number + 1) * self.part_rows]

    def missing(self) -> list[int]:
        """Return the numbers of the parts that are still to be made."""
        if self.finished:
            return []
        return [number for number in range(self.num_parts) if not self._list(number).is_file()]

    def broken(self) -> list[tuple[str, str]]:
        """Return the pictures that could not be read so far, each with the reason, and list them in a file."""
        if self.finished:
            return list(FeatureFolder.read_broken(self.path).items())
        made = set(range(self.num_parts)) - set(self.missing())
        found = [
            (str(one[0]), str(one[1]))
            for number in sorted(made)
            for one in _read_listing(self._list(number))["broken"]
        ]
        write_broken(self.path / BROKEN, found)
        return found

    def forget_broken(self) -> None:
        """Have parts made again in which a picture could not be read: it may have been replaced."""
        for number in range(self.num_parts):
            listing = self._list(number)
            if listing.is_file() and _read_listing(listing)["broken"]:
                listing.unlink()

    def write_part(
        self, number: int, ids: Sequence[str], features: npt.NDArray[Any], broken: Broken = ()
    ) -> None:
        """Write a part; it counts only when both its files are complete.

        Args:
            number: of the part.
            ids: of the pictures that could be read.
            features: (n, V, D), or (n, D) for one view; kept as float16.
            broken: the other pictures of the part.

        Raises:
            ArrayError: the shape is another one, or a number is not finite in half precision.
        """
        found = np.asarray(features)
        found = found[:, None] if found.ndim == 2 else found
        if found.shape != (len(ids), self.views, self.dim):
            raise ArrayError(
                f"features of {len(ids)} rows, {self.views} views and {self.dim} numbers have the shape {found.shape}."
            )
        half = as_half(found)
        wrong = first_not_finite(half)
        if wrong is not None:
            raise not_finite(self.path, ids[wrong], wrong, found[wrong])
        stream = io.BytesIO()
        np.lib.format.write_array(stream, half, version=(1, 0), allow_pickle=False)
        content = stream.getvalue()
        with atomic_path(self._array(number)) as temporary:
            temporary.write_bytes(content)
        listing = {"ids": list(ids), "broken": [list(one) for one in broken], "sha256": _digest(content)}
        _write_json(self._list(number), listing)

    def finish(self) -> FeatureFolder:
        """Write the record once all parts are there, and return the folder.

        Raises:
            TableError: no picture could be read.
        """
        if self.finished:
            return self._cleared()
        lists = [_read_listing(self._list(number)) for number in range(self.num_parts)]
        ids = [str(name) for one in lists for name in one["ids"]]
        if not ids:
            raise TableError("none of the pictures could be read", where=self.path / BROKEN)
        text = "".join(f"{name}\n" for name in ids).encode("utf-8")
        parts = tuple(
            FeaturePart(self._array(number).name, len(one["ids"]), str(one["sha256"]))
            for number, one in enumerate(lists)
            if one["ids"]
        )
        broken = [(str(image), str(why)) for listing in lists for image, why in listing["broken"]]
        with atomic_path(self.path / IDS) as temporary:
            temporary.write_bytes(text)
        write_broken(self.path / BROKEN, broken)
        _write_json(
            self.path / RECORD,
            {
                "format": FORMAT,
                "rows": len(ids),
                "views": self.views,
                "dim": self.dim,
                "ids_sha256": _digest(text),
                "parts": [asdict(part) for part in parts],
                "made_by": self.made_by,
                "plan": {key: self.content[key] for key in ("part_rows", "ids")},
            },
            indent=1,
        )
        return self._cleared()

    def _cleared(self) -> FeatureFolder:
        """Return the complete folder without what only the work needed: from the record on, only that counts."""
        folder = FeatureFolder.open(self.path)
        kept = {part.file for part in folder.parts}
        for number in range(self.num_parts):
            self._list(number).unlink(missing_ok=True)
            if self._array(number).name not in kept:
                self._array(number).unlink(missing_ok=True)
        (self.path / UNFINISHED).unlink(missing_ok=True)
        return folder

    def _begin(self, force: bool) -> None:
        """Make the folder, or check that what is in it is a part of this work."""
        check_out_folder(self.path)
        out = Argument("out", self.path)
        if FeatureFolder.is_one(self.path):
            if not force:
                self._require_same(out)
                return
            # Says nothing about the files, and that they are ours to whoever comes after a kill.
            _write_json(self.path / UNFINISHED, {})
            for file in (
                self.path / RECORD,
                *self.path.glob("features-*.npy"),
                *self.path.glob("features-*.json"),
                self.path / IDS,
                self.path / BROKEN,
            ):
                file.unlink(missing_ok=True)
        # Hidden ones are of the file system, or of a process that was killed while it wrote.
        own = (".", UNFINISHED)
        if self.path.is_dir() and any(not file.name.startswith(own) for file in self.path.iterdir()):
            raise ConfigError("has other files in it", where=out, remedy="give a new folder")
        _write_json(self.path / UNFINISHED, self.content)

    def _require_same(self, out: Argument) -> None:
        found = _read_json(self.path / (RECORD if self.finished else UNFINISHED))
        found |= plan if isinstance(plan := found.get("plan"), dict) else {}
        for key, difference in (
            ("made_by", "made in another way"),
            ("ids", "of other pictures"),
            ("dim", "of another size"),
            ("views", "with another number of views"),
            ("part_rows", "in parts of another size"),
            ("format", "of another version of satl"),
        ):
            if found.get(key) != self.content[key]:
                raise ConfigError(
                    f"holds features {difference}",
                    where=out,
                    remedy=Sentence(
                        "give another folder, or pass {force} to replace them", force=Argument("force", True)
                    ),
                )

    def _array(self, number: int) -> Path:
        return self.path / f"features-{number:05d}.npy"

    def _list(self, number: int) -> Path:
        return self.path / f"features-{number:05d}.json"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _digest_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict):
        raise unreadable(file, "cannot be read")
    return content


def _read_listing(file: Path) -> dict[str, Any]:
    content = _read_json(file)
    kinds = [type(content.get(key)) for key in ("ids", "broken", "sha256")]
    if kinds != [list, list, str] or any(type(one) is not list or len(one) != 2 for one in content["broken"]):
        raise unreadable(file, "is not the list of a part")
    return content


def _write_json(file: Path, content: Mapping[str, Any], indent: int | None = None) -> None:
    with atomic_path(file) as temporary:
        text = json.dumps(content, ensure_ascii=False, sort_keys=True, indent=indent)
        temporary.write_text(text + "\n", encoding="utf-8")

"""``changes.csv``: one row for every cell that was filled or is proposed, written fast and read in blocks."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from satl.errors import RunError, Sentence, Task, first_line
from satl.labels import LabelTable
from satl.labels.bands import BANDS
from satl.labels.cells import IntArray, NameIndex
from satl.labels.io.text_files import csv_field

COLUMNS = ("image", "label", "value", "score", "threshold", "band", "source", "precision_lower_bound")
HEADER = (",".join(COLUMNS) + "\n").encode()
COMPLETE_AGAIN = Sentence("write the folder again with {complete}", complete=Task("complete"))

_ROWS_AT_ONCE = 65_536
_MARKS = ',"\r'
_MILLION = 1_000_000
# From here on a double has no six decimals left, and the digits are written one by one.
_LARGE = 1e9


class Group(NamedTuple):
    """Rows of ``changes.csv`` that share everything but image and score.

    Attributes:
        rows: (K,) rows of the table, in the order in which they are written.
        scores: (K,) their scores, finite.
    """

    label: str
    value: int
    rows: IntArray
    scores: npt.NDArray[np.floating[Any]]
    threshold: float | None
    band: str
    source: str
    bound: float | None


class ChangeFormat:
    """Turns groups of changes into bytes of CSV; it may be shared by threads.

    Every field takes the same width in all rows of a block and is filled up with NUL bytes, which no name may
    contain, and which are dropped at the end. So nothing is done row by row.
    """

    def __init__(self, images: Sequence[str]) -> None:
        text = "\n".join(images)
        plain = not any(mark in text for mark in _MARKS)
        self.images = np.array(
            text.encode().split(b"\n") if plain else [csv_field(name).encode() for name in images]
        )
        self.same_width = bool((np.char.str_len(self.images) == self.images.dtype.itemsize).all())

    def blocks(self, group: Group) -> Iterator[bytes]:
        """Yield the rows of a group.

        >>> group = Group("cat, big", 1, np.array([1, 0]), np.array([0.98, 0.975]), 0.97, "accepted", "model", 0.95)
        >>> print(b"".join(ChangeFormat(("a.jpg", "longer.jpg")).blocks(group)).decode())
        longer.jpg,"cat, big",1,0.980000,0.970000,accepted,model,0.95
        a.jpg,"cat, big",1,0.975000,0.970000,accepted,model,0.95
        <BLANKLINE>
        """
        head = b"," + csv_field(group.label).encode() + b",%d," % group.value
        threshold = "" if group.threshold is None else f"{group.threshold:.6f}"
        bound = "" if group.bound is None else repr(float(group.bound))
        tail = f",{threshold},{group.band},{group.source},{bound}\n".encode()
        for first in range(0, len(group.rows), _ROWS_AT_ONCE):
            rows = group.rows[first : first + _ROWS_AT_ONCE]
            whole, decimals = _digits(group.scores[first : first + _ROWS_AT_ONCE])
            fields = (self.images, head, whole, decimals, tail)
            widths = [f"S{len(part) if isinstance(part, bytes) else part.dtype.itemsize}" for part in fields]
            block = np.empty(len(rows), dtype=[(str(i), width) for i, width in enumerate(widths)])
            block["0"] = self.images[rows]
            for name, part in zip("1234", fields[1:], strict=True):
                block[name] = part
            data = block.tobytes()
            filled = self.same_width and isinstance(whole, bytes)
            yield data if filled else data.translate(None, b"\0")


def _digits(scores: npt.NDArray[np.floating[Any]]) -> tuple[Any, Any]:
    """Return the texts before and after the decimal point, six decimals; one text where all rows share it."""
    exact = scores.astype(np.float64)
    if len(exact) and float(np.abs(exact).max()) >= _LARGE:
        return np.array([f"{value:.6f}".encode() for value in exact.tolist()]), b""
    millionths = np.rint(exact * _MILLION).astype(np.int64)
    size = np.abs(millionths)
    whole, part = np.divmod(size, _MILLION)
    key = np.where(millionths < 0, -whole - 1, whole)  # -1 stands for "-0"
    # Rows come sorted, so equal texts lie together.
    starts = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
    texts = [_whole(int(key[start])) for start in starts]
    if len(texts) == 1:
        return texts[0], _decimals()[part]
    return np.repeat(np.array(texts), np.diff(np.append(starts, len(key)))), _decimals()[part]


def _whole(key: int) -> bytes:
    return b"%d" % key if key >= 0 else b"-%d" % (-key - 1)


@lru_cache(maxsize=1)
def _decimals() -> npt.NDArray[np.bytes_]:
    """``.000000`` to ``.999999``: looking a text up is faster than making it."""
    digits = np.arange(_MILLION)[:, np.newaxis] // 10 ** np.arange(5, -1, -1) % 10
    text = np.full((_MILLION, 7), ord("."), dtype=np.uint8)
    text[:, 1:] = digits + ord("0")
    return text.reshape(-1).view("S7")


class ChangeBlock(NamedTuple):
    """Some rows of ``changes.csv`` as arrays (K,); NaN for an empty number.

    Attributes:
        start: number of the first of them in the file, from 0.
        row, column: where the cells are in the table.
        value: +1 present, -1 absent; what was accepted or is proposed.
        score: of the class being present, finite.
        threshold, bound: NaN where there is no certificate.
        band: positions in :data:`satl.labels.bands.BANDS`.
        source: ``certificate``, ``model`` or ``label-error``.
    """

    start: int
    row: IntArray
    column: IntArray
    value: npt.NDArray[np.int8]
    score: npt.NDArray[np.float64]
    threshold: npt.NDArray[np.float64]
    band: npt.NDArray[np.int8]
    source: npt.NDArray[np.object_]
    bound: npt.NDArray[np.float64]


def read_changes(path: str | Path, table: LabelTable) -> Iterator[ChangeBlock]:
    """Yield the rows of ``changes.csv`` in blocks, however many there are.

    Args:
        path: the file.
        table: the table before the completion, which all of its cells belong to.

    Raises:
        RunError: the file cannot be read, or a row is wrong.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "changes.csv"
    >>> _ = file.write_bytes(HEADER + b"b.jpg,cat,1,0.912000,,review,model,\\n")
    >>> table = LabelTable(("a.jpg", "b.jpg"), ("cat",), np.zeros((2, 1)), encoding="signed")
    >>> [(block.row.tolist(), block.band.tolist(), block.bound.tolist()) for block in read_changes(file, table)]
    [([1], [1], [nan])]
    """
    import pyarrow as pa
    import pyarrow.csv

    file = Path(path)
    number = pa.float64()
    words = pa.dictionary(pa.int32(), pa.string())
    kinds = (words, words, pa.int8(), number, number, words, words, number)
    bands = NameIndex(BANDS)
    start = 0
    try:
        with file.open("rb") as stream:
            if stream.readline() != HEADER:
                raise RunError(f"its header is not '{','.join(COLUMNS)}'", where=file, remedy=COMPLETE_AGAIN)
            if not stream.read(1):
                return
        options = pyarrow.csv.ConvertOptions(column_types=dict(zip(COLUMNS, kinds, strict=True)))
        reading = pyarrow.csv.ReadOptions(block_size=8 << 20, use_threads=False)
        with pyarrow.csv.open_csv(file, read_options=reading, convert_options=options) as reader:
            for batch in reader:
                image, label, value, score, threshold, band, source, bound = batch.columns
                block = ChangeBlock(
                    start=start,
                    row=_positions(image, table.index.images),
                    column=_positions(label, table.index.classes),
                    value=value.fill_null(0).to_numpy(zero_copy_only=False),
                    score=score.to_numpy(zero_copy_only=False),
                    threshold=threshold.to_numpy(zero_copy_only=False),
                    band=_positions(band, bands).astype(np.int8),
                    source=source.dictionary_decode().to_numpy(zero_copy_only=False),
                    bound=bound.to_numpy(zero_copy_only=False),
                )
                right = (block.row >= 0) & (block.column >= 0) & (block.band >= 0)
                right &= (np.abs(block.value) == 1) & np.isfinite(block.score)
                if not right.all():
                    _explain(file, table)
                yield block
                start += len(block.row)
    except (pa.ArrowInvalid, OSError) as error:
        _explain(file, table)
        raise RunError(f"cannot be read ({first_line(error)})", where=file, remedy=COMPLETE_AGAIN) from None


def _positions(column: Any, index: NameIndex) -> IntArray:
    """Return the positions of names in a dictionary column; -1 for one that is not there.

    Repeated names are looked up once: the words of the dictionary, not the rows.
    """
    found = index.find(["" if name is None else name for name in column.dictionary.to_pylist()])
    return np.append(found, -1)[column.indices.fill_null(-1).to_numpy(zero_copy_only=False)]


def _explain(file: Path, table: LabelTable) -> None:
    """Find the first row that is wrong; slow and exact, for a file that is known to be wrong."""
    with file.open(encoding="utf-8", newline="") as stream:
        rows = csv.reader(stream, strict=True)
        try:
            next(rows)
            for number, row in enumerate(rows, start=1):
                problem = _problem(row, table)
                if problem is not None:
                    raise RunError(f"row {number}{problem}", where=file, remedy=COMPLETE_AGAIN)
        except (csv.Error, UnicodeDecodeError) as error:
            raise RunError(f"cannot be read as CSV ({error})", where=file, remedy=COMPLETE_AGAIN) from None


def _problem(row: list[str], table: LabelTable) -> str | None:
    if len(row) != len(COLUMNS):
        return f" has {len(row)} columns, not {len(COLUMNS)}"
    image, label, value, score, threshold, band, _, bound = row
    place = f" (image {image!r}, class {label!r}): "
    if value not in ("1", "-1"):
        return f"{place}value {value!r} is not 1 or -1"
    if band not in BANDS:
        return f"{place}band {band!r} is none of {', '.join(BANDS)}"
    for name, text in (("score", score), ("threshold", threshold or "0"), ("bound", bound or "0")):
        try:
            finite = math.isfinite(float(text))
        except ValueError:
            finite = False
        if not finite:
            return f"{place}{name} {text!r} is not a number"
    if table.index.images.position(image) < 0:
        return f": the labels.npz beside it has no image {image!r}"
    if table.index.classes.position(label) < 0:
        return f": the labels.npz beside it has no class {label!r}"
    return None

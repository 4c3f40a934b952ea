"""The values of a file, read by a named encoding (:mod:`satl.checks.label_meanings`), and a refusal to guess one.

A file is read without a named encoding only where its values leave a single reading (:func:`detect_encoding`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from satl.checks.label_meanings import (
    ABSENT_WORDS,
    BLANK,
    ENCODINGS,
    PRESENT_WORDS,
    UNKNOWN,
    UNKNOWN_WORDS,
    Encoding,
    describe_counts,
    find_encoding,
    pass_encoding,
    readings,
    refusal,
)
from satl.errors import Argument, EncodingError, Sentence, TableError
from satl.labels.table import Cells

__all__ = [
    "BLANK",
    "ENCODINGS",
    "NOT_A_LABEL",
    "VALUES",
    "Encoding",
    "array_codes",
    "decode",
    "default_encoding",
    "describe_counts",
    "detect_encoding",
    "find_encoding",
    "only_values",
    "pass_encoding",
    "readings",
    "refuse_encoding",
    "require_writable",
    "value_code",
    "value_counts",
]

_BLANK_WORDS = frozenset({"", "nan", "-nan", "na", "n/a", "#n/a", "<na>", "null"})
# A boolean says as little about "unknown" as 1 and 0 do, so it is treated as them.
_BOOLEANS = {"true": "1", "false": "0"}

VALUES: tuple[str, ...] = (BLANK, "1", "0", "-1", *PRESENT_WORDS, *ABSENT_WORDS, *UNKNOWN_WORDS)
"""Every value that some encoding reads, in its plain form; readers code cells as positions in it."""

_CODES = {value: code for code, value in enumerate(VALUES)}
NOT_A_LABEL = 255
"""The code of a value that no encoding reads."""


def refuse_encoding(encoding: str | None, why: str, where: str | os.PathLike[str] | None = None) -> None:
    """Raise where an encoding is given for a format that needs none.

    Args:
        encoding: its name, or None.
        why: what the format does instead, such as "lists annotations".
        where: the file.
    """
    if encoding is not None:
        raise EncodingError(
            f"{why}, so encoding '{encoding}' does not apply",
            where=where,
            remedy=Sentence("leave out {encoding}", encoding=Argument("encoding")),
        )


@lru_cache(maxsize=4096)
def value_code(value: str) -> int:
    """Return the code (position in ``VALUES``) of a value as written in a file, or ``NOT_A_LABEL``.

    Case, surrounding white space and the ways to write a number or a gap do not matter.

    >>> [VALUES[value_code(v)] for v in ("1.0", " -1", "Yes", "NaN", "False")]
    ['1', '-1', 'yes', '', '0']
    >>> value_code("2") == NOT_A_LABEL
    True
    """
    plain = value.strip().lower()
    if plain in _BLANK_WORDS:
        return _CODES[BLANK]
    plain = _BOOLEANS.get(plain, plain)
    if plain not in _CODES:
        try:
            number = float(plain)
        except ValueError:
            return NOT_A_LABEL
        plain = str(int(number)) if number in (-1, 0, 1) else plain
    return _CODES.get(plain, NOT_A_LABEL)


def only_values(texts: Iterable[str]) -> bool:
    """Whether all texts are values that some encoding reads, so that none is certainly a name."""
    return all(value_code(text) != NOT_A_LABEL for text in texts)


def array_codes(values: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    """Return the code of every entry of a number, bool or text array; same shape, uint8."""
    if values.dtype.kind == "U":
        words, inverse = np.unique(values, return_inverse=True)
        codes = np.array([value_code(str(word)) for word in words.tolist()], dtype=np.uint8)
        return codes[inverse].reshape(values.shape)
    out = np.full(values.shape, NOT_A_LABEL, dtype=np.uint8)
    for value in ("1", "0", "-1"):
        if value != "-1" or values.dtype.kind in "if":
            out[values == int(value)] = _CODES[value]
    if values.dtype.kind == "f":
        out[np.isnan(values)] = _CODES[BLANK]
    return out


def value_counts(codes: npt.NDArray[np.uint8]) -> dict[str, int]:
    """Count the values of a coded array, most frequent first; a blank is counted under ``""``."""
    counts = np.zeros(256, dtype=np.int64)
    # Row by row: bincount would widen the whole table to 8 bytes a cell.
    for part in np.array_split(codes.ravel(), max(1, codes.size // 4_000_000)):
        counts += np.bincount(part, minlength=256)
    seen = [(VALUES[i], int(counts[i])) for i in range(len(VALUES)) if counts[i]]
    return dict(sorted(seen, key=lambda item: -item[1]))


def detect_encoding(counts: Mapping[str, int], where: str = "the table") -> Encoding:
    """Return the one encoding that the values seen allow, or refuse with the choices.

    Args:
        counts: plain value -> number of cells, as from :func:`value_counts`.

    Decided: words, and 1 / 0 / blank. A ``0`` counts as absent only beside blanks (or the word
    "unknown"), which show that "unknown" is written in another way. Refused: ``0`` without them, and
    every table with a ``-1``.

    >>> detect_encoding({"1": 3, "0": 9, "": 30}).name
    'blank'
    >>> detect_encoding({"yes": 3, "no": 9}).name
    'words'
    >>> detect_encoding({"1": 3, "0": 9}, "pets.csv")
    Traceback (most recent call last):
    satl.errors.EncodingError: pets.csv: can be read in 2 ways (1 in 3 cells, 0 in 9 cells); pass encoding=...
    """
    seen = set(counts)
    unknown_marked = BLANK in seen or not seen.isdisjoint(UNKNOWN_WORDS)
    if "-1" not in seen and ("0" not in seen or unknown_marked):
        return ENCODINGS["blank" if seen <= set(ENCODINGS["blank"].reads) else "words"]
    raise refusal(counts, where, EncodingError)


def decode(codes: npt.NDArray[np.uint8], reads: Mapping[str, int]) -> Cells:
    """Turn codes into int8 states of the same shape; 2 marks what is not in ``reads`` (plain value -> state)."""
    lookup = np.full(256, 2, dtype=np.int8)
    for value, state in reads.items():
        lookup[_CODES[value]] = state
    return lookup[codes]


def default_encoding(cells: Cells) -> Encoding:
    """Return the encoding in which a text file of these cells reads back without an option.

    That is ``blank``, except where nothing is unknown: 1 and 0 alone are ambiguous, so ``words``.
    """
    return ENCODINGS["blank" if bool((cells == UNKNOWN).any()) else "words"]


def require_writable(cells: Cells, encoding: Encoding) -> None:
    """Raise where ``encoding`` cannot express some cell."""
    if UNKNOWN not in encoding.writes:
        unknown = int((cells == UNKNOWN).sum())
        if unknown:
            raise TableError(
                f"the table does not fit encoding '{encoding.name}' ({encoding.summary}) because "
                f"{unknown:,} cells are unknown",
                remedy="choose encoding 'blank'",
            )

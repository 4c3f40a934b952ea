"""Text files as people and archives make them: byte order marks, CRLF, blank lines, missing last line end."""

from __future__ import annotations

import re
from pathlib import Path

from satl.errors import TableError

BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile("\r\n|\n|\r")
_OTHER_KINDS = {
    b"PAR1": "a Parquet file",
    b"PK\x03\x04": "a zip or Excel file",
    b"\x1f\x8b": "a gzip file",
    b"BZh": "a bzip2 file",
}


def csv_field(text: str, separators: str = ",") -> str:
    """Return a field as CSV writes it: in quotes where it holds a quote, a separator or a line end.

    >>> csv_field("cat"), csv_field('a "b", c'), csv_field("a;b", ",;")
    ('cat', '"a ""b"", c"', '"a;b"')
    """
    if any(mark in text for mark in ('"', "\r", "\n", *separators)):
        return '"' + text.replace('"', '""') + '"'
    return text


def unreadable(path: str | Path, error: OSError) -> TableError:
    """Return the error of a file that the system does not let us read."""
    return TableError(
        f"cannot be read ({error.strerror or error})", where=path, remedy="check its permissions"
    )


def check_text(data: bytes, path: Path, kind: str) -> None:
    """Refuse what is not UTF-8 text, and name its kind if it can be recognised; ``kind`` is "CSV" or "JSON"."""
    check_start(data[:64], path, kind)
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TableError(
            f"{path}: line {line} is not UTF-8 text (byte 0x{data[error.start]:02x}): save the file as UTF-8."
        ) from None


def check_start(start: bytes, path: Path, kind: str) -> None:
    """Refuse by the first bytes what is an archive, a web page or text in another encoding."""
    for magic, other in _OTHER_KINDS.items():
        if start.startswith(magic):
            known = kind == "CSV" and other in ("a Parquet file", "a zip or Excel file")
            remedy = "give it its right extension or save it as CSV" if known else "unpack it first"
            raise TableError(f"{path} is {other}, not {kind}: {remedy}.")
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise TableError(f"{path} is UTF-16 text: save it as UTF-8.")
    if start.removeprefix(BOM).lstrip()[:1] == b"<" and kind in ("CSV", "JSON"):
        raise TableError(f"{path} is a web page or XML, not {kind}: download the file itself again.")


def read_lines(path: Path) -> list[tuple[int, str]]:
    """Return (number, text) of every line that is not blank; numbers count from 1, text is stripped.

    CRLF, a byte order mark and a last line without an end are all fine.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "list.txt"
    >>> _ = file.write_bytes(b"a.jpg\\r\\n\\r\\nb.jpg")
    >>> read_lines(file)
    [(1, 'a.jpg'), (3, 'b.jpg')]
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
    check_text(data, path, "a text list")
    lines = _LINE_END.split(data.removeprefix(BOM).decode("utf-8"))
    found = [(number, line.strip()) for number, line in enumerate(lines, start=1) if line.strip()]
    if not found:
        raise TableError(f"{path} is empty: download it again, or write one line per image.")
    return found

"""Make an input of a valid one: damage to its bytes, and changes that keep its structure.

An input is a function of the random numbers alone, so that a seed and a number name it for ever.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

Mutator = Callable[[Random, bytes], bytes]

LARGEST = 60_000
"""Bytes of an input: more would only be slow."""
DIGITS = "9" * 5000
NUMBERS = (
    *("0", "-1", "1e999", "-0.0", "NaN", "-Infinity", "1e-400", "0x1F", "1_000", "007", "1:30", "\u0663"),
    *(str(2**31), str(2**63), str(-(2**63) - 1), str(2**64), str(10**12), "1" + "0" * 400, DIGITS),
)
TOKENS = (
    *(
        b'"',
        b"'",
        b"\\",
        b",",
        b";",
        b"\t",
        b"\n",
        b"\r\n",
        b"\r",
        b"|",
        b"[",
        b"]",
        b"{",
        b"}",
        b":",
        b"=",
        b"&",
    ),
    *(
        b"\0",
        b"\x1a",
        b"\x7f",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xc0\x80",
        b"\xef\xbb\xbf",
        b"\xe2\x80\xa8",
        b"\xc2\x85",
    ),
    *(
        b'""',
        b"null",
        b"true",
        b"None",
        b"nan",
        b"-",
        b"1",
        b"0",
        b"1.0",
        b"?",
        b"2020-13-45",
        b"!!python/name:os ",
    ),
    *(
        b"*a",
        b"&a",
        b"<<: *a",
        b"---\n",
        b"<!ENTITY a 'b'>",
        b"&a;",
        b"]]>",
        b"<a>",
        b"</a>",
        b"..",
        b"../x",
        b"/",
    ),
    *(b"\\ud800", b"\\u0000", b"=1+1", b"image", b"split", b"label", b"value", b"labels", b"truth", b"score"),
)
TEXT_CODES = ("utf-16", "utf-32", "utf-7", "latin-1", "utf-8-sig", "cp037")
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 0.5, -0.0, float("nan"), float("inf"), 2**31, 2**63, 10**12, -(10**30)),
    *(
        "",
        " ",
        "a",
        "\ud800",
        "\0",
        "image",
        "=1",
        "2020-13-45",
        "1",
        "0.5",
        "x" * 300,
        "../../etc",
        "é\u2028",
    ),
    *([], {}, [[]], [None], {"": None}, [1, "a"], {"name": "a"}, [[1, 2], [3]], {"id": 1}),
)
KINDS = (
    *(
        "|i1",
        "<i8",
        "<u8",
        "<f4",
        "<f8",
        "<f2",
        "|b1",
        "<U3",
        "|S3",
        "<U0",
        "|V0",
        "<c16",
        "<M8[ns]",
        "|O",
        "|Q9",
    ),
    *(">i8", "<U100000000", "|V8", "<m8[s]"),
)
SHAPES = (
    *(
        "()",
        "(0,)",
        "(2,)",
        "(-1,)",
        "(2, 2)",
        "(3, 2)",
        "(0, 2)",
        "(2, 0)",
        "(2, 2, 2)",
        "(130000, 130000)",
        "2",
    ),
    *(
        "(1000000000000, 1000000000000)",
        "('a',)",
        "(True, 2)",
        "(2.0,)",
        "[2]",
        "(" * 90,
        f"({DIGITS},)",
        "None",
    ),
)
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")


def mutated(random: Random, seeds: Sequence[bytes], kind: str, tokens: Sequence[bytes] = ()) -> bytes:
    """Return one input made of one or two of ``seeds``, which are of this kind; ``tokens`` are of the target."""
    data = random.choice(seeds)
    if random.random() < 0.01:
        return data
    structured = _STRUCTURED.get(kind)
    if structured is not None and random.random() < 0.6:
        data = structured(random, data)
        if random.random() < 0.7:
            return data[:LARGEST]
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        data = random.choice(_OF_TEXT if kind in TEXT_KINDS else _OF_BYTES)(random, data)
        if random.random() < 0.2:
            data = _insert(random, data, random.choice(tuple(tokens) or TOKENS))
        if random.random() < 0.03:
            data = _splice(random, data, random.choice(seeds))
    return data[:LARGEST]


# ------------------------------------------------------------------------------------------------ any bytes


def _place(random: Random, data: bytes) -> int:
    """Return a place in the data, more often near its end or beginning, where headers and footers are."""
    if not data:
        return 0
    if random.random() < 0.3:
        near = random.randrange(min(64, len(data)))
        return near if random.random() < 0.5 else len(data) - 1 - near
    return random.randrange(len(data))


def _set_byte(random: Random, data: bytes) -> bytes:
    at = _place(random, data)
    return (
        data[:at] + bytes([random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))]) + data[at + 1 :]
    )


def _flip_bit(random: Random, data: bytes) -> bytes:
    if not data:
        return b"\1"
    at = _place(random, data)
    return data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]


def _cut(random: Random, data: bytes) -> bytes:
    return data[: _place(random, data)]


def _delete(random: Random, data: bytes) -> bytes:
    at = _place(random, data)
    return data[:at] + data[at + random.choice((1, 1, 2, 4, 8, 64)) :]


def _double(random: Random, data: bytes) -> bytes:
    at = _place(random, data)
    part = data[at : at + random.choice((1, 4, 16, 128))]
    return data[:at] + part * random.choice((2, 2, 3, 50)) + data[at:]


def _insert_random(random: Random, data: bytes) -> bytes:
    return _insert(random, data, random.randbytes(random.choice((1, 2, 4, 16))))


def _write_integer(random: Random, data: bytes) -> bytes:
    at, width = _place(random, data), random.choice("BHIQ")
    value = random.choice((0, 1, 2**31 - 1, 2**16, 2**32 - 1, 2**63, 2**64 - 1, random.getrandbits(20)))
    packed = struct.pack("<" + width, value & ((1 << (8 * struct.calcsize("<" + width))) - 1))
    return data[:at] + packed + data[at + len(packed) :]


def _insert(random: Random, data: bytes, token: bytes) -> bytes:
    at = _place(random, data)
    return data[:at] + token + data[at + (len(token) if random.random() < 0.5 else 0) :]


def _insert_token(random: Random, data: bytes) -> bytes:
    return _insert(random, data, random.choice(TOKENS))


def _splice(random: Random, data: bytes, other: bytes) -> bytes:
    return data[: _place(random, data)] + other[_place(random, other) :]


# ------------------------------------------------------------------------------------------------ text


def _change_number(random: Random, data: bytes) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return _insert_token(random, data)
    at = random.choice(found)
    return data[: at.start()] + random.choice(NUMBERS).encode() + data[at.end() :]


def _change_line(random: Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    at, other = random.randrange(len(lines)), random.randrange(len(lines))
    what = random.randrange(4)
    if what == 0:
        lines[at], lines[other] = lines[other], lines[at]
    elif what == 1:
        lines.insert(at, lines[other])
    elif what == 2:
        del lines[at]
    else:
        lines[at] = lines[at][: _place(random, lines[at])]
    return b"\n".join(lines)


def _nest(random: Random, data: bytes) -> bytes:
    opening = random.choice((b"[", b"{", b'{"a":', b"(", b"<a>", b"- ", b'"'))
    return _insert(random, data, opening * random.choice((3, 500, 5000)))


def _change_code(random: Random, data: bytes) -> bytes:
    return data.decode("utf-8", "replace").encode(random.choice(TEXT_CODES), "replace")


def _change_case(random: Random, data: bytes) -> bytes:
    at = _place(random, data)
    return data[:at] + data[at : at + 8].swapcase() + data[at + 8 :]


_OF_BYTES: tuple[Mutator, ...] = (
    *(_set_byte, _set_byte, _flip_bit, _flip_bit, _cut, _delete, _double, _insert_random, _write_integer),
    *(_insert_token,),
)
_OF_TEXT: tuple[Mutator, ...] = (
    *(_set_byte, _flip_bit, _cut, _delete, _double, _insert_token, _insert_token, _change_number),
    *(_change_line, _change_line, _nest, _change_code, _change_case),
)
TEXT_KINDS = frozenset({"text", "json", "jsonl", "yaml", "xml"})


# ------------------------------------------------------------------------------------------------ JSON and YAML


def _json(random: Random, data: bytes) -> bytes:
    try:
        content = json.loads(data)
    except ValueError:
        return data
    return _dumped(_changed(random, content, 0)).encode("utf-8", "surrogatepass")


def _yaml(random: Random, data: bytes) -> bytes:
    """Change YAML as JSON, which it contains, or put anchors into it: in a circle, or a few that stand for millions."""
    what = random.randrange(4)
    if what > 1:
        return _json(random, data)
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    key = lines[at].partition(b":")[0] or b"a"
    if what == 0:
        lines[at] = key + b": &a [*a, {? b : *a}]"
    else:
        names = "abcdefgh"
        bomb = "".join(f", &{one} [{', '.join([f'*{before}'] * 9)}]" for before, one in pairwise(names))
        lines[at] = key + f": [&a [x, y]{bomb}]".encode()
    return b"\n".join(lines)


def _json_lines(random: Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    lines[at] = _json(random, lines[at])
    return b"\n".join(lines)


def _dumped(content: Any) -> str:
    # Numbers of thousands of digits cannot be written by json itself: they stand in for a text.
    return json.dumps(content).replace('"\u00a7"', DIGITS).replace('"\\u00a7"', DIGITS)


def _changed(random: Random, content: Any, depth: int) -> Any:
    """Return content with one change somewhere below."""
    if isinstance(content, dict) and content and (depth == 0 or random.random() < 0.8):
        key = random.choice(list(content))
        what = random.randrange(8)
        if what == 0:
            return {name: value for name, value in content.items() if name != key}
        if what == 1:
            return {
                (random.choice(("", "a", "\ud800", "id")) if name == key else name): v
                for name, v in content.items()
            }
        if what == 2:
            return {**content, random.choice(("a", "name", "id", "")): random.choice(VALUES)}
        return {**content, key: _changed(random, content[key], depth + 1)}
    if isinstance(content, list) and content and (depth == 0 or random.random() < 0.8):
        at = random.randrange(len(content))
        what = random.randrange(8)
        if what == 0:
            return content[:at] + content[at + 1 :]
        if what == 1:
            return [*content, content[at]]
        return [*content[:at], _changed(random, content[at], depth + 1), *content[at + 1 :]]
    if random.random() < 0.05:
        nested: Any = content
        for _ in range(random.choice((3, 60, 900))):
            nested = [nested] if random.random() < 0.5 else {"a": nested}
        return nested
    if random.random() < 0.05:
        return "\u00a7"
    if isinstance(content, str) and random.random() < 0.3:
        return content + random.choice(("\ud800", "\0", " ", "/", ".jpg", "\n", ",", '"'))
    if isinstance(content, (int, float)) and not isinstance(content, bool) and random.random() < 0.4:
        return content + random.choice((1, -1, 0.5, 1000, -(2**40), 2**70))
    return random.choice(VALUES)


# ------------------------------------------------------------------------------------------------ XML


def _xml(random: Random, data: bytes) -> bytes:
    what = random.randrange(4)
    if what == 0:
        code = random.choice(
            ("UTF-7", "UTF-32", "UTF-16", "latin-1", "nonsense", "cp037", "rot13", "idna", "hex")
        )
        body = data.partition(b"?>")[2] if data.startswith(b"<?xml") else data
        declared = f'<?xml version="1.0" encoding="{code}"?>'.encode()
        if random.random() < 0.3:
            try:
                return (declared + body).decode().encode(code)
            except (LookupError, UnicodeError, ValueError):
                pass
        return declared + body
    if what == 1:
        entities = b'<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa">' + b"".join(
            b'<!ENTITY %c "%s">' % (99 + n, b"&%c;" % (98 + n if n else 97) * 10) for n in range(8)
        )
        return entities + b"]>" + data.replace(b">", b">&j;", 1)
    tags = list(re.finditer(rb"<[^<>]+>", data))
    if not tags:
        return data
    tag, other = random.choice(tags), random.choice(tags)
    if what == 2:
        return data[: tag.start()] + data[tag.end() :]
    return data[: tag.start()] + other.group() + data[tag.start() :]


# ------------------------------------------------------------------------------------------------ archives, arrays


def array_header(shape: str, kind: str, fortran: str = "False") -> bytes:
    """Return the header of an ``.npy`` file that says this."""
    text = f"{{'descr': {kind!r}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode("utf-8", "replace")
    padded = text.ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", min(len(padded), 0xFFFF)) + padded


def _npy(random: Random, data: bytes) -> bytes:
    header, found, body = data.partition(b"}")
    if not found or random.random() < 0.4:
        return array_header(
            random.choice(SHAPES), random.choice(KINDS), random.choice(("False", "True", "0"))
        ) + (body.lstrip(b" ").removeprefix(b"\n"))
    what = random.randrange(3)
    if what == 0:
        header = re.sub(rb"'shape': \([^)]*\)", b"'shape': " + random.choice(SHAPES).encode(), header)
    elif what == 1:
        header = re.sub(rb"'descr': '[^']*'", b"'descr': '" + random.choice(KINDS).encode() + b"'", header)
    else:
        header = header.replace(b"False", b"True")
    return header + found + body


def _zip(random: Random, data: bytes) -> bytes:
    """Change an entry of an archive, or how it is packed."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [(name, archive.read(name)) for name in archive.namelist()]
    except Exception:  # a seed that was spliced; it stays as it is
        return data
    at = random.randrange(len(entries)) if entries else 0
    what = random.randrange(6)
    if entries and what == 0:
        del entries[at]
    elif entries and what == 1:
        entries[at] = (
            random.choice(("images.npy", "cells.npy", "truth.npy", "a", "../a.npy")),
            entries[at][1],
        )
    elif entries:
        name, content = entries[at]
        inner = {".npy": _npy, ".xml": _xml}.get(name[-4:])
        change = inner if inner is not None and random.random() < 0.7 else random.choice(_OF_BYTES)
        entries[at] = (name, change(random, content))
    packing = random.choice(
        (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)
    )
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a name that is there twice
        with zipfile.ZipFile(stream, "w", packing) as archive:
            for name, content in entries:
                archive.writestr(zipfile.ZipInfo(name), content, packing)
    packed = bytearray(stream.getvalue())
    if random.random() < 0.05:
        for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            start = packed.find(mark)
            while start >= 0:
                packed[start + place] |= 1  # encrypted
                start = packed.find(mark, start + 4)
    return bytes(packed)


# ------------------------------------------------------------------------------------------------ Arrow


@cache
def _odd_columns(count: int) -> tuple[Any, ...]:
    """Columns of ``count`` rows of kinds that no table of satl has."""
    import datetime
    import decimal

    import pyarrow as pa

    offsets = pa.py_buffer(struct.pack(f"<{count + 1}i", *range(count + 1)))
    broken = pa.StringArray.from_buffers(count, offsets, pa.py_buffer(b"\xff" * count))
    return (
        pa.array([[1, 2]] * count),
        pa.array([{"a": 1}] * count),
        pa.array([b"\xff\xfe"] * count),
        pa.array([decimal.Decimal("1.5")] * count),
        pa.array([datetime.date(2020, 1, 1)] * count),
        pa.array([datetime.datetime(9999, 12, 31)] * count, pa.timestamp("ms", tz="Nowhere/None")),
        pa.nulls(count),
        pa.array([None] * count, pa.string()),
        pa.array([True] * count),
        pa.array([2**63] * count, pa.uint64()),
        pa.array([float("inf")] * count),
        pa.array(["a"] * count).dictionary_encode(),
        pa.array([None, *["x"] * (count - 1)]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int8()), pa.array([None], pa.string())),
        pa.array(["a"] * count, pa.large_string()),
        pa.array(["a"] * count, pa.string_view()),
        pa.array([[[1.0], [2.0]]] * count),
        pa.array([[float("nan")]] * count),
        pa.array([[]] * count, pa.list_(pa.float32())),
        pa.array([None] * count, pa.list_(pa.float32(), 2)),
        pa.array([{"a": 1}] * count, pa.map_(pa.string(), pa.int8())),
        pa.array([datetime.timedelta(1)] * count),
        broken,
        broken.dictionary_encode() if count < 2 else broken,
    )


def _change_table(random: Random, table: Any) -> Any:
    import pyarrow as pa

    names, columns = list(table.column_names), list(table.columns)
    at = random.randrange(len(names))
    what = random.randrange(5)
    if what == 0:
        names[at] = random.choice(("", " ", "image", names[0], "label", "a\0b", "split", "__index_level_0__"))
    elif what == 1:
        del names[at], columns[at]
    else:
        columns[at] = random.choice(_odd_columns(table.num_rows))
    metadata = {b"satl.encoding": random.choice((b"blank", b"\xff", b"nonsense", b""))}
    made = pa.table(columns, names=names)
    return made.replace_schema_metadata(metadata) if random.random() < 0.2 else made


def _parquet(random: Random, data: bytes) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = _change_table(random, pq.read_table(pa.BufferReader(data)))
        stream = io.BytesIO()
        pq.write_table(
            table,
            stream,
            compression=random.choice(("none", "snappy", "gzip", "zstd")),
            use_dictionary=random.random() < 0.5,
            data_page_version=random.choice(("1.0", "2.0")),
        )
    except (pa.ArrowException, OSError, ValueError, KeyError):  # what pyarrow itself cannot write
        return data
    return stream.getvalue()


def _arrow(random: Random, data: bytes) -> bytes:
    import pyarrow as pa

    try:
        source = pa.BufferReader(data)
        table = _change_table(random, pa.ipc.open_file(source).read_all())
        stream = pa.BufferOutputStream()
        opened = pa.ipc.new_file if random.random() < 0.8 else pa.ipc.new_stream
        with opened(stream, table.schema) as writer:
            writer.write_table(table)
    except (pa.ArrowException, OSError, ValueError, KeyError):
        return data
    return bytes(stream.getvalue())


def _gzip(random: Random, data: bytes) -> bytes:
    """Damage the text inside, and pack it again."""
    try:
        inner = gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        return data
    return gzip.compress(random.choice(_OF_TEXT)(random, inner), compresslevel=1, mtime=0)


_STRUCTURED: dict[str, Mutator] = {
    "gzip": _gzip,
    "json": _json,
    "jsonl": _json_lines,
    "yaml": _yaml,
    "xml": _xml,
    "npy": _npy,
    "npz": _zip,
    "zip": _zip,
    "parquet": _parquet,
    "arrow": _arrow,
}

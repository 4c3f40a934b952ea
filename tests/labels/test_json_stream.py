from __future__ import annotations

import codecs
import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from satl.errors import TableError
from satl.labels.io import json_stream
from satl.labels.io.json_stream import json_elements, load_json

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    document=st.dictionaries(st.sampled_from("abcd"), st.lists(values, max_size=6)),
    piece=st.integers(1, 40),
    indent=st.sampled_from([None, 1]),
    ascii_only=st.booleans(),
)
def test_elements_are_those_of_the_whole_document_however_it_is_cut_into_pieces(
    document: dict[str, list[Any]], piece: int, indent: int | None, ascii_only: bool
) -> None:
    expected = [(key, value) for key in document for value in document[key] if key in "ab"]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "_PIECE", piece)
        path = Path(folder) / "x.json"
        text = json.dumps(document, indent=indent, ensure_ascii=ascii_only)
        path.write_bytes(b"\xef\xbb\xbf" * (piece % 2) + text.encode())
        seen: set[str] = set()
        found = list(json_elements(path, ("a", "b"), seen))
        assert found == expected
        assert seen == set(document) & {"a", "b"}
        assert load_json(path) == document


def test_a_file_may_be_one_list(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(' [1, {"a": 2}, [3]] \n')
    assert [value for _, value in json_elements(path)] == [1, {"a": 2}, [3]]
    path.write_text("[]")
    assert list(json_elements(path)) == []


WHOLE = json.dumps(
    {"info": {"a": "x, y"}, "images": [{"id": i, "name": "é" * i} for i in range(6)], "end": [1.5, True]},
    ensure_ascii=False,
).encode()


@pytest.mark.parametrize("piece", [7, 1 << 20])
def test_every_cut_is_told_as_a_file_that_ends_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(json_stream, "_PIECE", piece)
    path = tmp_path / "half.json"
    for size in range(1, len(WHOLE)):
        path.write_bytes(WHOLE[:size])
        with pytest.raises(TableError) as caught:
            list(json_elements(path, ("images",)))
        assert f"{path} ends in the middle, after {size:,} bytes" in str(caught.value)
        assert "download it again" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty: download or export it again"),
        (b"\xef\xbb\xbf \n", "is empty"),
        (b"[1, 2]", "is not a JSON object"),
        (b'{"images": {"a": 1}}', "'images' is not a list"),
        (b'{"images": [1 2, 3, 4, 5, 6]}', r"not valid JSON near '.*1 2, 3.*' \(expected , or \]\)"),
        (b'{"images": [1, x, 3, 4, 5, 6, 7]}', r"not valid JSON near .*Expecting value"),
        (b"{images: [1, 2, 3, 4, 5, 6, 7]}", "expected a key in quotes"),
        (b'{"images": [{"a" 1}, 3, 4, 5, 6, 7]}', "Expecting ':' delimiter"),
        (b'{"images": []} {"images": []}', "text after the end"),
        (b'{"images": []}}', "text after the end"),
        (b'{"images": ["\xe9"], "more": [1, 2]}', r"is not UTF-8 text \(near byte 14\)"),
        (codecs.BOM_UTF16_LE + b"{\0}\0", "is UTF-16 text"),
        (gzip.compress(b"{}", mtime=0), "is a gzip file, not JSON: unpack it first"),
        (b"<html>not found</html>", "is a web page or XML, not JSON: download"),
        (b"[" * 100_000, "nested too deeply|ends in the middle|is not a JSON object"),
        (b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    ],
)
def test_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(TableError, match=message) as caught:
        list(json_elements(path, ("images",)))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_a_window_of_the_file_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "_PIECE", 1000)
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"images": [{"id": i, "outline": [0.5] * 20} for i in range(2000)]}))
    windows = []
    more = json_stream._Text._more

    def watched(self: Any, size: int) -> None:
        more(self, size)
        windows.append(len(self._text))

    monkeypatch.setattr(json_stream._Text, "_more", watched)
    assert sum(1 for _ in json_elements(path, ("images",))) == 2000
    assert max(windows) < 2000
    assert len(windows) > 100

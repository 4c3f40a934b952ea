"""JSON, YAML and XML of strangers: whatever is wrong, a ValueError says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from satl.parsing import parse_json, parse_xml, parse_yaml, xml_events

DIGITS = "9" * 5000


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 50_000,
        DIGITS,
        '"\\ud800"',
        '{"\\uD800": 1}',
        b'"\xed\xa0\x80"',
        b'"\xff"',
        "",
        "{",
    ],
)
def test_json_that_is_none(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        parse_json(text)


def test_json_that_is_some() -> None:
    assert parse_json(b'\xef\xbb\xbf{"a": [1, null]}') == {"a": [1, None]}
    assert parse_json('"\\ud83d\\ude00"') == "\U0001f600"
    assert parse_json("[NaN]", parse_constant=lambda _: None) == [None]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5000,
        DIGITS,
        "2020-13-45",
        "{[1]: 2}",
        '"\\ud800"',
        '{a: "\\ud800"}',
        "\x00",
        "!!python/name:os.system",
        "a: b: c",
    ],
)
def test_yaml_that_is_none(text: str) -> None:
    with pytest.raises(ValueError):
        parse_yaml(text)


def test_yaml_says_the_line() -> None:
    with pytest.raises(ValueError, match="at line"):
        parse_yaml("a: 1\nb: [\n")
    assert parse_yaml('"\\u00e9"') == "é"


@pytest.mark.parametrize("code", ["UTF-7", "UTF-32", "nonsense", "rot13", "hex", "idna", "UTF-16"])
def test_xml_in_an_encoding_that_cannot_be_read(code: str, tmp_path: Path) -> None:
    file = tmp_path / "a.xml"
    file.write_text(f'<?xml version="1.0" encoding="{code}"?><a><b/></a>')
    for read in (parse_xml, lambda path: list(xml_events(path))):
        with pytest.raises(ValueError):
            read(file)


def test_xml_that_grows_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.xml"
    entities = "".join(f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9))
    file.write_text(f'<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa">{entities}]><a>&j;</a>')
    with pytest.raises(ValueError):
        parse_xml(file)


def test_xml_events_come_in_order(tmp_path: Path) -> None:
    file = tmp_path / "a.xml"
    file.write_text("<a><b/></a>")
    assert [(event, element.tag) for event, element in xml_events(file)] == [
        ("start", "a"),
        ("start", "b"),
        ("end", "b"),
        ("end", "a"),
    ]

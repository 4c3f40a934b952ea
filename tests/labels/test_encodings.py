from __future__ import annotations

import numpy as np
import pytest

from satl.errors import EncodingError, TableError
from satl.labels.encodings import (
    ENCODINGS,
    NOT_A_LABEL,
    VALUES,
    array_codes,
    decode,
    default_encoding,
    detect_encoding,
    find_encoding,
    require_writable,
    value_code,
    value_counts,
)


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        *((text, "1") for text in ("1", "1.0", "+1", " 1 ", "1e0", "True", "TRUE")),
        *((text, "0") for text in ("0", "0.0", "-0.0", "-0", "false")),
        *((text, "-1") for text in ("-1", "-1.0", "-1.")),
        *((text, "") for text in ("", " ", "nan", "NaN", "NA", "N/A", "null", "<NA>")),
        ("Present", "present"),
        ("YES", "yes"),
        ("?", "?"),
    ],
)
def test_forms_of_a_value(written: str, plain: str) -> None:
    assert VALUES[value_code(written)] == plain


@pytest.mark.parametrize("written", ["2", "maybe", "0.5", "-2", "inf", "1,0", "None", "train", "\u00bd"])
def test_values_that_are_no_labels(written: str) -> None:
    assert value_code(written) == NOT_A_LABEL


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        ({"1", "0", ""}, "blank"),
        ({"1", ""}, "blank"),
        ({"0", ""}, "blank"),
        ({""}, "blank"),
        ({"1"}, "blank"),
        ({"present", "absent"}, "words"),
        ({"yes", "no", ""}, "words"),
        ({"yes"}, "words"),
        ({"1", "0", "unknown"}, "words"),
        ({"1", "0", "?", ""}, "words"),
    ],
)
def test_decided(seen: set[str], name: str) -> None:
    assert detect_encoding(dict.fromkeys(seen, 1)).name == name


@pytest.mark.parametrize(
    ("seen", "choices"),
    [
        ({"1", "0"}, ("complete", "signed")),
        ({"0"}, ("complete", "signed")),
        ({"1", "-1"}, ("signed", "csl")),
        ({"-1"}, ("signed", "csl")),
        ({"1", "-1", "0"}, ("signed", "csl")),
        ({"-1", "0"}, ("signed", "csl")),
        ({"1", "-1", ""}, ("signed", "chexpert")),
        ({"1", "-1", "0", ""}, ("signed", "chexpert")),
        ({"0", "yes"}, ("words",)),
    ],
)
def test_refused_with_the_options_to_pass(seen: set[str], choices: tuple[str, ...]) -> None:
    with pytest.raises(EncodingError) as caught:
        detect_encoding(dict.fromkeys(sorted(seen), 7), "pets.csv")
    message = str(caught.value)
    assert message.startswith("pets.csv: can be read in ")
    for value in seen:
        assert f"{value or 'blank'} in 7 cells" in message
    options = [word for word in ENCODINGS if f"encoding={word!r} (" in message]
    assert sorted(options) == sorted(choices)


def test_a_refusal_says_what_each_choice_would_give() -> None:
    with pytest.raises(EncodingError) as caught:
        detect_encoding({"0": 9000, "1": 300, "-1": 700}, "pets.csv")
    assert str(caught.value) == (
        "pets.csv: can be read in 2 ways (0 in 9,000 cells, 1 in 300 cells, -1 in 700 cells); "
        "pass encoding='signed' (1 present, -1 absent, 0 or blank unknown: 300 present, 700 absent, 9,000 unknown), "
        "or encoding='csl' (1 present, 0 absent, -1 unknown: 300 present, 9,000 absent, 700 unknown)."
    )


def test_values_of_no_single_encoding() -> None:
    with pytest.raises(EncodingError, match="mixes values that no single encoding reads"):
        detect_encoding({"-1": 1, "yes": 1})


def test_every_encoding_reads_what_it_writes() -> None:
    for encoding in ENCODINGS.values():
        for state, text in encoding.writes.items():
            assert encoding.reads[VALUES[value_code(text)]] == state
        assert set(encoding.reads) <= set(VALUES)


@pytest.mark.parametrize(
    ("name", "one", "zero", "minus", "blank"),
    [
        ("signed", 1, 0, -1, 0),
        ("csl", 1, -1, 0, None),
        ("blank", 1, -1, None, 0),
        ("chexpert", 1, -1, 0, 0),
        ("complete", 1, -1, None, None),
        ("words", 1, -1, None, 0),
    ],
)
def test_meaning_of_the_numbers(name: str, one: int, zero: int, minus: int | None, blank: int | None) -> None:
    reads = ENCODINGS[name].reads
    assert (reads["1"], reads["0"], reads.get("-1"), reads.get("")) == (one, zero, minus, blank)


def test_unknown_encoding_names_the_nearest() -> None:
    with pytest.raises(
        EncodingError, match=r"encoding='sign': is not an encoding \(did you mean 'signed'\?\); choose"
    ):
        find_encoding("sign")


def test_codes_of_arrays() -> None:
    cases = [
        (np.array([[1, 0, -1]], dtype=np.int64), ["1", "0", "-1"]),
        (np.array([[1, 0, np.nan]]), ["1", "0", ""]),
        (np.array([[True, False, True]]), ["1", "0", "1"]),
        (np.array([[1, 0, 1]], dtype=np.uint8), ["1", "0", "1"]),
        (np.array([["Yes", "", "no"]]), ["yes", "", "no"]),
    ]
    for values, plain in cases:
        assert [VALUES[code] for code in array_codes(values)[0]] == plain
    # 255 as uint8 is -1 to a careless comparison.
    assert array_codes(np.array([255], dtype=np.uint8))[0] == NOT_A_LABEL
    assert array_codes(np.array([0.5, np.inf])).tolist() == [NOT_A_LABEL] * 2


def test_counts_and_decode() -> None:
    codes = array_codes(np.array([[1, 0], [0, np.nan]]))
    assert value_counts(codes) == {"0": 2, "": 1, "1": 1}
    assert decode(codes, ENCODINGS["blank"].reads).tolist() == [[1, -1], [-1, 0]]
    assert decode(codes, ENCODINGS["csl"].reads).tolist() == [[1, -1], [-1, 2]]


def test_default_encoding_can_be_read_back() -> None:
    assert default_encoding(np.array([[1, -1, 0]], dtype=np.int8)).name == "blank"
    assert default_encoding(np.array([[1, -1]], dtype=np.int8)).name == "words"


def test_complete_refuses_unknown_cells() -> None:
    with pytest.raises(TableError, match="2 cells are unknown; choose encoding 'blank'"):
        require_writable(np.array([[0, 0, 1]], dtype=np.int8), ENCODINGS["complete"])

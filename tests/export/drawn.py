"""Sources drawn at random: any names that a table may hold, and suggestions about any of its cells."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from satl.export import Source, Suggestions
from satl.labels import LabelTable
from satl.labels.cells import without_extension
from satl.labels.encodings import NOT_A_LABEL, value_code

MARKS = [",", '"', "'", "&", "<", ">", "]]>", ";", "\\", "{", "$", "%", "#", ":", "/", ".", "..", "\u2028"]
WORDS = ["not ", "maybe ", "maybe not "]

text = (
    st.lists(
        st.characters(blacklist_categories=("Cc", "Cs"), blacklist_characters="\ufffe\uffff")
        | st.sampled_from(MARKS)
        | st.sampled_from("aé猫"),
        min_size=1,
        max_size=8,
    )
    .map("".join)
    .filter(lambda s: s == s.strip())
)
# Names that a table would take for a column of its own or for a value are not the matter here.
_TAKEN = ("image", "split", "label", "labels", "tags", "positives", "value")
class_name = st.builds(
    lambda prefix, name: prefix + name,
    st.sampled_from(["", "", "", *WORDS]),
    text.filter(lambda s: s.lower() not in _TAKEN and value_code(s) == NOT_A_LABEL),
)
image_name = st.builds(lambda name, end: name + end, text, st.sampled_from(["", ".jpg", ".png"]))
score = st.integers(-2_000_000, 3_000_000).map(lambda millionths: millionths / 1_000_000)


@st.composite
def sources(draw: st.DrawFn) -> Source:
    """A source with up to 6 images and 4 classes; any cell may be known and any may be suggested."""
    images = draw(st.lists(image_name, min_size=1, max_size=6, unique_by=without_extension))
    classes = draw(st.lists(class_name, min_size=1, max_size=4, unique=True))
    shape = (len(images), len(classes))
    row = st.lists(st.sampled_from([-1, 0, 1]), min_size=shape[1], max_size=shape[1])
    cells = draw(st.lists(row, min_size=shape[0], max_size=shape[0]))
    split = draw(st.none() | st.lists(text, min_size=shape[0], max_size=shape[0]))
    table = LabelTable(
        tuple(images),
        tuple(classes),
        np.array(cells),
        None if split is None else np.array(split),
        encoding="signed",
    )
    entry = st.tuples(
        st.integers(0, shape[0] - 1),
        st.integers(0, shape[1] - 1),
        st.sampled_from([-1, 1]),
        score,
        st.sampled_from([0, 1]),
    )
    entries = draw(st.none() | st.lists(entry, max_size=8, unique_by=lambda one: one[:2]))
    return Source(table, None if entries is None else Suggestions.of(entries), "satl 0.1.0")

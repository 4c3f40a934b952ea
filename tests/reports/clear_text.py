"""What a reader of a figure would notice at once: text over text, and text cut off by the edge."""

from __future__ import annotations

from itertools import combinations

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from satl.drawing.style import styled

_TOLERANCE = 0.6
"""Pixels; hinting and rounding are no fault."""


def drawn_texts(figure: Figure) -> list[tuple[str, Bbox]]:
    """Return every text that drawing the figure really draws, with its place in pixels.

    Artists that exist but are not drawn (ticks out of range, empty labels) are left out, because it is the
    drawing itself that is watched.
    """
    seen: list[tuple[str, Bbox]] = []
    draw = Text.draw

    def watched(self: Text, renderer, *args, **kwargs):
        if self.get_visible() and self.get_text().strip():
            seen.append((self.get_text(), Text.get_window_extent(self, renderer)))
        return draw(self, renderer, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Text, "draw", watched)
        styled(figure.canvas.draw)()
    return seen


def assert_text_is_clear(figure: Figure) -> list[str]:
    """Check that no text lies over another or leaves the canvas; return the texts."""
    texts = drawn_texts(figure)
    assert texts
    width, height = figure.bbox.width, figure.bbox.height
    for text, box in texts:
        inside = (
            box.x0 >= -_TOLERANCE
            and box.y0 >= -_TOLERANCE
            and box.x1 <= width + _TOLERANCE
            and box.y1 <= height + _TOLERANCE
        )
        assert inside, f"{text!r} leaves the canvas: {box.extents} of {width:.0f} x {height:.0f}"
    for (one, first), (other, second) in combinations(texts, 2):
        across = min(first.x1, second.x1) - max(first.x0, second.x0)
        down = min(first.y1, second.y1) - max(first.y0, second.y0)
        assert across <= _TOLERANCE or down <= _TOLERANCE, f"{one!r} and {other!r} overlap"
    return [text for text, _ in texts]

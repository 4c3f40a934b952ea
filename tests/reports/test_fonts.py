"""Characters that our font lacks are taken from another one that is installed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager
from matplotlib.figure import Figure

from satl.drawing.figure_layout import write_figure
from satl.drawing.style import lacking_characters, styled

SIGN = "\U00012000"
"""Cuneiform, which none of the fonts has that figures may take."""


@pytest.fixture
def other_font(tmp_path: Path) -> Iterator[None]:
    """Install a font that has the sign, under a name that figures know, without a bold face."""
    pen = TTGlyphPen(None)
    pen.moveTo((100, 0))
    for point in ((100, 800), (900, 800), (900, 0)):
        pen.lineTo(point)
    pen.closePath()
    glyphs = [".notdef", "sign"]
    font = FontBuilder(1000, isTTF=True)
    font.setupGlyphOrder(glyphs)
    font.setupCharacterMap({ord(SIGN): "sign"})
    font.setupGlyf(dict.fromkeys(glyphs, pen.glyph()))
    font.setupHorizontalMetrics(dict.fromkeys(glyphs, (1000, 100)))
    font.setupHorizontalHeader(ascent=900, descent=-200)
    font.setupNameTable({"familyName": "Symbola", "styleName": "Regular", "psName": "Ours"})
    font.setupOS2(sTypoAscender=900, usWinAscent=900, usWinDescent=200)
    font.setupPost()
    font.save(tmp_path / "ours.ttf")
    before = list(font_manager.fontManager.ttflist)
    font_manager.fontManager.ttflist = [entry for entry in before if entry.name != "Symbola"]
    font_manager.fontManager.addfont(tmp_path / "ours.ttf")
    yield
    font_manager.fontManager.ttflist = before
    font_manager.fontManager._findfont_cached.cache_clear()  # type: ignore[attr-defined]


@styled
def drawn() -> Figure:
    figure = Figure()
    figure.text(0.1, 0.5, f"cat {SIGN}", fontweight="bold")
    return figure


@pytest.mark.filterwarnings("error")
def test_another_font_has_the_character(
    other_font: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert lacking_characters([f"cat {SIGN}", "\U00012001"]) == "\U00012001"
    svg, pdf = write_figure(drawn(), tmp_path / "figure", ("svg", "pdf"))
    text = svg.read_text()
    assert 'id="Ours-' in text
    assert 'id="DejaVuSans-Bold-' in text
    assert b"Ours" in pdf.read_bytes()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]

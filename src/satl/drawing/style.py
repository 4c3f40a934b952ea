"""One look for every figure and page: fixed colours, one size of text, the same bytes on every run.

Every colour has a name and two values, for light and for dark paper. Figures are drawn with the light ones;
in a page each is replaced by a CSS variable, so that the same figure follows the reader's setting. Colours
differ in lightness as well as in hue, and whatever a colour means is also shown by a dash, a marker, a hatch
or a sign, so that nothing is lost in grey or to a colour-blind reader.
"""

from __future__ import annotations

import functools
import logging
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar


@dataclass(frozen=True)
class Colour:
    """A named colour on light and on dark paper."""

    name: str
    light: str
    dark: str

    def __str__(self) -> str:
        return self.light


INK = Colour("ink", "#1b1f24", "#e8eaed")
MUTED = Colour("muted", "#5f6772", "#a3abb6")
FAINT = Colour("faint", "#c9ced6", "#4a525d")
GRID = Colour("grid", "#e7e9ed", "#2c323a")
PAPER = Colour("paper", "#ffffff", "#15181c")
PRESENT = Colour("present", "#00705f", "#3cc9ae")
ABSENT = Colour("absent", "#cf8fbd", "#b0679c")
KNOWN = Colour("known", "#2b3440", "#dfe3e8")
WRONG = Colour("wrong", "#b8390e", "#ff8e66")
UNKNOWN = Colour("unknown", "#767e89", "#98a1ad")
BASELINE = Colour("baseline", "#838b96", "#8d96a2")
TRANSFER = Colour("transfer", "#d17a00", "#f2ab46")
SEMANTIC = Colour("semantic", "#0a57a8", "#69b1ff")
EASY = Colour("easy", "#00705e", "#3cc9ad")
EASY_TOO = Colour("easy-too", "#3f9fd8", "#7cc7f5")
HARD = Colour("hard", "#9b2f86", "#e58ad2")
HARD_TOO = Colour("hard-too", "#b8390d", "#ff8e65")

Dash = tuple[float, tuple[float, ...]] | str


@dataclass(frozen=True)
class MethodStyle:
    """How a method looks everywhere."""

    title: str
    colour: Colour
    dash: Dash
    marker: str
    css_dash: str
    """The dash as SVG writes it, for legends in a page."""
    hatch: str = ""
    """On bars, so that methods differ in grey as well."""


def _look(title: str, colour: Colour, dashes: tuple[float, ...], marker: str, hatch: str = "") -> MethodStyle:
    """Return a look from a dash pattern in points of a line; none is a solid line."""
    css_dash = " ".join(f"{1.35 * length:g}" for length in dashes) or "none"
    return MethodStyle(title, colour, (0, dashes) if dashes else "solid", marker, css_dash, hatch)


_DOTS, _SHORT, _MIDDLE, _LONG = (1.2, 1.6), (2.6, 1.4), (4.5, 1.8), (8.0, 2.0)
_DASH_DOT, _DASH_DOT_DOT = (5.5, 1.5, 1.2, 1.5), (5.5, 1.4, 1.2, 1.4, 1.2, 1.4)
# Baselines are grey and olive, frameworks warm, what has SATL's parts cool (SST blue, HST violet), others rose.
_METHODS = {
    "ignore": MethodStyle("ignore-unknown", BASELINE, (0, _DOTS), "s", "1.5 2.5"),
    "assume-negative": _look("assume-negative", Colour("assume", "#5e5348", "#a99c8f"), _SHORT, "X", "xx"),
    "ssgrl": _look("SSGRL", Colour("ssgrl", "#8f8a1f", "#c9c356"), _DASH_DOT, "<", ".."),
    "ml-gcn": _look("ML-GCN", Colour("ml-gcn", "#5f9438", "#93cc68"), _MIDDLE, ">", "--"),
    "kggr": _look("KGGR", Colour("kggr", "#44561a", "#a3b573"), _DASH_DOT_DOT, "p", "++"),
    "sst": MethodStyle("SST", TRANSFER, (0, _MIDDLE), "D", "6 2.5"),
    "hst": _look("HST", Colour("hst", "#7d4310", "#cf935c"), _SHORT, "v", "\\\\\\"),
    "sst+sate": _look("SST+SATE", Colour("sst-sate", "#4586c2", "#8fbfe9"), _LONG, "h", "///"),
    "sst+drl": _look("SST+DRL", Colour("sst-drl", "#128a99", "#4fc7d4"), _DASH_DOT, "P", "|||"),
    "sst+satl": MethodStyle("SST+SATL", SEMANTIC, "solid", "o", "none", "////"),
    "hst+sate": _look("HST+SATE", Colour("hst-sate", "#8a76d6", "#b3a5f0"), _LONG, "H", "///"),
    "hst+drl": _look("HST+DRL", Colour("hst-drl", "#a65bc4", "#d79aee"), _DASH_DOT, "d", "|||"),
    "hst+satl": _look("HST+SATL", Colour("hst-satl", "#5131b5", "#a58cff"), (), "^", "////"),
    "asl": _look("ASL", Colour("asl", "#c43f6b", "#f28bac"), _DOTS, "<", "oo"),
    "splc": _look("SPLC", Colour("splc", "#d26a8f", "#f7adc6"), _DASH_DOT_DOT, "H", "**"),
    "large-loss": _look("Large-loss", Colour("large-loss", "#7c2546", "#d4809f"), _LONG, "8", "OO"),
    "curriculum": _look("Curriculum", Colour("curriculum", "#a8654f", "#dfa38f"), _DOTS, "p", "-."),
    "probe": _look("linear probe", Colour("probe", "#6a6f8c", "#a7adcb"), _SHORT, "s", ".."),
    "satl+": _look("SATL+", Colour("satl-plus", "#0b2a6b", "#7d9ff0"), (), "*", "xxx"),
}
_OTHERS = (EASY_TOO, HARD, HARD_TOO, EASY)
_OTHER_DASHES = (_DASH_DOT, (3.0, 1.2), _LONG, (2.0, 1.0, 1.0, 1.0), _DASH_DOT_DOT)
_OTHER_MARKERS = "^vPXsph"
HIGHLIGHTS = (EASY, EASY_TOO, HARD, HARD_TOO)
"""For single classes among many: two easy, two hard."""
HIGHLIGHT_DASHES: tuple[Dash, ...] = ("solid", (0, (5.0, 1.5)), "solid", (0, (5.0, 1.5)))

COLOURS = (
    *(INK, MUTED, FAINT, GRID, PAPER, PRESENT, ABSENT, KNOWN, WRONG, UNKNOWN),
    *(EASY, EASY_TOO, HARD, HARD_TOO),
    *(look.colour for look in _METHODS.values()),
)
"""All of them; no two share a light value, so that a page can tell them apart."""


def method_style(name: str) -> MethodStyle:
    """Return how a method looks; one without a look of its own gets a stable other one.

    >>> method_style("sst+satl").title, method_style("sst+satl").colour.name
    ('SST+SATL', 'semantic')
    >>> method_style("mine").title, method_style("mine") == method_style("mine")
    ('mine', True)
    """
    if name in _METHODS:
        return _METHODS[name]
    number = zlib.crc32(name.encode())  # the same in every process, unlike hash()
    colour = _OTHERS[number % len(_OTHERS)]
    dashes = _OTHER_DASHES[number // 4 % len(_OTHER_DASHES)]
    return _look(name, colour, dashes, _OTHER_MARKERS[number // 20 % len(_OTHER_MARKERS)])


def method_rank(name: str) -> tuple[int, str]:
    """Return the place of a method in legends: baselines, frameworks, with SATL's parts, others.

    >>> sorted(["mine", "sst+satl", "ignore", "hst"], key=method_rank)
    ['ignore', 'hst', 'sst+satl', 'mine']
    """
    order = list(_METHODS)
    return (order.index(name) if name in _METHODS else len(order)), name


_PROPORTIONS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
_RAMP = ("#bd8c22", "#cf6a26", "#c9473f", "#9c2c63", "#662272", "#2d1152")
_PROPORTION_LOOKS = (
    *((_DOTS, "v"), (_SHORT, "s"), (_MIDDLE, "o"), (_DASH_DOT, "P")),
    *((_LONG, "X"), ((), "D")),
)


def proportion_style(proportion: float) -> tuple[str, Dash, str]:
    """Return colour, dash and marker of a known proportion: the more is known, the darker.

    >>> proportion_style(0.2)
    ('#c9473f', (0, (4.5, 1.8)), 'o')
    >>> proportion_style(0.21) == proportion_style(0.2)
    True
    """
    nearest = min(range(len(_PROPORTIONS)), key=lambda i: abs(_PROPORTIONS[i] - proportion))
    dashes, marker = _PROPORTION_LOOKS[nearest]
    return _RAMP[nearest], (0, dashes) if dashes else "solid", marker


_GENERATORS = {
    "intra": "intra-image",
    "cross": "cross-image",
    "prototype": "prototype",
    "teacher": "teacher",
    "probability": "class probability",
    "text": "text",
    "union": "union of all generators",
}


def generator_title(name: str) -> str:
    """Return what a figure calls a generator.

    >>> generator_title("intra"), generator_title("mine")
    ('intra-image', 'mine')
    """
    return _GENERATORS.get(name, name)


_FONT = "DejaVu Sans"  # comes with matplotlib, so figures look alike everywhere
_OTHER_SCRIPTS = (
    *("Noto Sans CJK SC", "Noto Sans CJK TC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans SC"),
    *("Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Droid Sans Fallback"),
    *("Microsoft YaHei", "SimHei", "Yu Gothic", "MS Gothic", "Malgun Gothic"),
    *("PingFang SC", "Hiragino Sans GB", "Hiragino Sans", "Apple SD Gothic Neo"),
    *("Noto Sans Devanagari", "Noto Sans Bengali", "Noto Sans Tamil", "Noto Sans Thai", "Nirmala UI"),
    *("Leelawadee UI", "Thonburi", "Kohinoor Devanagari"),
    *("Noto Emoji", "Segoe UI Emoji", "Symbola", "Arial Unicode MS", "FreeSans", "Unifont"),
)
"""Fonts of Linux, Windows and macOS for characters that ours lacks; colours of emoji are beyond matplotlib."""


def _other_scripts() -> list[str]:
    """Return those fonts that are installed: matplotlib complains of others."""
    from matplotlib.font_manager import get_font_names

    installed = set(get_font_names())
    return [name for name in _OTHER_SCRIPTS if name in installed]


def lacking_characters(texts: Iterable[str]) -> str:
    """Return the characters that no font of the figures has, each once.

    >>> lacking_characters(["Zürich", "γάτα\\n(2)", "\\U00012000", "cat \\U00012000"]) == "\\U00012000"
    True
    """
    from matplotlib.font_manager import FontProperties, findfont, get_font

    with _without_complaints():
        fonts = [get_font(findfont(FontProperties(family=[name]))) for name in (_FONT, *_other_scripts())]
    characters = dict.fromkeys(one for text in texts for one in text if one.isprintable())
    return "".join(one for one in characters if not any(font.get_char_index(ord(one)) for font in fonts))


def rc_parameters() -> dict[str, Any]:
    """Return the matplotlib settings of every figure."""
    return {
        "font.family": ["sans-serif", *_other_scripts()],
        "font.sans-serif": [_FONT],
        "font.size": 8.5,
        "axes.titlesize": 9.0,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.labelsize": 8.5,
        "axes.labelcolor": MUTED.light,
        "axes.edgecolor": FAINT.light,
        "axes.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.facecolor": "none",
        "grid.color": GRID.light,
        "grid.linewidth": 0.7,
        "xtick.color": FAINT.light,
        "ytick.color": FAINT.light,
        "xtick.labelcolor": MUTED.light,
        "ytick.labelcolor": MUTED.light,
        "xtick.labelsize": 8.0,
        "ytick.labelsize": 8.0,
        "xtick.major.size": 2.5,
        "ytick.major.size": 0.0,
        "text.color": INK.light,
        "text.parse_math": False,  # a class may have dollars in its name
        "text.hinting": "none",  # text is as wide in every format and size as it was measured
        "legend.frameon": False,
        "legend.fontsize": 8.0,
        "lines.linewidth": 1.7,
        "lines.solid_capstyle": "round",
        "hatch.linewidth": 0.6,
        "figure.facecolor": "none",
        "savefig.facecolor": "none",
        "figure.dpi": 100,
        "svg.fonttype": "none",
        "svg.hashsalt": "satl",
        "pdf.fonttype": 42,
        "path.simplify": True,
    }


@contextmanager
def _without_complaints() -> Iterator[None]:
    """Silence the warnings of matplotlib about characters and weights that a font lacks, which come for every text."""
    logger = logging.getLogger("matplotlib.font_manager")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font")
            yield
    finally:
        logger.setLevel(level)


P = ParamSpec("P")
T = TypeVar("T")


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    """Run a drawing function with the settings of :func:`rc_parameters`, whatever the user's own are.

    A character that no font has is drawn as a box; :func:`lacking_characters` finds them.
    """

    @functools.wraps(draw)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        import matplotlib as mpl

        with mpl.rc_context(), _without_complaints():
            mpl.rcdefaults()
            settings: Any = mpl.rcParams
            settings.update(rc_parameters())
            return draw(*args, **kwargs)

    return wrapped


def css_variables(dark: bool) -> str:
    """Return the colours as CSS declarations.

    >>> "--ink: #1b1f24;" in css_variables(dark=False)
    True
    """
    return " ".join(f"--{colour.name}: {colour.dark if dark else colour.light};" for colour in COLOURS)

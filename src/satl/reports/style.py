"""One look for every figure and page: fixed colours, one size of text, the same bytes on every run.

Every colour has a name and two values, for light and for dark paper. Figures are drawn with the light ones;
in a page each is replaced by a CSS variable, so that the same figure follows the reader's setting. Colours
differ in lightness as well as in hue, and whatever a colour says is also said by a dash, a marker, a hatch
or a sign, so that nothing is lost in grey or to a colour-blind reader.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
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

COLOURS = (
    *(INK, MUTED, FAINT, GRID, PAPER, PRESENT, ABSENT, KNOWN, WRONG, UNKNOWN),
    *(BASELINE, TRANSFER, SEMANTIC, EASY, EASY_TOO, HARD, HARD_TOO),
)
"""All of them; no two share a light value, so that a page can tell them apart."""

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


_METHODS = {
    "ignore": MethodStyle("ignore-unknown", BASELINE, (0, (1.2, 1.6)), "s", "1.5 2.5"),
    "sst": MethodStyle("SST", TRANSFER, (0, (4.5, 1.8)), "D", "6 2.5"),
    "sst+satl": MethodStyle("SST+SATL", SEMANTIC, "solid", "o", "none"),
}
_OTHERS = (
    (EASY_TOO, (0, (6.0, 1.5, 1.2, 1.5)), "^", "7 2 1.5 2"),
    (HARD, (0, (3.0, 1.2)), "v", "4 1.5"),
    (HARD_TOO, (0, (8.0, 2.0)), "P", "10 2.5"),
    (EASY, (0, (2.0, 1.0, 1.0, 1.0)), "X", "3 1.5 1.5 1.5"),
)
HIGHLIGHTS = (EASY, EASY_TOO, HARD, HARD_TOO)
"""For single classes among many: two easy, two hard."""
HIGHLIGHT_DASHES: tuple[Dash, ...] = ("solid", (0, (5.0, 1.5)), "solid", (0, (5.0, 1.5)))


def method_style(name: str) -> MethodStyle:
    """Return how a method looks; one without a look of its own gets a stable other one.

    >>> method_style("sst+satl").title, method_style("sst+satl").colour.name
    ('SST+SATL', 'semantic')
    >>> method_style("hst").title
    'hst'
    """
    if name in _METHODS:
        return _METHODS[name]
    colour, dash, marker, css_dash = _OTHERS[sum(name.encode()) % len(_OTHERS)]
    return MethodStyle(name, colour, dash, marker, css_dash)


def rc_parameters() -> dict[str, Any]:
    """Return the matplotlib settings of every figure."""
    return {
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so figures look alike everywhere
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
        "path.simplify": True,
    }


P = ParamSpec("P")
T = TypeVar("T")


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    """Run a drawing function with the settings of :func:`rc_parameters`, whatever the user's own are."""

    @functools.wraps(draw)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        import matplotlib as mpl

        with mpl.rc_context():
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

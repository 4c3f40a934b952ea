"""Labels of an image as chips (rounded boxes): known, recovered, wrong, still unknown, each with a colour and sign."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from satl.drawing import style
from satl.drawing.figure_layout import fitted, text_inches

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("recovered", "filled", "wrong", "missed")
"""Outcomes of an unknown label, in the order they are shown."""
_SIGNS = {"known": "●", "recovered": "✓", "filled": "✓", "wrong": "✕", "missed": "?"}
_LOOKS: dict[str, tuple[str, str, str, style.Dash]] = {
    "known": (style.KNOWN.light, style.PAPER.light, "none", "solid"),
    "recovered": (style.PRESENT.light, style.PAPER.light, "none", "solid"),
    "filled": (style.PRESENT.light, style.PAPER.light, "none", "solid"),
    "wrong": (style.PAPER.light, style.WRONG.light, style.WRONG.light, "solid"),
    "missed": (style.PAPER.light, style.MUTED.light, style.UNKNOWN.light, (0, (2.5, 1.6))),
}
LEGEND = {"known": "known", "recovered": "recovered", "wrong": "wrong", "missed": "still unknown"}
LEGEND_WITHOUT_TRUTH = {"known": "known", "filled": "pseudo-label"}


def draw_chips(
    figure: Figure,
    left: float,
    top: float,
    right: float,
    chips: Sequence[tuple[str, str]],
    *,
    size: float = 8.5,
    step: float = 0.3,
    lines: int | None = None,
) -> float:
    """Set chips from left to right and line by line; return the top of the next line.

    Args:
        figure: where.
        left, top, right: inches from the lower left corner of the figure.
        chips: kind and class of each.
        size: of the text in points.
        step: from line to line, in inches.
        lines: at most so many; the rest is counted in a last chip.
    """
    pad = 0.32 * size / 72  # the rounded box reaches beyond its text
    gap = 2 * pad + 0.1 * size / 8.5
    sign = text_inches(figure, f"{_SIGNS['known']} ", size)
    more = text_inches(figure, f"+{len(chips)} more", size)
    x, used = left + pad, 1
    for number, (kind, name) in enumerate(chips):
        rest = len(chips) - number
        for fresh in (False, True):  # where a chip is too long for the line it goes to the next
            # The last line keeps room to say how many more there are.
            room = right - (more if used == lines and rest > 1 else 0.0)
            shown = f"{_SIGNS[kind]} {fitted(figure, name, room - left - 2 * pad - sign, size)}"
            width = text_inches(figure, shown, size)
            if fresh or x == left + pad or x + width + pad <= room or used == lines:
                break
            x, top, used = left + pad, top - step, used + 1
        if x > left + pad and x + width + pad > room:
            _text(figure, x - pad, top, f"+{rest} more", size, color=style.MUTED.light)
            break
        face, ink, edge, dash = _LOOKS[kind]
        box = {
            "boxstyle": "round,pad=0.32,rounding_size=0.9",
            "fc": face,
            "ec": edge,
            "ls": dash,
            "lw": size / 8,
        }
        _text(figure, x, top, shown, size, color=ink, bbox=box)
        x += width + gap
    return top - step if chips else top


def _text(figure: Figure, x: float, y: float, text: str, size: float, **look: Any) -> None:
    figure.text(x, y, text, fontsize=size, va="top", transform=figure.dpi_scale_trans, **look)

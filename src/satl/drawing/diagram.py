"""Diagrams: boxes, arrows and small sketches on a figure, placed in inches from its lower left corner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from satl.drawing import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Text

Point = tuple[float, float]
_ROUNDING = 0.06


@dataclass(frozen=True)
class Box:
    """A rectangle in inches with its text."""

    x: float
    y: float
    width: float
    height: float
    texts: tuple[Text, ...] = ()

    @property
    def left(self) -> Point:
        """Middle of the left side."""
        return self.x, self.y + self.height / 2

    @property
    def right(self) -> Point:
        """Middle of the right side."""
        return self.x + self.width, self.y + self.height / 2

    @property
    def top(self) -> Point:
        """Middle of the upper side."""
        return self.x + self.width / 2, self.y + self.height

    @property
    def bottom(self) -> Point:
        """Middle of the lower side."""
        return self.x + self.width / 2, self.y


class Diagram:
    """Draws on a figure in inches; later parts lie on top of earlier ones."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure
        self.place = figure.dpi_scale_trans
        self.boxes: list[Box] = []

    def box(
        self, x: float, y: float, width: float, height: float, title: str, text: str = "", **look: Any
    ) -> Box:
        """Draw a rounded box with a bold title and a text below it, both set from the top."""
        from matplotlib.patches import FancyBboxPatch

        look = {"facecolor": style.PAPER.light, "edgecolor": style.MUTED.light, "linewidth": 1.0, **look}
        inner: dict[str, Any] = {
            "boxstyle": f"round,pad=0,rounding_size={_ROUNDING}",
            "transform": self.place,
        }
        self.figure.add_artist(FancyBboxPatch((x, y), width, height, **inner, **look))
        texts = [
            self.text(x + width / 2, y + height - 0.07, title, size=7.6, weight="bold", va="top", ha="center")
        ]
        if text:
            lines = title.count("\n") + 1
            below = y + height - 0.1 - 0.135 * lines
            texts.append(
                self.text(x + width / 2, below, text, size=7, va="top", ha="center", color=style.MUTED.light)
            )
        self.boxes.append(Box(x, y, width, height, tuple(texts)))
        return self.boxes[-1]

    def text(
        self, x: float, y: float, text: str, *, size: float = 7, weight: str = "normal", **look: Any
    ) -> Text:
        """Write a text."""
        return self.figure.text(
            x, y, text, fontsize=size, fontweight=weight, transform=self.place, linespacing=1.2, **look
        )

    def arrow(self, points: Sequence[Point], **look: Any) -> None:
        """Draw an arrow along straight lines from point to point."""
        from matplotlib.patches import FancyArrowPatch
        from matplotlib.path import Path

        look = {"color": style.INK.light, "linewidth": 1.1, "arrowstyle": "-|>", "mutation_scale": 8, **look}
        self.figure.add_artist(
            FancyArrowPatch(
                path=Path(list(points)), transform=self.place, shrinkA=0, shrinkB=0, joinstyle="miter", **look
            )
        )

    def cells(self, x: float, y: float, kinds: str) -> None:
        """Draw labels of an image as a row of squares: ``+`` present, ``-`` absent, ``?`` unknown, ``*`` filled."""
        from matplotlib.patches import Rectangle

        looks: dict[str, tuple[str, str, style.Dash, str]] = {
            "+": (style.KNOWN.light, "none", "solid", style.PAPER.light),
            "-": (style.GRID.light, style.MUTED.light, "solid", style.INK.light),
            "?": (style.PAPER.light, style.UNKNOWN.light, (0, (2, 1.4)), style.MUTED.light),
            "*": (style.PRESENT.light, "none", "solid", style.PAPER.light),
        }
        signs, side = {"-": "\u2212", "*": "\u2713"}, 0.15
        for number, kind in enumerate(kinds):
            face, edge, dash, ink = looks[kind]
            left = x + number * 1.25 * side
            square = Rectangle(
                (left, y), side, side, facecolor=face, edgecolor=edge, linestyle=dash, linewidth=0.8
            )
            square.set_transform(self.place)
            self.figure.add_artist(square)
            sign = signs.get(kind, kind)
            self.text(
                left + side / 2, y + side / 2, sign, size=6.5, ha="center", va="center_baseline", color=ink
            )

    def humps(self, x: float, y: float, width: float, height: float, threshold: float | None = None) -> None:
        """Draw small histograms of negatives (left) and positives (right), and a threshold between them."""
        from matplotlib.patches import Rectangle

        places = np.linspace(0, 1, 15)
        bar = width / len(places)
        for mean, sd, colour, hatch in ((0.3, 0.13, style.ABSENT, ""), (0.72, 0.12, style.PRESENT, "//////")):
            for number, tall in enumerate(np.exp(-0.5 * ((places - mean) / sd) ** 2)):
                if tall > 0.04:
                    patch = Rectangle(
                        (x + number * bar, y),
                        bar,
                        height * float(tall),
                        facecolor="none" if hatch else colour.light,
                        edgecolor=colour.light,
                        hatch=hatch,
                        linewidth=0.4,
                    )
                    patch.set_transform(self.place)
                    self.figure.add_artist(patch)
        self.line([(x, y), (x + width, y)], color=style.MUTED.light, linewidth=0.8)
        if threshold is not None:
            at = x + threshold * width
            self.line([(at, y), (at, y + 1.12 * height)], color=style.SEMANTIC.light, linewidth=1.6)

    def line(self, points: Sequence[Point], **look: Any) -> None:
        """Draw a line from point to point."""
        from matplotlib.lines import Line2D

        xs, ys = zip(*points, strict=True)
        self.figure.add_artist(Line2D(xs, ys, transform=self.place, **look))

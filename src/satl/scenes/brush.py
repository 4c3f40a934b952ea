"""A brush that collects coloured polygons in an object's own coordinates, and paints them anywhere.

Everything in a scene is a polygon. A drawing function describes an object around the origin in units of its own
size (x to the right, y downwards, about -0.5 to 0.5); the renderer then moves, turns, mirrors and scales
the polygons exactly, without resampling pixels, and fills them twice: once thick and dark for the contour, once
in colour. The same polygons, filled into a small mask, say how much of the object can be seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ImageDraw

Colour = tuple[int, int, int]
Points = NDArray[np.float64]

_CIRCLE_CORNERS = 28
_MAX_ROUND_JOINTS = 10


def shade(colour: Colour, factor: float) -> Colour:
    """Make a colour darker (``factor`` < 1) or lighter (``factor`` > 1, towards white).

    >>> shade((100, 200, 50), 0.5), shade((100, 200, 50), 1.5)
    ((50, 100, 25), (177, 227, 152))
    """
    if factor <= 1:
        return (int(colour[0] * factor), int(colour[1] * factor), int(colour[2] * factor))
    return mix(colour, (255, 255, 255), factor - 1)


def mix(first: Colour, second: Colour, share: float) -> Colour:
    """Blend two colours; ``share`` is the part of the second.

    >>> mix((0, 0, 0), (100, 200, 50), 0.5)
    (50, 100, 25)
    """
    r, g, b = (int(a + (c - a) * share) for a, c in zip(first, second, strict=True))
    return (r, g, b)


class Dice:
    """Random choices of one image, as plain Python numbers.

    >>> dice = Dice(np.random.Generator(np.random.PCG64(0)))
    >>> 2 <= dice.between(2, 3) < 3
    True
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def between(self, low: float, high: float) -> float:
        """Draw a number uniformly from [low, high)."""
        return low + (high - low) * float(self.rng.random())

    def chance(self, probability: float) -> bool:
        """Say yes with the given probability."""
        return float(self.rng.random()) < probability

    def pick(self, options: Sequence[Any]) -> Any:
        """Take one of the options, each equally likely."""
        return options[int(float(self.rng.random()) * len(options))]

    def weighted(self, weights: Sequence[float]) -> int:
        """Draw an index with probability proportional to its weight."""
        mark = float(self.rng.random()) * sum(weights)
        for index, weight in enumerate(weights):
            mark -= weight
            if mark < 0:
                return index
        return max(index for index, weight in enumerate(weights) if weight > 0)

    def tint(self, colour: Colour, amount: int = 14) -> Colour:
        """Vary a colour a little in each channel."""
        r, g, b = (min(255, max(0, round(c + self.between(-amount, amount)))) for c in colour)
        return (r, g, b)


def circle(
    x: float, y: float, rx: float, ry: float | None = None, start: float = 0, end: float = 360
) -> Points:
    """Corners of an ellipse, or of its part between two angles in degrees (0 = right, 90 = down)."""
    return _unit_arc(start, end) * np.array((rx, rx if ry is None else ry)) + np.array((x, y))


@lru_cache(maxsize=64)
def _unit_arc(start: float, end: float) -> Points:
    """Corners of a part of the unit circle, shape (n, 2)."""
    whole = end - start >= 360
    corners = _CIRCLE_CORNERS if whole else max(5, int(_CIRCLE_CORNERS * (end - start) / 360) + 1)
    angle = np.radians(np.linspace(start, end, corners, endpoint=not whole))
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def rectangle(x0: float, y0: float, x1: float, y1: float, radius: float = 0) -> Points:
    """Corners of an upright rectangle with rounded corners."""
    if radius <= 0:
        return np.array([(x0, y0), (x1, y0), (x1, y1), (x0, y1)], dtype=np.float64)
    radius = min(radius, (x1 - x0) / 2, (y1 - y0) / 2)
    centres = ((x1 - radius, y1 - radius, 0), (x0 + radius, y1 - radius, 90), (x0 + radius, y0 + radius, 180))
    parts = [circle(x, y, radius, None, turn, turn + 90) for x, y, turn in centres]
    parts.append(circle(x1 - radius, y0 + radius, radius, None, 270, 360))
    return np.concatenate(parts)


def clip(points: Points, normal: tuple[float, float], offset: float) -> Points:
    """Keep the part of a convex polygon where ``normal . point <= offset``.

    >>> float(clip(rectangle(0, 0, 2, 1), (1, 0), 1.5)[:, 0].max())
    1.5
    """
    height = points @ np.asarray(normal) - offset
    kept: list[Any] = []
    for here, there, a, b in zip(
        points, np.roll(points, -1, axis=0), height.tolist(), np.roll(height, -1).tolist(), strict=True
    ):
        if a <= 0:
            kept.append(here)
        if (a < 0 < b) or (b < 0 < a):
            kept.append(here + (there - here) * (a / (a - b)))
    return np.array(kept, dtype=np.float64).reshape(-1, 2)


@dataclass
class Brush:
    """Collects the polygons of one object.

    ``favourites`` are the usual paints of the object. ``solid`` polygons get a dark contour and count for
    visibility; the others are details on top of them.
    """

    dice: Dice
    favourites: tuple[Colour, ...] = ()
    polygons: list[Points] = field(default_factory=list)
    colours: list[Colour] = field(default_factory=list)
    solid: list[bool] = field(default_factory=list)

    def shape(
        self, points: Points | Sequence[tuple[float, float]], colour: Colour, solid: bool = True
    ) -> Points:
        """Add a polygon and return its corners, shape (n, 2)."""
        corners = np.asarray(points, dtype=np.float64)
        if len(corners) >= 3:
            self.polygons.append(corners)
            self.colours.append(colour)
            self.solid.append(solid)
        return corners

    def disc(
        self, x: float, y: float, rx: float, ry: float | None, colour: Colour, solid: bool = True
    ) -> Points:
        """Add an ellipse."""
        return self.shape(circle(x, y, rx, ry), colour, solid)

    def box(
        self,
        x0: float,
        y0: float,
        x1: float,
        y1: float,
        colour: Colour,
        radius: float = 0,
        solid: bool = True,
    ) -> Points:
        """Add an upright, possibly rounded rectangle."""
        return self.shape(rectangle(x0, y0, x1, y1, radius), colour, solid)

    def ring(self, x: float, y: float, radius: float, width: float, colour: Colour) -> None:
        """Add a ring as one polygon whose inner border runs backwards."""
        outer, inner = circle(x, y, radius, None, 0, 359.9), circle(x, y, radius - width, None, 0, 359.9)
        self.shape(np.concatenate([outer, inner[::-1]]), colour)

    def stroke(
        self, points: Sequence[tuple[float, float]] | Points, width: float, colour: Colour, solid: bool = True
    ) -> None:
        """Add a thick line through the points: one strip, so that bends have no gaps."""
        path = np.asarray(points, dtype=np.float64)
        along = np.gradient(path, axis=0) if len(path) > 2 else np.repeat(path[1:] - path[:1], 2, axis=0)
        along /= np.maximum(np.hypot(along[:, 0], along[:, 1]), 1e-9)[:, None]
        side = np.stack([-along[:, 1], along[:, 0]], axis=1) * (width / 2)
        self.shape(np.concatenate([path + side, (path - side)[::-1]]), colour, solid)

    def stripes(
        self, points: Points, colour: Colour, count: int, angle: float = 0, share: float = 0.5
    ) -> None:
        """Lay ``count`` stripes over a convex polygon, across the direction ``angle`` (degrees)."""
        normal = (math.cos(math.radians(angle)), math.sin(math.radians(angle)))
        opposite = (-normal[0], -normal[1])
        height = points @ np.asarray(normal)
        low, step = float(height.min()), float(height.max() - height.min()) / count
        for index in range(count):
            start = low + step * (index + (1 - share) / 2)
            band = clip(points, normal, start + step * share)
            if len(band) >= 3:
                self.shape(clip(band, opposite, -start), colour, solid=False)

    def bounds(self) -> tuple[float, float, float, float]:
        """Smallest box around all polygons: x0, y0, x1, y1."""
        every = np.concatenate(self.polygons)
        x0, y0 = every.min(axis=0).tolist()
        x1, y1 = every.max(axis=0).tolist()
        return x0, y0, x1, y1

    def placed(self, matrix: NDArray[np.float64], shift: Sequence[float]) -> list[list[float]]:
        """All polygons after ``matrix @ point + shift``, flat as the drawing library wants them."""
        every = np.concatenate(self.polygons) @ np.asarray(matrix).T + np.asarray(shift)
        flat = every.ravel().tolist()
        ends = list(accumulate(2 * len(p) for p in self.polygons))
        return [flat[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def paint(
        self,
        draw: ImageDraw.ImageDraw,
        matrix: NDArray[np.float64],
        shift: Sequence[float],
        contour: Colour | None = None,
        width: float = 0,
    ) -> None:
        """Fill all polygons in order; with ``contour``, lay a line of ``width`` pixels around the whole first."""
        flat = self.placed(matrix, shift)
        thick = round(width * 2)
        if contour is not None and thick >= 1:
            for corners, solid in zip(flat, self.solid, strict=True):
                if solid:
                    # Round joints matter for the few sharp corners of a box, and cost too much on a circle.
                    joint = "curve" if len(corners) <= 2 * _MAX_ROUND_JOINTS else None
                    draw.line(corners + corners[:4], fill=contour, width=thick, joint=joint)
        for corners, colour in zip(flat, self.colours, strict=True):
            draw.polygon(corners, fill=colour)

    def paint_mask(
        self, draw: ImageDraw.ImageDraw, matrix: NDArray[np.float64], shift: Sequence[float]
    ) -> None:
        """Fill the solid polygons with 1 in a mask image."""
        for corners, solid in zip(self.placed(matrix, shift), self.solid, strict=True):
            if solid:
                draw.polygon(corners, fill=1)

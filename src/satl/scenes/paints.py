"""Colours of the drawn objects, and how one is chosen."""

from __future__ import annotations

from satl.scenes.brush import Brush, Colour

RED: Colour = (206, 62, 56)
ORANGE: Colour = (228, 128, 48)
YELLOW: Colour = (236, 190, 66)
GREEN: Colour = (112, 168, 78)
TEAL: Colour = (48, 134, 120)
BLUE: Colour = (62, 126, 190)
INDIGO: Colour = (66, 78, 150)
PURPLE: Colour = (142, 88, 160)
PINK: Colour = (214, 112, 148)
CREAM: Colour = (232, 226, 212)
GREY: Colour = (120, 124, 132)
BROWN: Colour = (134, 92, 62)
PAINTS = (RED, ORANGE, YELLOW, GREEN, TEAL, BLUE, INDIGO, PURPLE, PINK, CREAM, GREY, BROWN)
PAINT_SHARES = (0.85, 0.10, 0.05)
"""How often an object has the first of its usual colours, one of the others, and any colour at all."""

DOG_COATS: tuple[Colour, ...] = ((124, 84, 54), (124, 84, 54), (196, 150, 96), (232, 220, 200))
CAT_COATS: tuple[Colour, ...] = ((78, 70, 66), (78, 70, 66), (150, 146, 144), (206, 128, 62))
WHITE: Colour = (246, 244, 238)
DARK: Colour = (44, 42, 48)
GLASS: Colour = (176, 214, 230)
WOOD: tuple[Colour, ...] = ((150, 104, 64), (186, 138, 88), (104, 70, 48), (206, 176, 132))


def paint(brush: Brush) -> Colour:
    """Choose a colour: mostly the first that is usual for the object, sometimes another, seldom any."""
    usual = (brush.favourites[:1], brush.favourites[1:], PAINTS)[brush.dice.weighted(PAINT_SHARES)]
    return brush.dice.tint(brush.dice.pick(usual or PAINTS))


def other_paint(brush: Brush, colour: Colour) -> Colour:
    """Choose a colour that stands out from ``colour``."""
    for _ in range(6):
        candidate = brush.dice.tint(brush.dice.pick(PAINTS))
        if sum(abs(a - b) for a, b in zip(candidate, colour, strict=True)) > 150:
            return candidate
    return WHITE if sum(colour) < 400 else DARK

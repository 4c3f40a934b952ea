"""The drawn objects: one function per category, and the table of all categories.

A function draws its object into a :class:`~satl.scenes.brush.Brush` about the origin, largest side about 1.
Colour, proportions and details vary with the dice, so that no category is told by its colour alone.
Several categories are alike on purpose: car, bus and truck; dog and cat; sailboat and ship; sun, ball and
clock; cup, bottle and vase; lamp and umbrella; laptop and book.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

import numpy as np

from satl.scenes.brush import Brush, Colour, Dice, Points, circle, shade

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


def _paint(brush: Brush) -> Colour:
    """Draw a paint: mostly the first that is usual for the object, sometimes another, seldom any."""
    usual = (brush.favourites[:1], brush.favourites[1:], PAINTS)[brush.dice.weighted(PAINT_SHARES)]
    return brush.dice.tint(brush.dice.pick(usual or PAINTS))


def _other_paint(brush: Brush, colour: Colour) -> Colour:
    """Draw a paint that stands out from ``colour``."""
    for _ in range(6):
        candidate = brush.dice.tint(brush.dice.pick(PAINTS))
        if sum(abs(a - b) for a, b in zip(candidate, colour, strict=True)) > 150:
            return candidate
    return WHITE if sum(colour) < 400 else DARK


def _wheel(brush: Brush, x: float, y: float, radius: float) -> None:
    brush.disc(x, y, radius, None, DARK)
    brush.disc(x, y, radius * 0.5, None, (196, 196, 200), solid=False)


def draw_car(brush: Brush) -> None:
    """Saloon or hatchback from the side."""
    d, body = brush.dice, _paint(brush)
    rear = d.pick((-0.46, -0.36, -0.3))
    top = d.between(-0.27, -0.21)
    brush.shape([(rear, -0.02), (rear + 0.1, top), (0.1, top), (0.27, -0.02)], body)
    brush.box(-0.5, -0.05, 0.5, 0.17, body, radius=0.08)
    brush.shape(
        [(rear + 0.07, -0.03), (rear + 0.14, top + 0.05), (-0.1, top + 0.05), (-0.1, -0.03)], GLASS, False
    )
    brush.shape([(-0.06, -0.03), (-0.06, top + 0.05), (0.08, top + 0.05), (0.19, -0.03)], GLASS, False)
    brush.box(-0.49, 0.08, 0.49, 0.15, shade(body, 0.72), solid=False)
    brush.disc(0.45, 0.02, 0.035, None, (255, 240, 170), solid=False)
    for x in (-0.28, 0.28):
        _wheel(brush, x, 0.17, 0.115)


def draw_bus(brush: Brush) -> None:
    """Long box with a row of windows, wheels and a stripe."""
    d, body = brush.dice, _paint(brush)
    top = d.between(-0.32, -0.24)
    windows = d.pick((4, 5))
    brush.box(-0.5, top, 0.5, 0.2, body, radius=0.05)
    brush.box(-0.5, 0.05, 0.5, 0.11, _other_paint(brush, body), solid=False)
    step = 0.74 / windows
    for index in range(windows):
        x = -0.46 + step * index
        brush.box(x, top + 0.07, x + step * 0.8, top + 0.22, GLASS, solid=False)
    brush.box(0.32, top + 0.07, 0.46, 0.18, shade(GLASS, 0.86), solid=False)
    for x in (-0.28, 0.22):
        _wheel(brush, x, 0.2, 0.09)


def draw_truck(brush: Brush) -> None:
    """Cab in front of a tall cargo box."""
    d, cab = brush.dice, _paint(brush)
    load = _other_paint(brush, cab)
    top = d.between(-0.34, -0.26)
    cargo = brush.box(-0.5, top, 0.18, 0.14, load, radius=0.01)
    if d.chance(0.5):
        brush.stripes(cargo, shade(load, 0.82), d.pick((4, 5)), 0, 0.35)
    else:
        brush.box(-0.5, -0.12, 0.18, -0.02, _other_paint(brush, load), solid=False)
    brush.shape([(0.2, -0.16), (0.37, -0.16), (0.47, 0.0), (0.5, 0.02), (0.5, 0.18), (0.2, 0.18)], cab)
    brush.shape([(0.26, -0.11), (0.36, -0.11), (0.43, 0.0), (0.26, 0.0)], GLASS, False)
    brush.box(-0.48, 0.13, 0.22, 0.18, (70, 70, 76), solid=True)
    for x in (-0.36, -0.14, 0.34):
        _wheel(brush, x, 0.19, 0.095)


def draw_bicycle(brush: Brush) -> None:
    """Two ringed wheels and a frame."""
    d, frame = brush.dice, _paint(brush)
    tyre = d.pick((DARK, (90, 70, 56), (70, 74, 84)))
    for x in (-0.29, 0.29):
        brush.ring(x, 0.12, 0.21, 0.045, tyre)
    lift = d.between(-0.03, 0.03)
    hub, crank, seat, head = (-0.29, 0.12), (-0.04, 0.13), (-0.13, -0.14 + lift), (0.2, -0.14 + lift)
    for pair in ((hub, crank), (hub, seat), (seat, crank), (seat, head), (crank, head), (head, (0.29, 0.12))):
        brush.stroke(pair, 0.042, frame)
    brush.stroke([(0.2, -0.14 + lift), (0.18, -0.24), (0.29, -0.27)], 0.04, DARK)
    brush.stroke([seat, (-0.15, -0.22)], 0.035, DARK)
    brush.disc(-0.15, -0.225, 0.085, 0.03, DARK)
    brush.disc(*crank, 0.045, None, (150, 150, 156), solid=False)


def draw_traffic_light(brush: Brush) -> None:
    """Three lamps on a pole, one of them lit."""
    d = brush.dice
    case = d.pick(((52, 56, 60), (40, 66, 58), (208, 164, 52), (72, 72, 84)))
    brush.box(-0.035, 0.0, 0.035, 0.5, (104, 106, 112))
    brush.box(-0.15, -0.5, 0.15, 0.14, case, radius=0.07)
    lit = d.weighted((1, 0.6, 1))
    for index, colour in enumerate(((232, 58, 50), (250, 190, 50), (72, 208, 110))):
        shown = colour if index == lit else shade(colour, 0.38)
        brush.disc(0, -0.37 + 0.19 * index, 0.08, None, shown, solid=False)


def draw_tree(brush: Brush) -> None:
    """Broad crown or conifer."""
    d = brush.dice
    leaf = d.tint(d.pick(((74, 138, 70), (104, 152, 62), (46, 108, 82), (204, 138, 52), (186, 84, 56))), 16)
    brush.box(-0.055, 0.05, 0.055, 0.5, d.tint((110, 78, 54)))
    if d.chance(0.4):
        for level in range(3):
            wide = 0.19 + 0.075 * level
            y = -0.5 + 0.2 * level
            tone = shade(leaf, 1.0 - 0.08 * (2 - level))
            brush.shape([(0, y), (wide, y + 0.34), (-wide, y + 0.34)], tone)
    else:
        for x, y, r in ((-0.18, -0.06, 0.2), (0.18, -0.06, 0.2), (0, 0.0, 0.2), (0, -0.25, 0.24)):
            brush.disc(x + d.between(-0.03, 0.03), y + d.between(-0.03, 0.03), r, None, leaf)
        for x, y in ((-0.1, -0.28), (0.06, -0.12), (-0.2, -0.08), (0.15, -0.3)):
            brush.disc(x, y, 0.07, 0.05, shade(leaf, 1.18), solid=False)


def draw_sheep(brush: Brush) -> None:
    """Woolly body on four thin legs."""
    d = brush.dice
    wool = d.tint(d.pick(((240, 236, 226), (240, 236, 226), (206, 196, 182), (120, 104, 92))), 8)
    skin = d.pick(((58, 52, 52), (58, 52, 52), (216, 178, 150)))
    for x in (-0.22, -0.12, 0.1, 0.2):
        brush.box(x - 0.028, 0.1, x + 0.028, 0.38, skin)
    for x, y in (
        (-0.27, 0.02),
        (-0.16, -0.1),
        (0.02, -0.13),
        (0.18, -0.06),
        (0.2, 0.07),
        (-0.16, 0.12),
        (0.04, 0.13),
    ):
        brush.disc(x, y, 0.14, 0.125, wool)
    brush.disc(-0.04, 0.0, 0.22, 0.16, wool, solid=False)
    for x, y in ((-0.18, -0.02), (0.0, -0.08), (0.02, 0.08), (-0.1, 0.09), (0.13, 0.0)):
        brush.shape(circle(x, y, 0.05, 0.04, 0, 180), shade(wool, 0.84), False)
    brush.disc(0.37, -0.08, 0.105, 0.12, skin)
    brush.disc(0.27, -0.12, 0.065, 0.03, skin)
    brush.disc(0.34, -0.18, 0.085, 0.05, wool)
    brush.disc(0.4, -0.09, 0.018, None, WHITE, solid=False)


def draw_dog(brush: Brush) -> None:
    """Standing, with snout, hanging ear and raised tail."""
    d = brush.dice
    coat = d.tint(d.pick(DOG_COATS))
    patch = shade(coat, 0.66)
    brush.stroke([(-0.3, -0.04), (-0.4, -0.14), (-0.43, -0.3)], 0.06, coat)
    for x in (-0.26, -0.15, 0.11, 0.21):
        brush.box(x - 0.04, 0.06, x + 0.04, 0.4, coat if x in (-0.15, 0.21) else shade(coat, 0.84))
    brush.box(-0.34, -0.12, 0.27, 0.17, coat, radius=0.13)
    if d.chance(0.45):
        brush.disc(-0.1, -0.03, 0.12, 0.09, patch, solid=False)
    brush.shape([(0.1, -0.1), (0.2, -0.3), (0.36, -0.22), (0.28, 0.08)], coat)
    brush.disc(0.28, -0.26, 0.135, 0.12, coat)
    brush.box(0.3, -0.27, 0.5, -0.15, shade(coat, 1.12), radius=0.05)
    brush.disc(0.48, -0.25, 0.035, 0.03, DARK, solid=False)
    brush.disc(0.2, -0.22, 0.055, 0.125, patch)
    brush.disc(0.32, -0.29, 0.022, None, DARK, solid=False)
    if d.chance(0.5):
        brush.stroke([(0.15, -0.1), (0.31, -0.07)], 0.045, _paint(brush), solid=False)


def draw_cat(brush: Brush) -> None:
    """Sitting or walking, with pointed ears, whiskers and a long bent tail."""
    d = brush.dice
    coat = d.tint(d.pick(CAT_COATS))
    dark = shade(coat, 0.66)
    striped = d.chance(0.5)
    if d.chance(0.5):
        brush.stroke([(-0.1, 0.36), (-0.3, 0.36), (-0.38, 0.24), (-0.34, 0.08), (-0.38, 0.0)], 0.07, coat)
        body = brush.shape(
            [
                (-0.06, -0.16),
                (0.13, -0.14),
                (0.2, 0.1),
                (0.2, 0.4),
                (-0.16, 0.4),
                (-0.22, 0.26),
                (-0.16, 0.0),
            ],
            coat,
        )
        if striped:
            brush.stripes(body, dark, 4, 90, 0.35)
        brush.box(0.05, 0.12, 0.12, 0.4, shade(coat, 1.12), radius=0.03, solid=False)
        hx, hy = 0.06, -0.25
    else:
        brush.stroke(
            [(-0.26, -0.04), (-0.38, -0.1), (-0.44, -0.24), (-0.37, -0.36), (-0.29, -0.35)], 0.06, coat
        )
        for x in (-0.24, -0.15, 0.1, 0.19):
            brush.box(x - 0.032, 0.06, x + 0.032, 0.34, coat if x in (-0.15, 0.19) else shade(coat, 0.84))
        body = brush.box(-0.31, -0.1, 0.25, 0.13, coat, radius=0.11)
        if striped:
            brush.stripes(body, dark, 5, 0, 0.35)
        hx, hy = 0.28, -0.17
    for side in (-1, 1):
        brush.shape(
            [(hx + 0.15 * side, hy), (hx + 0.15 * side, hy - 0.24), (hx + 0.02 * side, hy - 0.1)], coat
        )
        brush.shape(
            [(hx + 0.125 * side, hy - 0.06), (hx + 0.125 * side, hy - 0.17), (hx + 0.06 * side, hy - 0.1)],
            (226, 156, 150),
            False,
        )
    brush.disc(hx, hy, 0.165, 0.14, coat)
    for side in (-1, 1):
        brush.disc(hx + 0.065 * side, hy - 0.02, 0.026, 0.032, (70, 110, 60), solid=False)
        brush.stroke(
            [(hx + 0.06 * side, hy + 0.05), (hx + 0.22 * side, hy + 0.03)], 0.014, WHITE, solid=False
        )
    brush.disc(hx, hy + 0.04, 0.026, 0.02, (206, 110, 110), solid=False)


def draw_bird(brush: Brush) -> None:
    """Perched or flying, with beak, wing and tail."""
    d, coat = brush.dice, _paint(brush)
    wing = shade(coat, 0.68)
    brush.shape([(-0.22, -0.02), (-0.5, -0.1), (-0.46, 0.1), (-0.2, 0.12)], wing)
    flying = d.chance(0.55)
    if flying:
        brush.shape([(-0.14, -0.02), (-0.28, -0.46), (0.02, -0.3), (0.16, 0.0)], shade(coat, 0.55))
    else:
        for x in (-0.02, 0.08):
            brush.stroke([(x, 0.16), (x, 0.36)], 0.035, (206, 130, 50))
    brush.disc(-0.02, 0.06, 0.29, 0.18, coat)
    brush.shape(circle(0.02, 0.08, 0.22, 0.14, 20, 160), shade(coat, 1.4), False)
    brush.shape([(0.34, -0.17), (0.52, -0.1), (0.34, -0.05)], (240, 164, 48))
    brush.disc(0.25, -0.12, 0.15, 0.14, coat)
    if flying:
        brush.shape([(-0.14, 0.02), (-0.12, -0.5), (0.1, -0.32), (0.17, 0.05)], wing)
    else:
        brush.shape([(0.13, -0.02), (0.04, 0.15), (-0.26, 0.13), (-0.12, -0.02)], wing, False)
    brush.disc(0.3, -0.15, 0.035, None, WHITE, solid=False)
    brush.disc(0.31, -0.15, 0.02, None, DARK, solid=False)


def draw_fish(brush: Brush) -> None:
    """Oval body with fins and a forked tail, plain or striped."""
    d, coat = brush.dice, _paint(brush)
    fin = shade(coat, 0.7)
    brush.shape([(-0.2, 0.0), (-0.5, -0.21), (-0.42, 0.0), (-0.5, 0.21)], fin)
    brush.shape([(-0.12, -0.16), (0.0, -0.3), (0.2, -0.14)], fin)
    brush.shape([(-0.04, 0.16), (-0.06, 0.27), (0.12, 0.14)], fin)
    tall = d.between(0.17, 0.23)
    body = brush.disc(0.08, 0, 0.38, tall, coat)
    if d.chance(0.55):
        brush.stripes(body, _other_paint(brush, coat), d.pick((4, 5)), 0, 0.36)
    else:
        brush.shape(circle(0.08, 0.0, 0.36, tall * 0.92, 15, 165), shade(coat, 1.35), False)
    brush.shape([(0.02, 0.0), (-0.1, 0.08), (0.04, 0.1)], fin, False)
    brush.disc(0.32, -0.04, 0.05, None, WHITE, solid=False)
    brush.disc(0.33, -0.04, 0.026, None, DARK, solid=False)


def draw_sailboat(brush: Brush) -> None:
    """Small hull, mast and two sails."""
    d = brush.dice
    hull, sail = _paint(brush), d.pick((WHITE, WHITE, _paint(brush)))
    brush.box(-0.02, -0.5, 0.015, 0.28, (112, 84, 62))
    main = brush.shape([(0.04, -0.47), (0.04, 0.2), (0.36, 0.2)], sail)
    if d.chance(0.5):
        brush.stripes(main, _other_paint(brush, sail), 4, 90, 0.4)
    brush.shape([(-0.05, -0.38), (-0.05, 0.2), (-0.31, 0.2)], shade(sail, 0.9))
    brush.shape([(-0.45, 0.25), (0.47, 0.25), (0.32, 0.46), (-0.32, 0.46)], hull)
    brush.shape([(-0.43, 0.27), (0.45, 0.27), (0.42, 0.31), (-0.41, 0.31)], shade(hull, 1.45), False)


def draw_ship(brush: Brush) -> None:
    """Big hull with decks and funnels."""
    d = brush.dice
    hull, funnel = _paint(brush), _paint(brush)
    for x in (-0.12, 0.08) if d.chance(0.5) else (-0.02,):
        brush.box(x - 0.055, -0.32, x + 0.055, 0.0, funnel)
        brush.box(x - 0.055, -0.28, x + 0.055, -0.22, WHITE, solid=False)
    brush.box(-0.22, -0.12, 0.2, 0.02, WHITE)
    brush.box(-0.32, 0.0, 0.3, 0.12, (236, 232, 224))
    for index in range(5):
        brush.disc(-0.22 + 0.11 * index, 0.06, 0.028, None, (88, 120, 148), solid=False)
    for index in range(3):
        brush.box(-0.15 + 0.11 * index, -0.08, -0.08 + 0.11 * index, -0.03, (88, 120, 148), solid=False)
    brush.shape([(-0.5, 0.08), (-0.4, 0.12), (0.38, 0.12), (0.52, 0.05), (0.4, 0.33), (-0.4, 0.33)], hull)
    brush.shape([(-0.42, 0.26), (0.43, 0.26), (0.4, 0.33), (-0.4, 0.33)], shade(hull, 0.6), False)


def draw_sun(brush: Brush) -> None:
    """Disc with rays."""
    d = brush.dice
    glow = d.tint(d.pick(((252, 206, 70), (250, 170, 60), (240, 112, 70), (255, 238, 170))), 10)
    rays = d.pick((8, 10, 12))
    turn = d.between(0, 360)
    for index in range(rays):
        a = math.radians(turn + 360 * index / rays)
        half = 0.62 * math.pi / rays
        tip = (0.5 * math.cos(a), 0.5 * math.sin(a))
        feet = [(0.33 * math.cos(a + s * half), 0.33 * math.sin(a + s * half)) for s in (-1, 1)]
        brush.shape([tip, *feet], shade(glow, 0.92))
    brush.disc(0, 0, 0.29, None, glow)
    brush.disc(0, 0, 0.2, None, shade(glow, 1.3), solid=False)


def draw_ball(brush: Brush) -> None:
    """Beach ball, striped ball or football."""
    d, colour = brush.dice, _paint(brush)
    kind = d.weighted((1, 0.8, 0.8))
    if kind == 0:
        second = _other_paint(brush, colour)
        brush.disc(0, 0, 0.5, None, colour)
        turn = d.between(0, 360)
        for index in range(3):
            start = turn + 120 * index
            wedge = circle(0, 0, 0.5, None, start, start + 60)
            brush.shape(np.concatenate([wedge, [[0.0, 0.0]]]), second, False)
        brush.disc(0, 0, 0.1, None, WHITE, solid=False)
    elif kind == 1:
        brush.stripes(
            brush.disc(0, 0, 0.5, None, colour), _other_paint(brush, colour), 3, d.between(0, 180), 0.45
        )
    else:
        brush.disc(0, 0, 0.5, None, WHITE)
        turn = d.between(0, 72)
        patch = d.pick((DARK, DARK, (62, 126, 190)))
        brush.shape(circle(0, 0, 0.17, None, turn, turn + 288), patch, False)
        for index in range(5):
            a = math.radians(turn + 72 * index)
            spot = circle(0.38 * math.cos(a), 0.38 * math.sin(a), 0.11)
            brush.shape(spot, patch, False)
    if kind < 2:
        brush.disc(-0.16, -0.2, 0.1, 0.08, shade(colour, 1.6), solid=False)


def draw_clock(brush: Brush) -> None:
    """Round face with marks and two hands; sometimes on feet."""
    d, rim = brush.dice, _paint(brush)
    face = d.pick((WHITE, (250, 240, 214), (226, 234, 240), (58, 58, 70)))
    ink = DARK if sum(face) > 400 else WHITE
    if d.chance(0.35):
        for side in (-1, 1):
            brush.stroke([(0.2 * side, 0.36), (0.32 * side, 0.52)], 0.09, rim)
            brush.disc(0.25 * side, -0.42, 0.14, 0.1, rim)
    brush.disc(0, 0, 0.47, None, rim)
    brush.disc(0, 0, 0.37, None, face, solid=False)
    for index in range(0, 12, 3):
        a = math.radians(30 * index)
        c, s = math.cos(a), math.sin(a)
        brush.stroke([(0.25 * c, 0.25 * s), (0.34 * c, 0.34 * s)], 0.06, ink, solid=False)
    first = d.between(0, 360)
    second = first + d.between(60, 300)
    for length, width, angle in ((0.29, 0.055, first), (0.2, 0.075, second)):
        a = math.radians(angle)
        brush.stroke([(0, 0), (length * math.cos(a), length * math.sin(a))], width, ink, solid=False)
    brush.disc(0, 0, 0.05, None, ink, solid=False)


def draw_umbrella(brush: Brush) -> None:
    """Open canopy in sectors, shaft and hooked handle."""
    d, colour = brush.dice, _paint(brush)
    second = _other_paint(brush, colour) if d.chance(0.7) else shade(colour, 0.8)
    brush.stroke(
        [(0, -0.4), (0, 0.36), (0.03, 0.43), (0.09, 0.43), (0.12, 0.36)], 0.042, d.pick((DARK, WOOD[0]))
    )
    brush.box(-0.02, -0.5, 0.02, -0.38, DARK)
    panels = 5
    edges = np.linspace(-0.5, 0.5, panels + 1)
    heart = np.array([[0.0, -0.42]])
    for index in range(panels):
        lower = circle((edges[index] + edges[index + 1]) / 2, 0.02, 0.1, 0.06, 180, 360)
        # Panels follow the dome: from the tip along the outline, then the scalloped edge back.
        left = _dome(float(edges[index]))
        right = _dome(float(edges[index + 1]))
        panel = np.concatenate([heart, right, lower[::-1], left[::-1]])
        brush.shape(panel, colour if index % 2 == 0 else second)


def _dome(edge: float) -> Points:
    """Rib of an umbrella from near the tip down to ``edge`` on the rim, shape (6, 2)."""
    t = np.linspace(0.15, 1, 6)
    return np.stack([edge * np.sin(t * math.pi / 2), 0.02 - 0.44 * np.cos(t * math.pi / 2)], axis=1)


def draw_cup(brush: Brush) -> None:
    """Mug with one handle, sometimes steaming or on a saucer."""
    d, colour = brush.dice, _paint(brush)
    foot = d.between(0.2, 0.31)
    brush.ring(0.36, -0.02, 0.17, 0.065, colour)
    if d.chance(0.3):
        brush.disc(0, 0.36, 0.48, 0.07, shade(colour, 0.85))
    body = brush.shape([(-0.34, -0.28), (0.34, -0.28), (foot, 0.36), (-foot, 0.36)], colour)
    style = d.weighted((1, 0.8, 0.8))
    if style == 1:
        brush.stripes(body, _other_paint(brush, colour), 3, 90, 0.45)
    elif style == 2:
        for x in (-0.16, 0.0, 0.16):
            brush.disc(x, 0.02, 0.055, None, _other_paint(brush, colour), solid=False)
    brush.disc(0, -0.28, 0.34, 0.075, shade(colour, 1.35))
    brush.disc(0, -0.27, 0.28, 0.05, d.pick(((92, 58, 40), (150, 96, 50), (236, 228, 214))), solid=False)
    if d.chance(0.4):
        brush.stroke([(-0.08, -0.36), (-0.12, -0.43), (-0.06, -0.5)], 0.04, WHITE, solid=False)
        brush.stroke([(0.08, -0.36), (0.04, -0.43), (0.1, -0.5)], 0.04, WHITE, solid=False)


def draw_bottle(brush: Brush) -> None:
    """Straight body, narrow neck, cap and label."""
    d, colour = brush.dice, _paint(brush)
    wide, shoulder = d.between(0.14, 0.19), d.between(-0.18, -0.06)
    brush.box(-0.065, -0.5, 0.065, -0.4, _other_paint(brush, colour), radius=0.015)
    outline = [
        (0.055, -0.41),
        (0.055, shoulder - 0.1),
        (wide, shoulder + 0.06),
        (wide, 0.47),
        (wide - 0.03, 0.5),
    ]
    brush.shape(outline + [(-x, y) for x, y in reversed(outline)], colour)
    brush.box(-wide, 0.1, wide, 0.34, _other_paint(brush, colour), solid=False)
    if d.chance(0.5):
        brush.box(-wide + 0.05, 0.19, wide - 0.05, 0.25, colour, solid=False)
    brush.box(-wide + 0.03, shoulder + 0.1, -wide + 0.065, 0.44, shade(colour, 1.5), solid=False)


def draw_vase(brush: Brush) -> None:
    """Curved profile with a wide rim, patterned or plain, often with flowers."""
    d, colour = brush.dice, _paint(brush)
    flowers = d.chance(0.7)
    top = -0.12 if flowers else -0.4
    if flowers:
        bloom = _other_paint(brush, (96, 150, 80))
        for x, y in ((-0.17, -0.32), (0.0, -0.42), (0.17, -0.31)):
            brush.stroke([(0, top + 0.05), (x, y)], 0.03, (86, 134, 74))
            brush.disc(x, y, 0.085, None, bloom)
            brush.disc(x, y, 0.035, None, (250, 220, 110), solid=False)
    height = np.linspace(top, 0.46, 12)
    t = np.linspace(0, 1, 12)
    waist = d.between(0.07, 0.1)
    profile = (
        waist
        + 0.2 * np.sin(np.pi * np.clip(t * 1.08 - 0.08, 0, 1)) ** 1.5
        + 0.05 * (1 - t) ** 6
        + 0.03 * t**4
    )
    right, left = np.stack([profile, height], 1), np.stack([-profile, height], 1)[::-1]
    body = brush.shape(np.concatenate([right, left]), colour)
    style = d.weighted((1.2, 0.7, 0.5))
    if style == 0:
        brush.stripes(body, _other_paint(brush, colour), 4, 90, 0.36)
    elif style == 1:
        middle = (top + 0.46) / 2 + 0.03
        for x in (-0.13, 0.0, 0.13):
            brush.shape(
                [(x, middle - 0.09), (x + 0.06, middle), (x, middle + 0.09), (x - 0.06, middle)],
                _other_paint(brush, colour),
                False,
            )
    brush.disc(0, top, waist + 0.06, 0.03, shade(colour, 0.75))


def draw_lamp(brush: Brush) -> None:
    """Cone of a shade on a stem with a foot."""
    d, colour = brush.dice, _paint(brush)
    stem = d.pick((DARK, (176, 140, 72), *WOOD[:2]))
    tall = d.chance(0.5)
    brush.box(-0.028, -0.2, 0.028, 0.46, stem)
    if not tall:
        brush.disc(0, 0.25, 0.13, 0.2, d.pick((stem, shade(colour, 0.7))))
    brush.shape(np.concatenate([circle(0, 0.48, 0.2, 0.08, 180, 360)]), stem)
    narrow, wide, low = d.between(0.1, 0.17), d.between(0.26, 0.33), (-0.14 if tall else -0.02)
    cover = brush.shape([(-narrow, -0.5), (narrow, -0.5), (wide, low), (-wide, low)], colour)
    if d.chance(0.35):
        brush.stripes(cover, shade(colour, 1.35), 5, 0, 0.4)
    brush.shape(
        [(-wide, low), (wide, low), (wide - 0.04, low - 0.06), (-wide + 0.04, low - 0.06)],
        (255, 236, 160),
        False,
    )


def draw_chair(brush: Brush) -> None:
    """Seen from the side or the front: back, seat and legs."""
    d = brush.dice
    frame = d.tint(d.pick((*WOOD, (70, 74, 84), (226, 222, 214))))
    seat = _paint(brush) if d.chance(0.7) else frame
    if d.chance(0.5):
        brush.box(-0.3, -0.5, -0.22, 0.5, frame)
        brush.box(0.2, 0.08, 0.28, 0.5, frame)
        brush.box(-0.31, 0.0, 0.32, 0.11, seat, radius=0.03)
        brush.box(-0.33, -0.48, -0.19, -0.12, seat, radius=0.03)
    else:
        for x in (-0.27, 0.19):
            brush.box(x, 0.08, x + 0.08, 0.5, frame)
        for x in (-0.25, 0.18):
            brush.box(x, -0.48, x + 0.07, 0.05, frame)
        for y in (-0.46, -0.27) if d.chance(0.6) else (-0.46,):
            brush.box(-0.25, y, 0.25, y + (0.12 if y == -0.27 else 0.15), seat, radius=0.02)
        brush.shape([(-0.25, 0.0), (0.25, 0.0), (0.33, 0.13), (-0.33, 0.13)], seat)


def draw_laptop(brush: Brush) -> None:
    """Screen above a keyboard."""
    d = brush.dice
    case = d.tint(d.pick(((180, 184, 190), (70, 72, 80), (226, 224, 220), (200, 160, 150))), 8)
    brush.box(-0.37, -0.36, 0.37, 0.14, shade(case, 0.8), radius=0.03)
    screen = d.pick(PAINTS)
    brush.box(-0.32, -0.31, 0.32, 0.09, shade(screen, 1.2), solid=False)
    if d.chance(0.5):
        brush.shape(
            [(-0.32, 0.09), (-0.12, -0.12), (0.02, 0.0), (0.16, -0.14), (0.32, 0.09)],
            shade(screen, 0.65),
            False,
        )
    else:
        for y, wide in ((-0.24, 0.16), (-0.14, 0.3), (-0.04, 0.22)):
            brush.box(-0.26, y, -0.26 + wide + 0.1, y + 0.045, WHITE, solid=False)
    brush.shape([(-0.38, 0.15), (0.38, 0.15), (0.5, 0.34), (-0.5, 0.34)], case)
    brush.shape([(-0.34, 0.175), (0.34, 0.175), (0.39, 0.26), (-0.39, 0.26)], shade(case, 0.5), False)


def draw_book(brush: Brush) -> None:
    """Closed with spine and title, or lying open."""
    d, cover = brush.dice, _paint(brush)
    if d.chance(0.55):
        brush.box(-0.32, -0.42, 0.34, 0.44, WHITE)
        brush.box(-0.36, -0.45, 0.3, 0.4, cover, radius=0.02)
        brush.box(-0.36, -0.45, -0.24, 0.4, shade(cover, 0.66), solid=False)
        title = _other_paint(brush, cover)
        brush.box(-0.14, -0.3, 0.2, -0.18, title, solid=False)
        brush.box(-0.1, -0.1, 0.16, -0.05, title, solid=False)
    else:
        brush.shape([(-0.5, -0.2), (0.5, -0.2), (0.5, 0.3), (-0.5, 0.3)], cover)
        for side in (-1, 1):
            brush.shape(
                [
                    (0, -0.2),
                    (0.2 * side, -0.28),
                    (0.46 * side, -0.24),
                    (0.46 * side, 0.22),
                    (0.2 * side, 0.18),
                    (0, 0.26),
                ],
                WHITE,
            )
            for y in (-0.14, -0.04, 0.06):
                brush.stroke([(0.08 * side, y), (0.38 * side, y - 0.03)], 0.035, (150, 150, 156), solid=False)
        brush.stroke([(0, -0.2), (0, 0.26)], 0.025, (120, 116, 112), solid=False)


@dataclass(frozen=True)
class Category:
    """What the renderer has to know of a category.

    ``scale`` is the range of its size as a part of the image side, ``place`` where it may stand
    (``ground``, ``air``, ``wall``, ``water``, ``float``), ``tilt`` the largest rotation in degrees,
    ``paints`` its usual colours, ``designs`` how many models of it are common.
    """

    draw: Callable[[Brush], None]
    scale: tuple[float, float]
    place: str
    tilt: float = 6
    paints: tuple[Colour, ...] = ()
    designs: int = 1


CATEGORIES: MappingProxyType[str, Category] = MappingProxyType(
    {
        "car": Category(draw_car, (0.46, 0.64), "ground", paints=(RED, BLUE, GREY), designs=2),
        "bus": Category(draw_bus, (0.53, 0.70), "ground", paints=(YELLOW, RED, GREEN)),
        "truck": Category(draw_truck, (0.51, 0.69), "ground", paints=(TEAL, ORANGE, BLUE)),
        "bicycle": Category(draw_bicycle, (0.46, 0.62), "ground", paints=(GREEN, RED, BLUE)),
        "traffic light": Category(draw_traffic_light, (0.48, 0.67), "ground", 3),
        "tree": Category(draw_tree, (0.53, 0.70), "ground", 4, designs=2),
        "sheep": Category(draw_sheep, (0.41, 0.58), "ground"),
        "dog": Category(draw_dog, (0.41, 0.58), "ground"),
        "cat": Category(draw_cat, (0.42, 0.58), "ground", designs=2),
        "bird": Category(draw_bird, (0.34, 0.46), "air", 16, paints=(BLUE, RED, YELLOW, BROWN)),
        "fish": Category(draw_fish, (0.38, 0.55), "water", 16, paints=(ORANGE, BLUE, YELLOW)),
        "sailboat": Category(draw_sailboat, (0.44, 0.62), "float", 8, paints=(RED, INDIGO, BROWN)),
        "ship": Category(draw_ship, (0.51, 0.69), "float", 6, paints=(INDIGO, RED, GREY)),
        "sun": Category(draw_sun, (0.36, 0.50), "air", 0),
        "ball": Category(draw_ball, (0.30, 0.42), "ground", 20, paints=(PINK, RED, BLUE)),
        "clock": Category(draw_clock, (0.32, 0.45), "wall", 8, paints=(BROWN, RED, GREY)),
        "umbrella": Category(draw_umbrella, (0.48, 0.64), "ground", 18, paints=(PURPLE, PINK, RED)),
        "cup": Category(draw_cup, (0.34, 0.48), "ground", paints=(CREAM, RED, BLUE), designs=2),
        "bottle": Category(draw_bottle, (0.41, 0.58), "ground", 5, paints=(GREEN, TEAL, BROWN)),
        "vase": Category(draw_vase, (0.44, 0.60), "ground", 4, paints=(PINK, BLUE, ORANGE)),
        "lamp": Category(draw_lamp, (0.44, 0.62), "ground", 4, paints=(YELLOW, PINK, CREAM)),
        "chair": Category(draw_chair, (0.44, 0.60), "ground", 5, paints=(TEAL, BROWN, RED), designs=2),
        "laptop": Category(draw_laptop, (0.43, 0.60), "ground", 5),
        "book": Category(draw_book, (0.34, 0.46), "ground", 14, paints=(INDIGO, RED, GREEN), designs=2),
    }
)
"""Every category by name; the order is the order of the columns."""


SPECIAL_SHARE = 0.5
"""Part of the objects that are one of a kind; all others are one of the common designs of their category."""


def draw_category(name: str, dice: Dice) -> Brush:
    """Draw one object of a category: mostly a common design, as things made in series are, sometimes a special one.

    >>> dice = Dice(np.random.Generator(np.random.PCG64(0)))
    >>> x0, y0, x1, y1 = draw_category("car", dice).bounds()
    >>> bool(0.9 < x1 - x0 < 1.1), bool(y1 - y0 < 0.7)
    (True, True)
    """
    if dice.chance(SPECIAL_SHARE):
        return _draw(name, dice)
    return _common_design(name, int(dice.between(0, CATEGORIES[name].designs)))


@cache
def _common_design(name: str, number: int) -> Brush:
    seed = np.random.SeedSequence([list(CATEGORIES).index(name), number])
    return _draw(name, Dice(np.random.Generator(np.random.PCG64(seed))))


def _draw(name: str, dice: Dice) -> Brush:
    brush = Brush(dice, CATEGORIES[name].paints)
    CATEGORIES[name].draw(brush)
    return brush

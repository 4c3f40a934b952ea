"""Drawn objects that are seen outdoors: vehicles, plants, animals, boats, sun, ball, umbrella."""

from __future__ import annotations

import math

import numpy as np

from satl.scenes.brush import Brush, Points, circle, shade
from satl.scenes.paints import CAT_COATS, DARK, DOG_COATS, GLASS, WHITE, WOOD, other_paint, paint


def _wheel(brush: Brush, x: float, y: float, radius: float) -> None:
    brush.disc(x, y, radius, None, DARK)
    brush.disc(x, y, radius * 0.5, None, (196, 196, 200), solid=False)


def draw_car(brush: Brush) -> None:
    """Saloon or hatchback from the side."""
    d, body = brush.dice, paint(brush)
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
    d, body = brush.dice, paint(brush)
    top = d.between(-0.32, -0.24)
    windows = d.pick((4, 5))
    brush.box(-0.5, top, 0.5, 0.2, body, radius=0.05)
    brush.box(-0.5, 0.05, 0.5, 0.11, other_paint(brush, body), solid=False)
    step = 0.74 / windows
    for index in range(windows):
        x = -0.46 + step * index
        brush.box(x, top + 0.07, x + step * 0.8, top + 0.22, GLASS, solid=False)
    brush.box(0.32, top + 0.07, 0.46, 0.18, shade(GLASS, 0.86), solid=False)
    for x in (-0.28, 0.22):
        _wheel(brush, x, 0.2, 0.09)


def draw_truck(brush: Brush) -> None:
    """Cab in front of a tall cargo box."""
    d, cab = brush.dice, paint(brush)
    load = other_paint(brush, cab)
    top = d.between(-0.34, -0.26)
    cargo = brush.box(-0.5, top, 0.18, 0.14, load, radius=0.01)
    if d.chance(0.5):
        brush.stripes(cargo, shade(load, 0.82), d.pick((4, 5)), 0, 0.35)
    else:
        brush.box(-0.5, -0.12, 0.18, -0.02, other_paint(brush, load), solid=False)
    brush.shape([(0.2, -0.16), (0.37, -0.16), (0.47, 0.0), (0.5, 0.02), (0.5, 0.18), (0.2, 0.18)], cab)
    brush.shape([(0.26, -0.11), (0.36, -0.11), (0.43, 0.0), (0.26, 0.0)], GLASS, False)
    brush.box(-0.48, 0.13, 0.22, 0.18, (70, 70, 76), solid=True)
    for x in (-0.36, -0.14, 0.34):
        _wheel(brush, x, 0.19, 0.095)


def draw_bicycle(brush: Brush) -> None:
    """Two ringed wheels and a frame."""
    d, frame = brush.dice, paint(brush)
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
        brush.stroke([(0.15, -0.1), (0.31, -0.07)], 0.045, paint(brush), solid=False)


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
    d, coat = brush.dice, paint(brush)
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
    d, coat = brush.dice, paint(brush)
    fin = shade(coat, 0.7)
    brush.shape([(-0.2, 0.0), (-0.5, -0.21), (-0.42, 0.0), (-0.5, 0.21)], fin)
    brush.shape([(-0.12, -0.16), (0.0, -0.3), (0.2, -0.14)], fin)
    brush.shape([(-0.04, 0.16), (-0.06, 0.27), (0.12, 0.14)], fin)
    tall = d.between(0.17, 0.23)
    body = brush.disc(0.08, 0, 0.38, tall, coat)
    if d.chance(0.55):
        brush.stripes(body, other_paint(brush, coat), d.pick((4, 5)), 0, 0.36)
    else:
        brush.shape(circle(0.08, 0.0, 0.36, tall * 0.92, 15, 165), shade(coat, 1.35), False)
    brush.shape([(0.02, 0.0), (-0.1, 0.08), (0.04, 0.1)], fin, False)
    brush.disc(0.32, -0.04, 0.05, None, WHITE, solid=False)
    brush.disc(0.33, -0.04, 0.026, None, DARK, solid=False)


def draw_sailboat(brush: Brush) -> None:
    """Small hull, mast and two sails."""
    d = brush.dice
    hull, sail = paint(brush), d.pick((WHITE, WHITE, paint(brush)))
    brush.box(-0.02, -0.5, 0.015, 0.28, (112, 84, 62))
    main = brush.shape([(0.04, -0.47), (0.04, 0.2), (0.36, 0.2)], sail)
    if d.chance(0.5):
        brush.stripes(main, other_paint(brush, sail), 4, 90, 0.4)
    brush.shape([(-0.05, -0.38), (-0.05, 0.2), (-0.31, 0.2)], shade(sail, 0.9))
    brush.shape([(-0.45, 0.25), (0.47, 0.25), (0.32, 0.46), (-0.32, 0.46)], hull)
    brush.shape([(-0.43, 0.27), (0.45, 0.27), (0.42, 0.31), (-0.41, 0.31)], shade(hull, 1.45), False)


def draw_ship(brush: Brush) -> None:
    """Big hull with decks and funnels."""
    d = brush.dice
    hull, funnel = paint(brush), paint(brush)
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
    d, colour = brush.dice, paint(brush)
    kind = d.weighted((1, 0.8, 0.8))
    if kind == 0:
        second = other_paint(brush, colour)
        brush.disc(0, 0, 0.5, None, colour)
        turn = d.between(0, 360)
        for index in range(3):
            start = turn + 120 * index
            wedge = circle(0, 0, 0.5, None, start, start + 60)
            brush.shape(np.concatenate([wedge, [[0.0, 0.0]]]), second, False)
        brush.disc(0, 0, 0.1, None, WHITE, solid=False)
    elif kind == 1:
        brush.stripes(
            brush.disc(0, 0, 0.5, None, colour), other_paint(brush, colour), 3, d.between(0, 180), 0.45
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


def draw_umbrella(brush: Brush) -> None:
    """Open canopy in sectors, shaft and hooked handle."""
    d, colour = brush.dice, paint(brush)
    second = other_paint(brush, colour) if d.chance(0.7) else shade(colour, 0.8)
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

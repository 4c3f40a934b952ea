"""Backdrops of the contexts, and clutter: shapes that are in the picture but in no category.

Coordinates are parts of the image side. Walls and skies share colours across contexts, and
meadows, floors and table tops look alike, so that a backdrop hints at a context without giving it away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from satl.scenes.brush import Brush, Colour, mix, shade
from satl.scenes.paints import PAINTS, WOOD

SKIES: tuple[tuple[Colour, Colour], ...] = (
    ((132, 186, 226), (214, 232, 240)),
    ((168, 198, 222), (236, 232, 220)),
    ((246, 190, 140), (250, 226, 190)),
    ((150, 152, 190), (238, 196, 190)),
    ((190, 196, 204), (222, 224, 226)),
)
WALLS: tuple[Colour, ...] = (
    (226, 214, 196),
    (198, 212, 208),
    (208, 206, 222),
    (232, 204, 190),
    (214, 222, 228),
    (188, 196, 176),
)
MEADOWS: tuple[Colour, ...] = ((150, 186, 108), (126, 168, 104), (182, 188, 112), (164, 174, 124))
# Lighter than the wood of the objects: a dark contour has to stand out on it.
BOARDS: tuple[Colour, ...] = ((176, 132, 90), (198, 156, 108), (152, 114, 84), (214, 188, 150))
Gradient = tuple[Colour, Colour]


def _sky(brush: Brush) -> Gradient:
    top, bottom = brush.dice.pick(SKIES)
    return brush.dice.tint(top, 10), brush.dice.tint(bottom, 8)


def _wall(brush: Brush) -> Gradient:
    colour = brush.dice.tint(brush.dice.pick(WALLS), 10)
    return colour, shade(colour, 0.94)


def _hill(brush: Brush, y: float, height: float, colour: Colour) -> None:
    peak = brush.dice.between(-0.2, 1.2)
    brush.disc(peak, y + 0.02, brush.dice.between(0.5, 0.9), height, colour, solid=False)


def _cloud(brush: Brush, x: float, y: float) -> None:
    size = brush.dice.between(0.06, 0.1)
    for dx, dy, r in ((-1.1, 0.15, 0.7), (0, -0.15, 1.0), (1.1, 0.15, 0.75)):
        brush.disc(x + dx * size, y + dy * size, r * size, r * size * 0.6, (246, 248, 250), solid=False)


def street(brush: Brush, horizon: float) -> Gradient:
    """Houses behind a pavement and a road."""
    d = brush.dice
    sky = _sky(brush)
    x = d.between(-0.15, 0)
    while x < 1:
        wide, tall = d.between(0.16, 0.3), d.between(0.14, 0.36)
        front = d.tint(
            d.pick(((196, 170, 150), (178, 184, 192), (206, 188, 160), (172, 150, 150), (190, 198, 186)))
        )
        brush.box(x, horizon - tall, x + wide, horizon + 0.02, front, solid=False)
        pane = mix(front, (92, 108, 130), 0.5)
        for row in range(max(1, int(tall / 0.11))):
            for column in range(2):
                left = x + wide * (0.18 + 0.4 * column)
                low = horizon - tall + 0.04 + 0.1 * row
                brush.box(left, low, left + wide * 0.22, low + 0.055, pane, solid=False)
        x += wide + d.pick((0.0, 0.02, 0.08))
    grey = d.tint((150, 150, 154), 16)
    brush.box(0, horizon, 1, 1, shade(grey, 1.3), solid=False)
    kerb = horizon + d.between(0.08, 0.16)
    brush.box(0, kerb, 1, 1, grey, solid=False)
    line = (kerb + 1) / 2 + 0.02
    start = d.between(-0.2, 0)
    while start < 1:
        brush.box(start, line, start + 0.14, line + 0.025, shade(grey, 1.6), solid=False)
        start += 0.26
    return sky


def park(brush: Brush, horizon: float) -> Gradient:
    """Lawn with a path and low bushes."""
    d = brush.dice
    sky = _sky(brush)
    lawn = d.tint(d.pick(MEADOWS))
    if d.chance(0.6):
        _hill(brush, horizon, d.between(0.05, 0.16), shade(lawn, 0.9))
    for _ in range(2):
        if d.chance(0.6):
            x = d.between(0, 1)
            for dx in (-0.07, 0, 0.07):
                brush.disc(x + dx, horizon, 0.07, 0.05, shade(lawn, 0.8), solid=False)
    brush.box(0, horizon, 1, 1, lawn, solid=False)
    if d.chance(0.6):
        x, end = d.between(0.2, 0.8), d.between(-0.1, 1.1)
        path = [(x - 0.03, horizon), (x + 0.03, horizon), (end + 0.2, 1.0), (end - 0.2, 1.0)]
        brush.shape(path, d.tint((214, 198, 162)), False)
    for _ in range(9):
        x, y = d.between(0, 1), d.between(horizon + 0.03, 1)
        brush.stroke([(x, y), (x + d.between(-0.02, 0.02), y - 0.035)], 0.014, shade(lawn, 0.82), solid=False)
    return sky


def sea(brush: Brush, horizon: float) -> Gradient:
    """Water with waves, sometimes a strip of sand or distant hills."""
    d = brush.dice
    sky = _sky(brush)
    if d.chance(0.35):
        _hill(brush, horizon, d.between(0.04, 0.1), mix((120, 140, 130), sky[1], 0.4))
    water = d.tint(d.pick(((86, 146, 182), (70, 130, 150), (104, 150, 196), (96, 164, 164))))
    brush.box(0, horizon, 1, 1, water, solid=False)
    for _ in range(12):
        x, y = d.between(-0.1, 1), d.between(horizon + 0.02, 1)
        wide = d.between(0.06, 0.16)
        brush.stroke(
            [(x, y), (x + wide / 2, y - 0.012), (x + wide, y)], 0.013, shade(water, 1.3), solid=False
        )
    if d.chance(0.45):
        sand = d.tint((232, 210, 160))
        left, right = d.between(0.84, 0.95), d.between(0.84, 0.95)
        brush.shape([(0, left), (0.5, (left + right) / 2 + 0.02), (1, right), (1, 1), (0, 1)], sand, False)
    return sky


def farm(brush: Brush, horizon: float) -> Gradient:
    """Fields in rows, a fence, sometimes a barn."""
    d = brush.dice
    sky = _sky(brush)
    field = d.tint(d.pick((*MEADOWS, (206, 186, 116), (176, 142, 100))))
    _hill(brush, horizon, d.between(0.04, 0.12), mix(field, (120, 150, 120), 0.5))
    if d.chance(0.5):
        x, wall = d.between(0.05, 0.7), d.tint(d.pick(((170, 76, 62), (150, 112, 80), (190, 186, 176))))
        brush.box(x, horizon - 0.16, x + 0.24, horizon + 0.01, wall, solid=False)
        roof = [(x - 0.03, horizon - 0.15), (x + 0.12, horizon - 0.27), (x + 0.27, horizon - 0.15)]
        brush.shape(roof, shade(wall, 0.65), False)
        brush.box(x + 0.08, horizon - 0.1, x + 0.16, horizon + 0.01, shade(wall, 1.4), solid=False)
    brush.box(0, horizon, 1, 1, field, solid=False)
    aim = d.between(0.2, 0.8)
    for index in range(-4, 6, 2):
        near = aim + index * 0.22
        far = aim + index * 0.07
        row = [(far, horizon), (far + 0.07, horizon), (near + 0.22, 1), (near, 1)]
        brush.shape(row, shade(field, 0.93), False)
    if d.chance(0.55):
        plank = d.tint(d.pick(WOOD))
        for dy in (0.0, 0.06):
            brush.box(0, horizon - 0.02 + dy, 1, horizon + 0.0 + dy, plank, solid=False)
        offset = d.between(0, 0.2)
        for index in range(5):
            x = offset + 0.2 * index
            brush.box(x, horizon - 0.06, x + 0.025, horizon + 0.1, shade(plank, 0.85), solid=False)
    return sky


def kitchen(brush: Brush, horizon: float) -> Gradient:
    """Tiled wall above a worktop."""
    d = brush.dice
    wall = _wall(brush)
    tile = d.between(0.1, 0.15)
    grout = shade(wall[0], d.pick((0.9, 1.4)))
    for index in range(int(1 / tile) + 1):
        brush.box(index * tile, 0, index * tile + 0.012, horizon, grout, solid=False)
        if index * tile < horizon:
            brush.box(0, index * tile, 1, index * tile + 0.012, grout, solid=False)
    top = d.tint(d.pick((*BOARDS, (200, 196, 190), (136, 140, 146))))
    brush.box(0, horizon, 1, 1, top, solid=False)
    brush.box(0, horizon, 1, horizon + 0.02, shade(top, 1.3), solid=False)
    if d.chance(0.4):
        brush.box(0, 0.9, 1, 1, shade(top, 0.75), solid=False)
    return wall


def desk(brush: Brush, horizon: float) -> Gradient:
    """Wall with a board or a window above a wooden table."""
    d = brush.dice
    wall = _wall(brush)
    x, kind = d.between(0.05, 0.45), d.weighted((1, 1, 0.7))
    if kind == 0:
        brush.box(x, 0.06, x + 0.46, horizon - 0.12, WOOD[0], solid=False)
        brush.box(x + 0.02, 0.08, x + 0.44, horizon - 0.14, (206, 172, 124), solid=False)
        for _ in range(3):
            nx, ny = x + d.between(0.05, 0.35), d.between(0.1, max(0.12, horizon - 0.26))
            brush.box(nx, ny, nx + 0.07, ny + 0.07, shade(d.pick(PAINTS), 1.35), solid=False)
    elif kind == 1:
        brush.box(x, 0.05, x + 0.44, horizon - 0.1, (244, 242, 238), solid=False)
        pane = d.pick(SKIES)[1]
        for dx in (0.02, 0.23):
            brush.box(x + dx, 0.07, x + dx + 0.19, horizon - 0.12, pane, solid=False)
    top = d.tint(d.pick(BOARDS))
    brush.box(0, horizon, 1, 1, top, solid=False)
    for index in range(3):
        y = horizon + (1 - horizon) * (0.25 + 0.25 * index)
        brush.box(0, y, 1, y + 0.008, shade(top, 0.88), solid=False)
    brush.box(0, horizon, 1, horizon + 0.015, shade(top, 1.25), solid=False)
    return wall


def living_room(brush: Brush, horizon: float) -> Gradient:
    """Wallpaper, skirting, floor and a rug."""
    d = brush.dice
    wall = _wall(brush)
    paper = shade(wall[0], d.pick((0.93, 0.9, 1.25)))
    if d.chance(0.6):
        for index in range(7):
            brush.box(index / 7 + 0.03, 0, index / 7 + 0.09, horizon, paper, solid=False)
    else:
        for index in range(24):
            brush.disc((index % 6) / 6 + 0.08, (index // 6) / 6.5 + 0.07, 0.02, None, paper, solid=False)
    if d.chance(0.5):
        x, y = d.between(0.05, 0.65), d.between(0.08, 0.18)
        brush.box(x, y, x + 0.26, y + 0.2, d.pick(WOOD), solid=False)
        brush.box(x + 0.025, y + 0.025, x + 0.235, y + 0.175, d.pick(SKIES)[0], solid=False)
        brush.shape(
            [(x + 0.025, y + 0.175), (x + 0.12, y + 0.09), (x + 0.235, y + 0.175)], d.pick(MEADOWS), False
        )
    floor = d.tint(d.pick((*BOARDS, (170, 160, 150))))
    brush.box(0, horizon, 1, 1, floor, solid=False)
    brush.box(0, horizon - 0.02, 1, horizon + 0.015, (240, 236, 228), solid=False)
    if d.chance(0.6):
        rug = d.pick(PAINTS)
        x = d.between(0.3, 0.7)
        brush.disc(x, 0.88, 0.42, 0.1, mix(rug, floor, 0.35), solid=False)
        brush.disc(x, 0.88, 0.34, 0.075, mix(rug, floor, 0.6), solid=False)
    return wall


BACKDROPS: Mapping[str, Callable[[Brush, float], Gradient]] = {
    "street": street,
    "park": park,
    "sea": sea,
    "farm": farm,
    "kitchen": kitchen,
    "desk": desk,
    "living room": living_room,
}
OUTDOORS = frozenset({"street", "park", "sea", "farm"})


def _rock(brush: Brush) -> None:
    grey = brush.dice.tint((140, 136, 130))
    wobble = np.array([brush.dice.between(0.34, 0.5) for _ in range(7)])
    angle = np.linspace(0, 2 * math.pi, 7, endpoint=False)
    brush.shape(np.stack([wobble * np.cos(angle), 0.7 * wobble * np.sin(angle)], 1), grey)


def _crate(brush: Brush) -> None:
    plank = brush.dice.tint(brush.dice.pick(WOOD))
    brush.box(-0.42, -0.36, 0.42, 0.4, plank)
    brush.stroke([(-0.4, 0.38), (0.4, -0.34)], 0.1, shade(plank, 0.75), solid=False)


def _blob(brush: Brush) -> None:
    colour = brush.dice.tint(brush.dice.pick(PAINTS))
    corners = brush.dice.pick((3, 4, 5, 6))
    turn = brush.dice.between(0, 360)
    angle = np.radians(turn + np.arange(corners) * 360 / corners)
    brush.shape(np.stack([0.45 * np.cos(angle), 0.4 * np.sin(angle)], 1), colour)


def _bush(brush: Brush) -> None:
    leaf = brush.dice.tint(brush.dice.pick(((104, 150, 82), (132, 160, 80), (90, 130, 100))))
    for x, r in ((-0.28, 0.2), (0.28, 0.2), (0.0, 0.28)):
        brush.disc(x, 0.2, r, None, leaf)


def _plate(brush: Brush) -> None:
    rim = brush.dice.tint(brush.dice.pick(PAINTS))
    brush.disc(0, 0, 0.5, 0.17, rim)
    brush.disc(0, -0.01, 0.36, 0.1, shade(rim, 1.5), solid=False)


def _cushion(brush: Brush) -> None:
    cloth = brush.dice.tint(brush.dice.pick(PAINTS))
    area = brush.box(-0.45, -0.28, 0.45, 0.28, cloth, radius=0.16)
    if brush.dice.chance(0.5):
        brush.stripes(area, shade(cloth, 1.35), 4, brush.dice.pick((0, 90)), 0.4)


def _post(brush: Brush) -> None:
    colour = brush.dice.tint(brush.dice.pick(((200, 196, 190), (150, 110, 80), (188, 84, 70))))
    area = brush.box(-0.08, -0.5, 0.08, 0.5, colour)
    if brush.dice.chance(0.5):
        brush.stripes(area, shade(colour, 1.6), 4, 90, 0.5)


def _pencil(brush: Brush) -> None:
    colour = brush.dice.tint(brush.dice.pick(PAINTS))
    brush.box(-0.4, -0.06, 0.3, 0.06, colour)
    brush.shape([(0.3, -0.06), (0.5, 0.0), (0.3, 0.06)], (226, 196, 150))


def _buoy(brush: Brush) -> None:
    colour = brush.dice.tint(brush.dice.pick(((206, 70, 60), (228, 140, 50), (70, 130, 90))))
    cone = brush.shape([(-0.12, -0.4), (0.12, -0.4), (0.26, 0.2), (-0.26, 0.2)], colour)
    brush.stripes(cone, (244, 240, 232), 3, 90, 0.4)
    brush.disc(0, 0.24, 0.36, 0.14, shade(colour, 0.8))


_OUTSIDE = (_rock, _bush, _post, _crate, _blob)
_INSIDE = (_plate, _cushion, _pencil, _crate, _blob)
CLUTTER: Mapping[str, tuple[Callable[[Brush], None], ...]] = {
    "street": _OUTSIDE,
    "park": _OUTSIDE,
    "sea": (_rock, _buoy, _post, _blob),
    "farm": _OUTSIDE,
    "kitchen": _INSIDE,
    "desk": _INSIDE,
    "living room": _INSIDE,
}
"""Shapes without a label, by backdrop."""


def add_clouds(brush: Brush, horizon: float) -> None:
    """Put up to two clouds into the sky."""
    for _ in range(2):
        if brush.dice.chance(0.45):
            _cloud(brush, brush.dice.between(0.05, 0.95), brush.dice.between(0.06, horizon * 0.6))

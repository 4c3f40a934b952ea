"""Drawn objects that are seen indoors: clock, tableware, furniture, laptop, book."""

from __future__ import annotations

import math

import numpy as np

from satl.scenes.brush import Brush, circle, shade
from satl.scenes.paints import DARK, PAINTS, WHITE, WOOD, other_paint, paint


def draw_clock(brush: Brush) -> None:
    """Round face with marks and two hands; sometimes on feet."""
    d, rim = brush.dice, paint(brush)
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


def draw_cup(brush: Brush) -> None:
    """Mug with one handle, sometimes steaming or on a saucer."""
    d, colour = brush.dice, paint(brush)
    foot = d.between(0.2, 0.31)
    brush.ring(0.36, -0.02, 0.17, 0.065, colour)
    if d.chance(0.3):
        brush.disc(0, 0.36, 0.48, 0.07, shade(colour, 0.85))
    body = brush.shape([(-0.34, -0.28), (0.34, -0.28), (foot, 0.36), (-foot, 0.36)], colour)
    style = d.weighted((1, 0.8, 0.8))
    if style == 1:
        brush.stripes(body, other_paint(brush, colour), 3, 90, 0.45)
    elif style == 2:
        for x in (-0.16, 0.0, 0.16):
            brush.disc(x, 0.02, 0.055, None, other_paint(brush, colour), solid=False)
    brush.disc(0, -0.28, 0.34, 0.075, shade(colour, 1.35))
    brush.disc(0, -0.27, 0.28, 0.05, d.pick(((92, 58, 40), (150, 96, 50), (236, 228, 214))), solid=False)
    if d.chance(0.4):
        brush.stroke([(-0.08, -0.36), (-0.12, -0.43), (-0.06, -0.5)], 0.04, WHITE, solid=False)
        brush.stroke([(0.08, -0.36), (0.04, -0.43), (0.1, -0.5)], 0.04, WHITE, solid=False)


def draw_bottle(brush: Brush) -> None:
    """Straight body, narrow neck, cap and label."""
    d, colour = brush.dice, paint(brush)
    wide, shoulder = d.between(0.14, 0.19), d.between(-0.18, -0.06)
    brush.box(-0.065, -0.5, 0.065, -0.4, other_paint(brush, colour), radius=0.015)
    outline = [
        (0.055, -0.41),
        (0.055, shoulder - 0.1),
        (wide, shoulder + 0.06),
        (wide, 0.47),
        (wide - 0.03, 0.5),
    ]
    brush.shape(outline + [(-x, y) for x, y in reversed(outline)], colour)
    brush.box(-wide, 0.1, wide, 0.34, other_paint(brush, colour), solid=False)
    if d.chance(0.5):
        brush.box(-wide + 0.05, 0.19, wide - 0.05, 0.25, colour, solid=False)
    brush.box(-wide + 0.03, shoulder + 0.1, -wide + 0.065, 0.44, shade(colour, 1.5), solid=False)


def draw_vase(brush: Brush) -> None:
    """Curved profile with a wide rim, patterned or plain, often with flowers."""
    d, colour = brush.dice, paint(brush)
    flowers = d.chance(0.7)
    top = -0.12 if flowers else -0.4
    if flowers:
        bloom = other_paint(brush, (96, 150, 80))
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
        brush.stripes(body, other_paint(brush, colour), 4, 90, 0.36)
    elif style == 1:
        middle = (top + 0.46) / 2 + 0.03
        for x in (-0.13, 0.0, 0.13):
            brush.shape(
                [(x, middle - 0.09), (x + 0.06, middle), (x, middle + 0.09), (x - 0.06, middle)],
                other_paint(brush, colour),
                False,
            )
    brush.disc(0, top, waist + 0.06, 0.03, shade(colour, 0.75))


def draw_lamp(brush: Brush) -> None:
    """Cone of a shade on a stem with a foot."""
    d, colour = brush.dice, paint(brush)
    stem = d.pick((DARK, (176, 140, 72), *WOOD[:2]))
    tall = d.chance(0.5)
    brush.box(-0.028, -0.2, 0.028, 0.46, stem)
    if not tall:
        brush.disc(0, 0.25, 0.13, 0.2, d.pick((stem, shade(colour, 0.7))))
    brush.shape(circle(0, 0.48, 0.2, 0.08, 180, 360), stem)
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
    seat = paint(brush) if d.chance(0.7) else frame
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
    d, cover = brush.dice, paint(brush)
    if d.chance(0.55):
        brush.box(-0.32, -0.42, 0.34, 0.44, WHITE)
        brush.box(-0.36, -0.45, 0.3, 0.4, cover, radius=0.02)
        brush.box(-0.36, -0.45, -0.24, 0.4, shade(cover, 0.66), solid=False)
        title = other_paint(brush, cover)
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

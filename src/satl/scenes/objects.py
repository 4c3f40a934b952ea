"""The table of all categories of drawn objects.

A function draws its object into a :class:`~satl.scenes.brush.Brush` about the origin, largest side about 1.
Colour, proportions and details are random, so that no category can be recognised by its colour alone.
Several categories are alike on purpose: car, bus and truck; dog and cat; sailboat and ship; sun, ball and
clock; cup, bottle and vase; lamp and umbrella; laptop and book.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from satl.scenes.brush import Brush, Colour, Dice
from satl.scenes.indoor_objects import (
    draw_book,
    draw_bottle,
    draw_chair,
    draw_clock,
    draw_cup,
    draw_lamp,
    draw_laptop,
    draw_vase,
)
from satl.scenes.outdoor_objects import (
    draw_ball,
    draw_bicycle,
    draw_bird,
    draw_bus,
    draw_car,
    draw_cat,
    draw_dog,
    draw_fish,
    draw_sailboat,
    draw_sheep,
    draw_ship,
    draw_sun,
    draw_traffic_light,
    draw_tree,
    draw_truck,
    draw_umbrella,
)
from satl.scenes.paints import (
    BLUE,
    BROWN,
    CREAM,
    GREEN,
    GREY,
    INDIGO,
    ORANGE,
    PINK,
    PURPLE,
    RED,
    TEAL,
    YELLOW,
)


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


CATEGORIES: Mapping[str, Category] = {
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

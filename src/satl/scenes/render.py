"""Compose a scene so that each object can be seen, then paint, light and shrink it.

All decisions are drawn before the first pixel and do not depend on the image size, so a scene has the same
content and the same labels at any size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from satl.scenes.backdrops import BACKDROPS, CLUTTER, OUTDOORS, Gradient, add_clouds
from satl.scenes.brush import Brush, Dice, circle
from satl.scenes.contexts import CONTEXTS, FOREIGN_BACKDROP, choose_categories
from satl.scenes.objects import CATEGORIES, draw_category

SMALLEST_SIZE, LARGEST_SIZE = 16, 2048
MASK_SIZE = 64
MIN_VISIBLE = 0.6
"""Smallest visible part of a labelled object, counted on its own silhouette inside the frame."""

_TRIES = 40
_ALONE, _MANY = 1, 2
"""Parts of the seed of pictures of one object and of many, so that they share no random numbers with other scenes."""
_HORIZON = (0.46, 0.62)
_HIGH_HORIZON = (0.2, 0.32)
"""Where many objects need ground to stand on."""
_CONTOUR = (38, 34, 44)


@dataclass
class SceneItem:
    """One object of a scene: its polygons, its category (None for clutter) and its position."""

    brush: Brush
    category: str | None
    scale: float
    turn: float
    mirrored: bool
    stretch: float
    x: float = 0.0
    y: float = 0.0
    depth: float = 0.0
    grounded: bool = False

    def __post_init__(self) -> None:
        """Box around the item about its own origin, in parts of the image side."""
        corners = np.concatenate(self.brush.polygons) @ self.matrix(1).T
        self.low: tuple[float, float] = tuple(corners.min(axis=0).tolist())
        self.high: tuple[float, float] = tuple(corners.max(axis=0).tolist())

    def matrix(self, size: float) -> NDArray[np.float64]:
        """Linear part of the placement in an image of ``size`` pixels, shape (2, 2)."""
        c, s = math.cos(math.radians(self.turn)), math.sin(math.radians(self.turn))
        flip = -1.0 if self.mirrored else 1.0
        inner = np.array([[flip * self.stretch, 0.0], [0.0, 1.0 / self.stretch]])
        return size * self.scale * np.array([[c, -s], [s, c]]) @ inner

    def box(self) -> tuple[float, float, float, float]:
        """Box around the item in the picture: x0, y0, x1, y1."""
        return self.x + self.low[0], self.y + self.low[1], self.x + self.high[0], self.y + self.high[1]

    def mask(self) -> NDArray[np.bool_]:
        """Silhouette inside the frame, shape (MASK_SIZE, MASK_SIZE)."""
        image = Image.new("L", (MASK_SIZE, MASK_SIZE))
        shift = (self.x * MASK_SIZE, self.y * MASK_SIZE)
        self.brush.paint_mask(ImageDraw.Draw(image), self.matrix(MASK_SIZE), shift)
        return np.asarray(image) > 0


@dataclass(frozen=True)
class Light:
    """How a picture is lit and recorded.

    ``gains`` are factors per colour, ``across`` and ``down`` the slopes of the brightness, ``blur`` a radius as a
    part of the image side, ``noise`` a standard deviation in grey levels.
    """

    gains: tuple[float, float, float]
    contrast: float
    across: float
    down: float
    blur: float
    noise: float
    noise_seed: int


def _make_light(dice: Dice) -> Light:
    gain = dice.between(0.9, 1.06)
    r, g, b = (gain * dice.between(0.96, 1.04) for _ in range(3))
    angle, slope = dice.between(0, 2 * math.pi), dice.between(0, 0.12)
    return Light(
        gains=(r, g, b),
        contrast=dice.between(0.92, 1.04),
        across=slope * math.cos(angle),
        down=slope * math.sin(angle),
        blur=dice.between(0.003, 0.006) if dice.chance(0.15) else 0.0,
        noise=dice.between(0, 4),
        noise_seed=int(dice.between(0, 2**31)),
    )


class Surroundings(NamedTuple):
    """Background and light of a scene."""

    horizon: float
    light: Light
    backdrop: Brush
    gradient: Gradient
    outdoors: bool
    water: bool


@dataclass
class Scene:
    """Content of one picture before it is painted; items from back to front."""

    context: str
    around: Surroundings
    items: list[SceneItem]

    @property
    def categories(self) -> list[str]:
        """Names of the categories that are in the picture and visible."""
        return [item.category for item in self.items if item.category is not None]


def _make_item(dice: Dice, name: str, shrink: float) -> SceneItem:
    category = CATEGORIES[name]
    brush = draw_category(name, dice)
    scale = dice.between(*category.scale) * shrink
    turn = dice.between(-category.tilt, category.tilt)
    return SceneItem(brush, name, scale, turn, dice.chance(0.5), dice.between(0.92, 1.09))


def _place(dice: Dice, item: SceneItem, place: str, around: Surroundings) -> None:
    """Choose a position in the zone of the category; zones are wide, so position is a weak hint."""
    x0, y0, x1, y1 = *item.low, *item.high
    slack, grounded = 0.14 * (x1 - x0), False
    item.x = dice.between(-slack - x0, 1 + slack - x1)
    outdoors, water, horizon = around.outdoors, around.water, around.horizon
    if place == "air" and (outdoors or dice.chance(0.5)):
        foot = dice.between(min(0.02 - y0 + y1, horizon), max(horizon + 0.02, 0.04 - y0 + y1))
    elif place == "wall" and not outdoors and dice.chance(0.75):
        foot = dice.between(0.04 - y0 + y1, max(horizon - 0.02, 0.05 - y0 + y1))
    elif place == "water" and water:
        foot = dice.between(horizon + (y1 - y0) + 0.02, 1.03)
    elif place == "float" and water:
        foot = dice.between(horizon + 0.06, 0.92)
    else:
        foot, grounded = dice.between(horizon + 0.05, 1.03), not water
    item.y = min(max(foot - y1, -0.05 - y0), 1.04 - y1)
    item.depth = item.y + y1
    item.grounded = grounded


def _overlap(first: SceneItem, second: SceneItem) -> float:
    """Shared area of two boxes as a part of the smaller one."""
    a, b = first.box(), second.box()
    wide, tall = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if wide <= 0 or tall <= 0:
        return 0.0
    return wide * tall / min((a[2] - a[0]) * (a[3] - a[1]), (b[2] - b[0]) * (b[3] - b[1]))


def visible_parts(items: list[SceneItem]) -> list[float]:
    """Visible part of each item's whole silhouette, given the items in front of it and the frame.

    ``items`` stand from back to front.
    """
    parts: list[float] = []
    covered = np.zeros((MASK_SIZE, MASK_SIZE), dtype=bool)
    for item in reversed(items):
        mask = item.mask()
        inside = int(mask.sum())
        x0, y0, x1, y1 = item.box()
        framed = (min(x1, 1) - max(x0, 0)) * (min(y1, 1) - max(y0, 0)) / ((x1 - x0) * (y1 - y0))
        parts.append(framed * float((mask & ~covered).sum()) / max(inside, 1))
        covered |= mask
    return parts[::-1]


def compose(index: int, seed: int = 0, crowd: str = "few") -> Scene:
    """Decide everything about scene ``index``: context, objects, their poses and places.

    Objects are moved until each shows at least :data:`MIN_VISIBLE` of itself; if that does not
    succeed they become smaller, down to a size at which they stand side by side.

    Args:
        index: of the scene.
        seed: of the data set.
        crowd: a kind of :data:`satl.scenes.contexts.CROWDS`.
    """
    many = crowd == "many"
    entropy = [seed, index, _MANY] if many else [seed, index]
    dice = Dice(np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy))))
    context, names = choose_categories(dice, crowd)
    look = dice.pick(list(CONTEXTS)) if dice.chance(FOREIGN_BACKDROP) else context
    around = _surroundings(dice, look, _HIGH_HORIZON if many else _HORIZON)
    shrink = 1.5 / math.sqrt(len(names)) if many else {2: 1.08, 3: 1.0, 4: 0.88}[len(names)]
    objects = [_make_item(dice, name, shrink) for name in names]
    if dice.chance(0.12):
        twin = dice.pick(names)
        objects.append(_make_item(dice, twin, shrink * 0.8))
    clutter: list[SceneItem] = []
    for _ in range(dice.weighted((0.5, 0.35, 0.15))):
        brush = Brush(dice)
        dice.pick(CLUTTER[look])(brush)
        clutter.append(
            SceneItem(brush, None, dice.between(0.12, 0.24), dice.between(-8, 8), dice.chance(0.5), 1.0)
        )
    items: list[SceneItem] = []
    for attempt in range(12):
        items = _arrange(dice, objects, clutter if attempt < 6 else [], around)
        parts = visible_parts(items)
        if all(
            part >= MIN_VISIBLE for part, item in zip(parts, items, strict=True) if item.category is not None
        ):
            return Scene(context, around, items)
        if attempt % 2:
            for item in objects:
                item.scale *= 0.93
                item.__post_init__()
    return Scene(context, around, _side_by_side(objects[: len(names)]))


def compose_object(index: int, seed: int = 0) -> Scene:
    """Decide everything about a picture of one object alone: any category, as likely as any other, on any backdrop.

    It says nothing about which objects occur together or where; only the scenes do.
    """
    dice = Dice(np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, index, _ALONE]))))
    name, look = dice.pick(list(CATEGORIES)), dice.pick(list(CONTEXTS))
    around = _surroundings(dice, look, _HORIZON)
    item = _make_item(dice, name, dice.between(0.8, 1.25))
    return Scene(look, around, _arrange(dice, [item], [], around))


def _surroundings(dice: Dice, look: str, horizons: tuple[float, float]) -> Surroundings:
    horizon = dice.between(*horizons)
    light = _make_light(dice)
    backdrop = Brush(dice)
    gradient = BACKDROPS[look](backdrop, horizon)
    outdoors = look in OUTDOORS
    if outdoors:
        add_clouds(backdrop, horizon)
    return Surroundings(horizon, light, backdrop, gradient, outdoors, water=look == "sea")


def _arrange(
    dice: Dice, objects: list[SceneItem], clutter: list[SceneItem], around: Surroundings
) -> list[SceneItem]:
    """Place clutter anywhere low, then each object where it overlaps the others least of a few tries."""
    for item in clutter:
        _place(dice, item, "ground", around)
    allowed = dice.pick((0.0, 0.1, 0.2, 0.3))
    placed: list[SceneItem] = []
    for item in sorted(objects, key=lambda one: -one.scale):
        best, spot = math.inf, (0.0, 0.0, 0.0, False)
        place = CATEGORIES[str(item.category)].place
        for _ in range(_TRIES):
            _place(dice, item, place, around)
            worst = max((_overlap(item, other) for other in placed), default=0.0)
            if worst < best:
                best, spot = worst, (item.x, item.y, item.depth, item.grounded)
            if best <= allowed:
                break
        item.x, item.y, item.depth, item.grounded = spot
        placed.append(item)
    return sorted([*clutter, *placed], key=lambda one: one.depth)


def _side_by_side(objects: list[SceneItem]) -> list[SceneItem]:
    """Last resort: one object in each cell of a square grid, of four where they are enough, small enough to fit."""
    rows = 2 if len(objects) <= 4 else math.ceil(math.sqrt(len(objects)))
    for number, item in enumerate(objects):
        span = max(item.high[0] - item.low[0], item.high[1] - item.low[1])
        item.scale *= min(1.0, 0.94 / rows / span)
        item.__post_init__()
        item.x = (0.5 + number % rows) / rows - (item.low[0] + item.high[0]) / 2
        item.y = (0.5 + number // rows) / rows - (item.low[1] + item.high[1]) / 2
    return list(objects)


def paint(scene: Scene, size: int) -> NDArray[np.uint8]:
    """Paint a scene, shape (size, size, 3), uint8 RGB."""
    factor = 4 if size <= 96 else 3 if size <= 256 else 2
    wide = size * factor
    ramp = np.linspace(0, 1, wide)[:, None, None]
    top, bottom = (np.array(colour) for colour in scene.around.gradient)
    column = (top + (bottom - top) * np.minimum(ramp * 1.6, 1)).astype(np.uint8)
    canvas = Image.fromarray(column).resize((wide, wide), Image.Resampling.NEAREST)
    draw = ImageDraw.Draw(canvas)
    glaze = ImageDraw.Draw(canvas, "RGBA")
    scene.around.backdrop.paint(draw, np.eye(2) * wide, (0, 0))
    for item in scene.items:
        place = (item.x * wide, item.y * wide)
        if item.grounded:
            x0, _, x1, y1 = item.box()
            shadow = circle((x0 + x1) / 2, y1 - 0.005, 0.46 * (x1 - x0), 0.022) * wide
            glaze.polygon(shadow.ravel().tolist(), fill=(20, 16, 30, 70))
        item.brush.paint(draw, item.matrix(wide), place, _CONTOUR, wide * 0.0065)
    return _lit(canvas.reduce(factor), scene.around.light)


def _lit(image: Image.Image, light: Light) -> NDArray[np.uint8]:
    """Apply blur, contrast, light and noise to a painted picture."""
    size = image.width
    if light.blur:
        image = image.filter(ImageFilter.GaussianBlur(light.blur * size))
    pixels: NDArray[np.float32] = np.asarray(image, dtype=np.float32)
    pixels = (pixels - 128) * np.float32(light.contrast) + 128
    axis = np.linspace(-1, 1, size, dtype=np.float32)
    slant = np.float32(1) + axis * np.float32(light.across) + axis[:, None] * np.float32(light.down)
    pixels = pixels * slant[:, :, None] * np.array(light.gains, dtype=np.float32)
    rng = np.random.Generator(np.random.PCG64(light.noise_seed))
    pixels += rng.standard_normal((size, size, 1), dtype=np.float32) * np.float32(light.noise)
    return np.clip(pixels, 0, 255).astype(np.uint8)

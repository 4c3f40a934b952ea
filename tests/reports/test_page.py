from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.text import Text
from PIL import Image

from satl.drawing import style
from satl.drawing.html import image_uri, inline_svg, render
from satl.inference.run_record import MethodRecord
from satl.methods import METHODS
from satl.reports import distributions, figures
from satl.reports.comparison import Comparison
from satl.reports.comparison_page import _pseudo_sentence, comparison_page
from satl.reports.overview import write_overview

NAMES = ("cat", "<b>dog</b>", "a & b", "ship", "rare")


def _record(name: str, generators: tuple[str, ...], images: int, epochs: int = 4) -> MethodRecord:
    rng = np.random.default_rng(len(name))
    classes = len(NAMES)
    rows = []
    for epoch in range(epochs):
        stage = 1 if epoch == 0 else 2
        rows.append(
            {
                "epoch": epoch,
                "stage": stage,
                "losses": {"total": 1.0, "classification": 1 / (epoch + 1)}
                | ({"pseudo": 0.4} if stage == 2 and generators else {}),
                "thresholds": {g: (0.5 + 0.1 * rng.random(classes)).tolist() for g in generators},
                "pseudo_labels": (
                    {"union": {"emitted": 3, "micro_precision": 0.5, "micro_recall": None}}
                    if stage == 2 and generators
                    else {}
                ),
                "val": {"mAP": 0.3 + 0.01 * epoch},
            }
        )
    scores = {generator: rng.random((images, classes)) for generator in generators}
    for values in scores.values():
        values[0] = np.nan
    limits = {
        g: np.full(classes, 0.6) if name == "sst" else 0.5 + 0.1 * rng.random(classes) for g in generators
    }
    return MethodRecord(
        name=name,
        epochs=rows,
        summary={"mAP": 0.4, "OF1": 0.3, "CF1": None},
        average_precision=np.array([0.9, 0.7, 0.4, 0.2, np.nan]),
        scores=scores,
        thresholds=limits,
        best_epoch=epochs - 1,
        seconds=12.0,
    )


def _comparison(truth: bool = True, generators: bool = True, epochs: int = 4) -> Comparison:
    rng = np.random.default_rng(0)
    images = 40
    full = np.where(rng.random((images, len(NAMES))) < 0.4, 1, -1).astype(np.int8)
    cells = np.where(rng.random(full.shape) < 0.3, full, 0).astype(np.int8)
    cells[:, -1] = np.minimum(cells[:, -1], 0)  # a class without a known positive
    used = ("intra", "cross") if generators else ()
    names = ("ignore", "sst", "sst+satl")
    methods = tuple(_record(name, used if name != "ignore" else (), images, epochs) for name in names)
    return Comparison(
        classes=NAMES,
        images=tuple(f"{row}.png" for row in range(images)),
        cells=cells,
        truth=full if truth else None,
        methods=methods,
        counts={"train": images, "val": 8, "test": 9},
        seed=3,
    )


def _picture(row: int):
    return np.full((24, 24, 3), row * 5, dtype=np.uint8)


class _Checker(HTMLParser):
    VOID = frozenset({"meta", "img", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        for key, value in attrs:
            if key == "id":
                self.ids.append(value)
            if key in {"src", "href"}:
                self.addresses.append(value)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page() -> str:
    return comparison_page(_comparison(), _picture, "satl demo")


def test_page_is_whole_and_needs_nothing_else(page):
    checker = _Checker()
    checker.feed(page)
    assert checker.open == []
    assert len(checker.ids) == len(set(checker.ids))
    assert all(address.startswith(("data:image/", "#")) for address in checker.addresses)
    local = {address[1:] for address in checker.addresses if address.startswith("#")}
    local |= set(re.findall(r"url\(#([^)]+)\)", page))
    assert local <= set(checker.ids)
    assert "://" not in page
    assert "@import" not in page


def test_page_escapes_class_names(page):
    assert "<b>dog</b>" not in page
    assert "&lt;b&gt;dog&lt;/b&gt;" in page
    assert "a &amp; b" in page


def test_page_follows_light_and_dark(page):
    assert "prefers-color-scheme: dark" in page
    figures_only = "".join(re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL))
    bare = re.sub(r"var\(--[\w-]+, #[0-9a-f]{6}\)", "", figures_only)
    assert not re.findall(r"#[0-9a-f]{6}\b", bare)


def test_page_is_the_same_every_time(page):
    assert comparison_page(_comparison(), _picture, "satl demo") == page


def test_page_has_every_part(page):
    for heading in (
        "hidden labels",
        "pseudo-labels are",
        "One threshold",
        "thresholds come",
        "Known against",
        "Training",
    ):
        assert re.search(f"<h2>[^<]*{heading}", page)
    assert page.count('class="card"') == 6
    assert "Kolmogorov-Smirnov" in page


def test_page_without_truth_judges_nothing():
    page = comparison_page(_comparison(truth=False), _picture, "satl demo")
    assert "Known against unknown" not in page
    assert "wrongly recovered" not in page
    assert "pseudo-label" in page


def test_page_without_generators():
    page = comparison_page(_comparison(generators=False), _picture, "satl demo")
    assert "One threshold per class" not in page
    assert "Training" in page


def test_page_of_one_epoch():
    assert "Training" in comparison_page(_comparison(epochs=1), _picture, "satl demo")


def test_text_of_figures_keeps_its_digits():
    figure = figures.curves({"sst": ([1, 2, 3], [0.1234, 0.1834, 0.1934])}, ylabel="0.123456 things")
    svg = inline_svg(figure, "k", 'a "label"')
    assert "0.123456 things" in svg
    assert "DejaVu" not in svg  # letters are the page's
    assert "var(--sans, sans-serif)" in svg
    assert 'aria-label="a &#34;label&#34;"' in svg


def test_figures_leave_the_users_settings_alone():
    import matplotlib as mpl

    with mpl.rc_context({"font.size": 31}):
        inline_svg(figures.curves({"sst": ([1, 2], [0.1, 0.2])}, ylabel="y"), "k", "lines")
        assert mpl.rcParams["font.size"] == 31


def test_distributions_of_nothing_can_be_drawn():
    empty: list[float] = []
    assert "<svg" in inline_svg(distributions.score_distributions(empty, [np.nan]), "a", "x")
    assert "<svg" in inline_svg(distributions.known_against_unknown((empty, empty), (empty, empty)), "b", "x")


def test_labels_at_line_ends_do_not_overlap():
    values = np.tile([[0.5, 0.5, 0.5001, 0.9]], (3, 1))
    figure = figures.threshold_trajectories(
        [1, 2, 3],
        values,
        classes=("a", "b", "c", "d"),
        highlighted=[0, 1, 2],
        reference=([1, 3], [0.5, 0.5], "all"),
    )
    figure.draw_without_rendering()
    boxes = sorted(Text.get_window_extent(text).extents[[1, 3]].tolist() for text in figure.axes[0].texts)
    assert len(boxes) == 4
    assert all(lower[1] <= upper[0] + 1 for lower, upper in pairwise(boxes))


def test_colours_can_be_told_apart():
    lights = [colour.light for colour in style.COLOURS]
    assert len(set(lights)) == len(lights)
    assert len({colour.name for colour in style.COLOURS}) == len(lights)


@pytest.mark.parametrize("dark", [False, True])
def test_colours_can_be_read_on_their_paper(dark):
    def luminance(value: str) -> float:
        parts = [int(value[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))

    def contrast(colour: style.Colour) -> float:
        pair = sorted(luminance(c.dark if dark else c.light) for c in (colour, style.PAPER))
        return (pair[1] + 0.05) / (pair[0] + 0.05)

    for colour in (style.INK, style.MUTED, style.PRESENT, style.WRONG, style.SEMANTIC):
        assert contrast(colour) >= 4.5, colour
    looks = [style.method_style(name) for name in METHODS]
    for colour in (style.UNKNOWN, *(look.colour for look in looks)):
        assert contrast(colour) >= 3, colour


def test_every_method_has_a_look_of_its_own():
    looks = [style.method_style(name) for name in METHODS]
    assert len({look.colour for look in looks}) == len(looks)
    assert len({(look.dash, look.marker) for look in looks}) == len(looks)  # in grey too
    bars = {look.hatch for name, look in zip(METHODS, looks, strict=True) if name.startswith("sst")}
    assert len(bars) == sum(name.startswith("sst") for name in METHODS)


def test_an_unknown_method_keeps_its_look():
    names = [f"method-{number}" for number in range(40)]
    looks = {name: style.method_style(name) for name in names}
    assert looks == {name: style.method_style(name) for name in reversed(names)}
    assert all(look.title == name for name, look in looks.items())
    assert len({(look.colour, look.dash, look.marker) for look in looks.values()}) > 20


def test_the_more_is_known_the_darker():
    reds = [style.proportion_style(proportion)[0] for proportion in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)]
    light = [
        np.dot([int(colour[i : i + 2], 16) for i in (1, 3, 5)], (0.299, 0.587, 0.114)) for colour in reds
    ]
    assert light == sorted(light, reverse=True)


def test_render_wants_every_name():
    with pytest.raises(Exception, match="undefined"):
        render("satl.reports", "comparison.html.j2", title="x")


def test_image_uri_is_an_image():
    assert image_uri(_picture(1)).startswith("data:image/jpeg;base64,")


@pytest.mark.parametrize(("truth", "generators"), [(True, True), (False, True), (True, False)])
def test_overview_is_a_picture(tmp_path, truth, generators):
    path = tmp_path / "overview.png"
    write_overview(_comparison(truth, generators), _picture, path)
    with Image.open(path) as image:
        assert image.size == (1800, 900)
    assert [entry.name for entry in tmp_path.iterdir()] == ["overview.png"]


def test_numbers_of_a_page_are_written_in_one_way():
    comparison = _comparison()
    many = replace(
        comparison.methods[-1], thresholds={g: np.full(len(NAMES), -1.0) for g in ("intra", "cross")}
    )
    wide = {g: np.ones((2000, len(NAMES))) for g in many.scores}
    many = replace(many, scores=wide)
    large = replace(
        comparison,
        images=tuple(f"{row}.png" for row in range(2000)),
        cells=np.zeros((2000, len(NAMES)), dtype=np.int8),
        truth=None,
        methods=(many,),
    )
    assert "fills 10,000 unknown cells" in _pseudo_sentence(large)


def test_a_method_without_pseudo_labels_says_so():
    comparison = _comparison()
    assert "next to no pseudo-labels" not in _pseudo_sentence(comparison)
    last = {**comparison.methods[1].epochs[-1], "pseudo_labels": {"union": {"emitted": 3, "expected": 400.0}}}
    silent = replace(comparison.methods[1], epochs=[*comparison.methods[1].epochs[:-1], last])
    said = _pseudo_sentence(
        replace(comparison, methods=(comparison.methods[0], silent, comparison.methods[2]))
    )
    assert " SST made next to no pseudo-labels in the last epoch, under 1 % of the positives" in said

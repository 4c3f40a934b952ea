from __future__ import annotations

import hashlib
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw
from typer.testing import CliRunner

from satl.cli import add_commands
from satl.errors import ConfigError
from satl.labels import read_table
from satl.scenes import SCENE_CLASSES, make_scenes, render_scene, write_scenes
from satl.scenes.brush import Brush, Dice, circle, clip, rectangle
from satl.scenes.contexts import COMPANIONS, CONTEXTS, choose_categories
from satl.scenes.objects import CATEGORIES, draw_category
from satl.scenes.render import MIN_VISIBLE, SceneItem, compose, visible_parts


@pytest.fixture(scope="module")
def drawn_labels() -> np.ndarray:
    """Presence of every category in 6,000 draws of the contexts, shape (6000, C)."""
    presence = np.zeros((6000, len(SCENE_CLASSES)), dtype=bool)
    for row in range(len(presence)):
        _, names = choose_categories(Dice(np.random.Generator(np.random.PCG64(row))))
        presence[row, [SCENE_CLASSES.index(name) for name in names]] = True
    return presence


def lift(presence: np.ndarray, first: str, second: str) -> float:
    a, b = presence[:, SCENE_CLASSES.index(first)], presence[:, SCENE_CLASSES.index(second)]
    return float((a & b).mean() / (a.mean() * b.mean()))


def digest(pixels: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(pixels).tobytes()).hexdigest()


def test_classes_are_unique_and_enough():
    assert len(SCENE_CLASSES) == len(set(SCENE_CLASSES)) >= 20


@given(seed=st.integers(0, 2**63 - 1), index=st.integers(0, 10**6), size=st.sampled_from([32, 48, 64]))
@settings(max_examples=25, deadline=None)
def test_any_scene_is_valid_and_repeats_itself(seed, index, size):
    pixels, labels = render_scene(index, size, seed)
    again, same_labels = render_scene(index, size, seed)
    assert pixels.shape == (size, size, 3)
    assert pixels.dtype == np.uint8
    assert labels.shape == (len(SCENE_CLASSES),)
    assert labels.dtype == np.int8
    assert set(np.unique(labels)) == {-1, 1}
    assert 2 <= (labels == 1).sum() <= 4
    assert digest(pixels) == digest(again)
    assert (labels == same_labels).all()
    assert pixels.std() > 5


def test_pictures_of_few_objects_have_not_changed():
    """What runs were trained on must be drawn again to the bit, whatever kinds of pictures there are beside them."""
    pixels, table = make_scenes(24, 48, seed=5)
    assert digest(pixels)[:16] == "f5a6e68c12f6bcf4"
    assert digest(table.cells)[:16] == "18c70bd179116f0a"


def test_a_picture_of_many_objects_shows_ten_classes_and_more():
    pixels, table = make_scenes(200, 32, seed=2, objects="many")
    present = table.cells == 1
    assert present.sum(1).min() >= 8
    assert present.sum(1).max() <= 14
    assert present.sum(1).mean() >= 10
    assert 0.1 < present.mean(0).min() < present.mean(0).max() < 0.9
    cup, bottle, truck = (SCENE_CLASSES.index(name) for name in ("cup", "bottle", "truck"))
    together = present[present[:, cup]].mean(0)
    assert together[bottle] > 0.9, "companions still come together"
    assert together[truck] < 0.5
    few, _ = make_scenes(3, 32, seed=2)
    assert not (few == pixels[:3]).all(axis=(1, 2, 3)).any()
    one, labels = render_scene(7, 32, seed=2, objects="many")
    assert (one == pixels[7]).all()
    assert (labels == table.cells[7]).all()


def test_scene_depends_on_seed_and_index_but_not_on_count_or_start():
    many, table = make_scenes(8, 32, seed=3)
    few, part = make_scenes(3, 32, seed=3, start=4)
    assert (many[4:7] == few).all()
    assert (table.cells[4:7] == part.cells).all()
    assert table.images[4:7] == part.images == ("scene-00004.png", "scene-00005.png", "scene-00006.png")
    assert len({digest(one) for one in many}) == 8
    assert digest(many[0]) != digest(render_scene(0, 32, seed=4)[0])


def test_content_and_labels_are_the_same_at_every_size():
    for index in range(12):
        small, labels = render_scene(index, 32)
        middle, middle_labels = render_scene(index, 64)
        large, large_labels = render_scene(index, 224)
        assert small.shape[0] == 32
        assert middle.shape[0] == 64
        assert large.shape[0] == 224
        assert (labels == middle_labels).all()
        assert (labels == large_labels).all()
        shrunk = large.reshape(32, 7, 32, 7, 3).mean(axis=(1, 3))
        likeness = np.corrcoef(small.astype(float).ravel(), shrunk.ravel())[0, 1]
        assert likeness > 0.8


def test_workers_do_not_change_the_result():
    alone, table = make_scenes(6, 32, seed=1)
    together, other = make_scenes(6, 32, seed=1, workers=2)
    assert (alone == together).all()
    assert table == other


def test_a_broken_pool_is_finished_in_this_process(monkeypatch):
    class BreakingPool:
        def __init__(self, *arguments: object, **options: object) -> None: ...

        def __enter__(self) -> BreakingPool:
            return self

        def __exit__(self, *arguments: object) -> None: ...

        def map(self, draw, indices, chunksize):
            yield draw(indices[0])
            yield draw(indices[1])
            raise BrokenProcessPool

    expected, table = make_scenes(5, 32, seed=6)
    monkeypatch.setattr("satl.scenes.ProcessPoolExecutor", BreakingPool)
    pixels, same = make_scenes(5, 32, seed=6, workers=2)
    assert (pixels == expected).all()
    assert same == table


def test_frequencies_have_a_long_tail(drawn_labels):
    share = np.sort(drawn_labels.mean(axis=0))
    assert 0.25 <= share[-1] <= 0.32
    assert 0.025 <= share[0] <= 0.055
    assert np.median(share) < 0.6 * share[-1]
    assert 2.8 <= drawn_labels.sum(axis=1).mean() <= 3.2


def test_contexts_shape_co_occurrence(drawn_labels):
    for first, second in COMPANIONS.items():
        assert lift(drawn_labels, first, second) > 2.5, (first, second)
    assert lift(drawn_labels, "laptop", "cup") > 1.5  # of one context, though no companions
    for first, second in (("car", "cup"), ("sailboat", "lamp"), ("sheep", "laptop")):
        assert lift(drawn_labels, first, second) < 0.3, (first, second)
    # A rare stranger must be possible: no pair of frequent categories is forbidden.
    common = drawn_labels.mean(axis=0) > 0.12
    together = drawn_labels.T.astype(int) @ drawn_labels.astype(int)
    assert (together[np.ix_(common, common)] > 0).all()


def test_context_tables_name_existing_categories():
    assert abs(sum(context.share for context in CONTEXTS.values()) - 1) < 1e-9
    for context in CONTEXTS.values():
        assert set(context.weights) <= set(SCENE_CLASSES)
    assert set(COMPANIONS) == set(SCENE_CLASSES)
    assert all(COMPANIONS[COMPANIONS[name]] == name for name in COMPANIONS)


def test_a_context_does_not_decide():
    seen: dict[str, set[str]] = {}
    for row in range(3000):
        context, names = choose_categories(Dice(np.random.Generator(np.random.PCG64(row))))
        for name in names:
            seen.setdefault(name, set()).add(context)
    assert min(len(contexts) for contexts in seen.values()) >= 3


@pytest.mark.parametrize("name", SCENE_CLASSES)
def test_each_category_alone_changes_enough_pixels(name):
    for seed in range(4):
        brush = draw_category(name, Dice(np.random.Generator(np.random.PCG64(seed))))
        x0, y0, x1, y1 = brush.bounds()
        assert 0.8 <= max(x1 - x0, y1 - y0) <= 1.15, "its scale is the part of the image side that it takes"
        canvas = Image.new("RGB", (64, 64), (128, 160, 128))
        before = np.asarray(canvas).copy()
        scale = 64 * CATEGORIES[name].scale[0]
        brush.paint(ImageDraw.Draw(canvas), np.eye(2) * scale, (32, 32))
        changed = (np.abs(np.asarray(canvas).astype(int) - before).sum(axis=2) > 20).sum()
        assert changed >= 70


@pytest.mark.parametrize(("crowd", "num", "least", "most"), [("few", 250, 2, 4), ("many", 80, 8, 14)])
def test_labelled_objects_are_visible_and_nothing_else_is_labelled(crowd, num, least, most):
    overlapping = 0
    for index in range(num):
        scene = compose(index, 9, crowd)
        parts = visible_parts(scene.items)
        shown = {item.category for item in scene.items if item.category is not None}
        assert least <= len(shown) <= most
        for item, part in zip(scene.items, parts, strict=True):
            if item.category is not None:
                assert part >= MIN_VISIBLE
                assert item.mask().sum() >= 30
                overlapping += part < 0.97
    assert overlapping > 50, "objects are meant to hide parts of each other"


def _square(x: float, y: float, scale: float = 0.5) -> SceneItem:
    brush = Brush(Dice(np.random.Generator(np.random.PCG64(0))))
    brush.box(-0.5, -0.5, 0.5, 0.5, (200, 0, 0))
    return SceneItem(brush, "ball", scale, 0.0, False, 1.0, x, y)


def test_visible_parts_count_cover_and_frame():
    back, front = _square(0.25, 0.5), _square(0.5, 0.5)
    assert visible_parts([back, front]) == pytest.approx([0.5, 1.0], abs=0.05)
    assert visible_parts([front, back]) == pytest.approx([0.5, 1.0], abs=0.05)
    assert visible_parts([_square(0.0, 0.5)]) == pytest.approx([0.5], abs=0.05)
    assert visible_parts([_square(0.0, 0.0)]) == pytest.approx([0.25], abs=0.05)


def test_clip_and_circle_are_exact():
    half = clip(rectangle(0, 0, 2, 2), (1.0, 0.0), 1.0)
    assert sorted(map(tuple, half.tolist())) == [(0, 0), (0, 2), (1, 0), (1, 2)]
    assert len(clip(rectangle(0, 0, 1, 1), (1.0, 0.0), -1.0)) == 0
    assert np.hypot(*circle(0, 0, 3).T) == pytest.approx(3)


def test_background_alone_does_not_look_the_same_twice():
    scenes, _ = make_scenes(40, 32, seed=2)
    corners = {tuple(one[0, 0] // 16) for one in scenes}
    assert len(corners) > 20


@pytest.mark.parametrize("image_format", ["png", "jpg"])
def test_written_folder_reads_back(tmp_path, image_format):
    table = write_scenes(tmp_path / "data", 5, size=32, seed=4, image_format=image_format)
    assert read_table(tmp_path / "data" / "labels.csv") == table
    files = sorted(path.name for path in (tmp_path / "data").iterdir())
    assert files == ["labels.csv", *table.images]
    pixels, _ = make_scenes(5, size=32, seed=4)
    for row, name in enumerate(table.images):
        with Image.open(tmp_path / "data" / name) as image:
            difference = np.abs(np.asarray(image).astype(int) - pixels[row])
        assert difference.mean() <= (0 if image_format == "png" else 12)


def test_command_writes_the_data_set(tmp_path):
    app = typer.Typer()
    app.callback()(lambda: None)
    add_commands(app, "scenes")
    result = CliRunner().invoke(
        app, ["scenes", "--out", str(tmp_path), "--count", "1", "--size", "40", "--seed", "2"]
    )
    assert result.exit_code == 0, result.output
    assert "1 images of 40 x 40 pixels" in result.output
    with Image.open(tmp_path / "scene-00000.png") as image:
        assert image.size == (40, 40)
    again = ["scenes", "--out", str(tmp_path), "--count", "1", "--size", "32"]
    crowded = CliRunner().invoke(
        app, ["scenes", "--out", str(tmp_path / "many"), "--count", "1", "--size", "32", "--objects", "many"]
    )
    assert crowded.exit_code == 0, crowded.output
    table = read_table(tmp_path / "many" / "labels.csv")
    assert (table.cells == 1).sum() >= 8
    refused = CliRunner().invoke(app, again)
    assert isinstance(refused.exception, ConfigError)
    assert CliRunner().invoke(app, [*again, "--force"]).exit_code == 0
    with Image.open(tmp_path / "scene-00000.png") as image:
        assert image.size == (32, 32)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"count": 0}, "count=0: "),
        ({"count": 1, "size": 4}, "size=4: "),
        ({"count": 1, "start": -1}, "start=-1: "),
        ({"count": 1, "image_format": "gif"}, "image_format='gif': "),
        ({"count": 1, "objects": "some"}, "objects='some': scenes show few objects or many; use few or many"),
    ],
)
def test_impossible_wishes_are_refused_before_anything_is_written(tmp_path, arguments, word):
    with pytest.raises(ConfigError, match=word):
        write_scenes(tmp_path / "data", **arguments)
    assert not (tmp_path / "data").exists()


def test_a_place_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path / "afile").write_text("mine")
    with pytest.raises(
        ConfigError, match=r"afile/s': .*afile is a file, not a folder; give another place\.$"
    ):
        write_scenes(tmp_path / "afile" / "s", 1, size=32)
    with pytest.raises(ConfigError, match=r"^out='/proc/s': cannot be written \(No such file or directory\)"):
        write_scenes("/proc/s", 1, size=32)


def test_a_folder_with_labels_is_replaced_only_when_asked(tmp_path):
    (tmp_path / "labels.csv").write_text("mine")
    with pytest.raises(
        ConfigError, match=r"holds a labels\.csv already; give another folder, or pass force=True"
    ):
        write_scenes(tmp_path, 2, size=32)
    assert [path.name for path in tmp_path.iterdir()] == ["labels.csv"]
    assert (tmp_path / "labels.csv").read_text() == "mine"
    table = write_scenes(tmp_path, 2, size=32, force=True)
    assert read_table(tmp_path / "labels.csv") == table


def test_forced_scenes_that_are_cut_off_leave_no_labels_of_other_pictures(tmp_path, monkeypatch):
    write_scenes(tmp_path, 2, size=32)

    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("satl.scenes.write_table", stop)
    with pytest.raises(KeyboardInterrupt):
        write_scenes(tmp_path, 1, size=40, seed=1, force=True)
    assert not (tmp_path / "labels.csv").exists()


def test_negative_seed_is_refused():
    with pytest.raises(ConfigError, match="seed=-1: "):
        render_scene(0, 32, seed=-1)

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import yaml
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from reports.clear_text import assert_text_is_clear
from reports.synthetic import class_names, write_experiment, write_run
from satl.drawing.diagram import Diagram
from satl.errors import SatlError
from satl.experiments.finished_runs import RunGroup, find_runs, group_runs
from satl.inference.run_record import read_record, write_record
from satl.reports.paper_figures import diagrams, figure_files
from satl.reports.paper_figures.common import Missing
from satl.reports.paper_figures.figure_files import NUMBERS, draw_each, draw_figures
from satl.reports.paper_figures.loss_curves import class_loss, known_loss

OF_A_GROUP = {figure.number: figure.draw for figure in figure_files._OF_A_GROUP}
OF_CLASSES = (1, 2, 6, 8, 9, 12)
"""The figures that name classes, which may be few, many or long."""


def group_of(folder: Path) -> RunGroup:
    (group,) = group_runs(find_runs([folder])[0])
    return group


@pytest.fixture(scope="module")
def experiment(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("figures") / "experiment"
    return write_experiment(folder, proportions=(0.2, 0.5), seeds=2, images=200)


@pytest.fixture(scope="module")
def group(experiment) -> RunGroup:
    return group_of(experiment)


def draw(number: int, group: RunGroup) -> Figure:
    whole: dict[int, Callable[[], Figure]] = {
        3: figure_files.pipeline,
        4: figure_files.ranking_sketch,
        5: lambda: figure_files.training_time([group]),
    }
    return whole[number]() if number in whole else OF_A_GROUP[number](group)


@pytest.fixture(scope="module")
def texts(group) -> Callable[[int], list[str]]:
    """Return what gives the texts of a figure, which is drawn and checked once."""
    return lru_cache(lambda number: assert_text_is_clear(draw(number, group)))


@pytest.fixture(scope="module")
def long_names(tmp_path_factory) -> Callable[[int], RunGroup]:
    """Return what gives a group with so many classes of the longest names."""

    @lru_cache
    def make(count: int) -> RunGroup:
        folder = tmp_path_factory.mktemp("long")
        for method in ("sst", "sst+satl"):
            write_run(folder / method, method, classes=class_names(count, long=True), images=120)
        return group_of(folder)

    return make


@pytest.mark.parametrize("number", NUMBERS)
def test_no_text_lies_over_another_or_leaves_the_canvas(texts, number):
    assert max(map(len, texts(number))) > 30  # the note that says what is shown is there


@pytest.mark.parametrize(("count", "number"), [(3, 6), (3, 8), (80, 1), (80, 6), (80, 9), (80, 12)])
def test_long_names_of_few_and_of_many_classes(long_names, number, count):
    assert_text_is_clear(draw(number, long_names(count)))


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 80])
@pytest.mark.parametrize("number", OF_CLASSES)
def test_long_names_in_every_figure_that_names_classes(long_names, number, count):
    assert_text_is_clear(draw(number, long_names(count)))


@pytest.mark.slow
@pytest.mark.parametrize(("count", "number"), [(200, 6), *((1, number) for number in OF_CLASSES)])
def test_very_many_classes_and_a_single_one(tmp_path, number, count):
    for method in ("sst", "sst+satl"):
        write_run(tmp_path / method, method, classes=class_names(count), images=120)
    assert_text_is_clear(draw(number, group_of(tmp_path)))


def test_names_with_signs_are_shown_as_they_are(tmp_path):
    names = ("$5 and $10", "a_b^c", "<b>&amp;</b>", "two\nlines")
    write_run(tmp_path / "run", "sst+satl", classes=names, images=200)
    texts = assert_text_is_clear(draw(6, group_of(tmp_path)))
    for name in ("$5 and $10", "a_b^c", "<b>&amp;</b>", "two lines"):
        assert any(text.startswith(f"{name} (") for text in texts)


def test_the_helper_sees_what_a_reader_would():
    figure = Figure(figsize=(2, 1))
    FigureCanvasAgg(figure)
    figure.text(0.1, 0.5, "one text")
    other = figure.text(0.1, 0.1, "another")
    assert assert_text_is_clear(figure) == ["one text", "another"]
    other.set_position((0.2, 0.52))
    with pytest.raises(AssertionError, match="overlap"):
        assert_text_is_clear(figure)
    other.set_position((0.9, 0.1))
    with pytest.raises(AssertionError, match="leaves the canvas"):
        assert_text_is_clear(figure)


@pytest.mark.parametrize("number", [1, 2, 8])
def test_the_generator_is_named(texts, number):
    assert any(text.startswith(("cross-image", "SST+SATL\ncross-image")) for text in texts(number))
    if number == 8:
        assert any(text.startswith("HST\nprototype") for text in texts(number))


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (6, "union of the intra-image and cross-image generators"),
        (7, "union of each method's generators (intra-image, cross-image, prototype)"),
        (9, "HST against HST+SATL"),
        (10, "union of the intra-image and prototype generators"),
        (11, "union of the intra-image and cross-image generators"),
        (12, "union of the intra-image and cross-image generators"),
        (13, "n = 2 seeds"),
    ],
)
def test_the_note_says_what_is_shown(texts, number, words):
    notes = [text.replace("\n", " ").replace("\u00a0", " ") for text in texts(number)]
    note = next(text for text in notes if text.startswith("drawn scenes"))
    assert words in note
    if number != 9:
        assert "n = 2 seeds" in note


def test_every_box_of_the_diagram_holds_its_text(monkeypatch):
    boards: list[Diagram] = []
    monkeypatch.setattr(diagrams, "Diagram", lambda figure: boards.append(Diagram(figure)) or boards[-1])
    figure = diagrams.pipeline()
    (diagram,) = boards
    assert len(diagram.boxes) == 11
    for box in diagram.boxes:
        for text in box.texts:
            place = text.get_window_extent(figure.canvas.get_renderer()).extents / figure.dpi
            assert place[0] >= box.x + 0.01, text.get_text()
            assert place[2] <= box.x + box.width - 0.01, text.get_text()
            assert place[1] >= box.y, text.get_text()
            assert place[3] <= box.y + box.height, text.get_text()


def test_figures_show_the_numbers_of_the_runs(group):
    proportions = group.proportions(["sst"])
    for axes, kind in zip(draw(7, group).axes, ("precision", "recall"), strict=True):
        (line,) = [line for line in axes.get_lines() if line.get_marker() == "D"]
        expected = [np.mean([run.row()[f"pseudo_{kind}"] for run in group.of("sst", p)]) for p in proportions]
        np.testing.assert_allclose(line.get_ydata(), expected)
        low, high = axes.get_ylim()
        assert low <= 0  # not cut
        assert high >= 100
    heights = [bar.get_height() for bar in draw(5, group).axes[0].patches]
    minutes = [
        np.mean([run.row()["train_seconds"] for run in group.of(m)]) / 60
        for m in ("sst", "sst+satl", "hst", "hst+satl")
    ]
    np.testing.assert_allclose(heights, minutes)
    recall = draw(6, group).axes[0].containers
    order = np.argsort(-group.of("sst+satl", 0.2)[0].record.known_positives, kind="stable")
    for container, method in zip(recall, ("sst", "sst+satl"), strict=True):
        values = [run.record.quality["union"].recall for run in group.of(method, 0.2)]
        np.testing.assert_allclose(container.lines[0].get_xdata(), 100 * np.mean(values, axis=0)[order])


def test_the_sketch_of_ranking_moves_only_what_lies_above_the_threshold():
    axes = draw(4, None).axes[0]
    negatives, negatives_after, positives, positives_after = (
        np.asarray(line.get_ydata()) for line in axes.get_lines()[:4]
    )
    scores = np.asarray(axes.get_lines()[0].get_xdata())
    threshold = float(axes.get_lines()[4].get_xdata()[0])
    top = negatives.max()
    bulk = (scores > 0.04) & (scores < threshold - 0.08)
    np.testing.assert_allclose(negatives_after[bulk], negatives[bulk], atol=0.015 * top)
    np.testing.assert_allclose(positives_after[bulk], positives[bulk], atol=0.015 * top)
    above = scores > threshold + 0.03
    # Nothing is lost: what leaves one side of the threshold arrives at the other, or further up.
    assert negatives_after[above].sum() < 0.2 * negatives[above].sum()
    assert negatives_after.sum() == pytest.approx(negatives.sum(), rel=0.01)
    mean_above = [np.average(scores[above], weights=values[above]) for values in (positives, positives_after)]
    assert mean_above[1] > mean_above[0] + 0.02


def with_seconds(folder: Path, factor: Callable[[int], float]) -> RunGroup:
    """Return runs of SST and SST+SATL of three seeds; the latter take ``factor(seed)`` times as long."""
    for seed in range(3):
        for method in ("sst", "sst+satl"):
            run = write_run(folder / f"{method}-{seed}", method, seed=seed, images=60)
            rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
            for row in rows:
                row["train_seconds"] = 100.0 * (factor(seed) if method == "sst+satl" else 1.0)
            (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return group_of(folder)


@pytest.mark.parametrize(
    ("factor", "label", "warning"),
    [
        (lambda seed: 1.04 + 0.01 * seed, "with SATL +5 ± 1 %", None),
        (lambda seed: 0.85 + 0.08 * seed, "with SATL \u22127 ± 8 %", "negative difference is noise"),
        (lambda seed: 1.0 + 0.05 * seed, "with SATL +5 ± 5 %", "less than two standard deviations"),
    ],
)
def test_times_that_say_nothing_carry_a_warning(tmp_path, factor, label, warning):
    texts = assert_text_is_clear(draw(5, with_seconds(tmp_path, factor)))
    assert any(label in text for text in texts)
    note = next(text.replace("\n", " ") for text in texts if text.startswith("Time in training steps"))
    assert "What else the machine did meanwhile is not recorded" in note
    assert ("Warning" in note) == (warning is not None)
    assert warning is None or warning in note


def conditions(group: RunGroup, **changes: object) -> str:
    """Return the note of figure 5 for runs with changed facts."""
    changed = replace(group, runs=tuple(replace(run, **changes) for run in group.runs))
    notes = (text.replace("\n", " ") for text in assert_text_is_clear(draw(5, changed)))
    return next(text for text in notes if text.startswith("Time in training steps"))


def test_times_of_runs_side_by_side_carry_a_warning(group):
    assert "Warning: Up to 4 runs shared the machine" in conditions(group, jobs=4)


@pytest.mark.parametrize(
    ("others", "words"),
    [
        (0.02, "with the same proportion and seed. The machine did next to nothing else meanwhile."),
        (1.37, "Warning: Other programs kept up to 1.4 processors busy."),
        (None, "with the same proportion and seed. What else the machine did meanwhile is not recorded."),
    ],
)
def test_times_from_a_busy_machine_carry_a_warning(tmp_path, others, words):
    alone = with_seconds(tmp_path, lambda seed: 1.04 + 0.01 * seed)
    rows = alone.runs[0].epochs
    seconds = [None if others is None else others * row["train_seconds"] for row in rows]
    epochs = tuple({**row, "other_seconds": one} for row, one in zip(rows, seconds, strict=True))
    assert words in conditions(alone, jobs=1, epochs=epochs)


def test_the_class_loss_counts_pseudo_labels(group):
    run = group.of("sst+satl", 0.2)[0]
    first, last = run.epochs[0], run.epochs[-1]
    assert class_loss(run, first) == known_loss(run, first) == first["losses"]["classification"]
    assert class_loss(run, last) == pytest.approx(last["losses"]["pseudo"] / 2)  # two generators
    method = {**run.config["method"], "losses": {"pseudo": {"weight": 0.5, "fused": True}}}
    changed = replace(run, config={**run.config, "method": method})
    assert class_loss(changed, last) == pytest.approx(last["losses"]["pseudo"] / 0.5)
    panels = draw(13, group).axes
    line = next(line for line in panels[2].get_lines() if len(line.get_xdata()) == 8)
    expected = np.mean(
        [[class_loss(run, row) for row in run.epochs] for run in group.of("sst+satl", 0.2)], axis=0
    )
    np.testing.assert_allclose(line.get_ydata(), expected)
    assert panels[0].get_ylim()[0] == 0


def test_a_rate_left_to_the_proportion_is_shown_where_it_came_to(tmp_path):
    for rate in (0.1, 0.9, None):
        write_run(tmp_path / f"rate-{rate}", "hst+sate", settings={"rate": rate}, images=60)
    (axes, _) = draw(10, group_of(tmp_path)).axes
    np.testing.assert_allclose(axes.get_lines()[0].get_xdata(), [0.1, 0.3, 0.9])


def test_runs_of_a_sweep_do_not_pass_for_the_plain_method(tmp_path, experiment):
    for method, level in (("sst", None), ("sst+satl", 0.999), ("sst+sate", 0.5), ("sst+sate", 0.999)):
        settings = {} if level is None else {"negative_quantile": level}
        write_run(tmp_path / f"{method}-{level}", method, settings=settings, images=40)
    assert [run.path.name for run in group_of(tmp_path).of("sst+sate")] == ["sst+sate-0.999"]
    # An experiment says which cells are plain: it has none of a method that is only swept.
    assert group_of(experiment).of("sst+sate") == ()
    assert len(group_of(experiment).of("sst+satl", 0.2)) == 2


def test_a_repeated_run_counts_once(tmp_path):
    for name in ("one", "two"):
        write_run(tmp_path / name, "sst", seed=3, images=40)
    assert len(group_of(tmp_path).of("sst")) == 1


def test_two_sweeps_of_different_methods_are_not_mixed(tmp_path):
    for method in ("hst+sate", "sst+sate"):
        for rate in (0.1, 0.5):
            write_run(tmp_path / f"{method}-{rate}", method, settings={"rate": rate}, images=60)
    write_run(tmp_path / "other", "hst+sate", settings={"rate": 0.7, "positive_quantile": 0.4}, images=60)
    swept = group_of(tmp_path).sweep("method.thresholds.rate", ("hst+sate",))
    assert sorted(run.path.name for run in swept) == ["hst+sate-0.1", "hst+sate-0.5"]


def test_how_often_a_run_was_saved_does_not_part_it_from_others(tmp_path):
    for number, rate in enumerate((0.1, 0.5, 0.9), start=1):
        run = write_run(tmp_path / f"rate-{rate}", "hst+sate", settings={"rate": rate}, images=60)
        file = run / "config.yaml"
        saving = {"checkpoint_epochs": number, "checkpoint_steps": number} if number > 1 else {}
        config = yaml.safe_load(file.read_text())
        config |= {"training": config["training"] | saving, "images": {"workers": 1, "cache_gb": number}}
        file.write_text(yaml.safe_dump(config))
    assert len(group_of(tmp_path).sweep("method.thresholds.rate", ("hst+sate",))) == 3


def test_the_same_bytes_every_time(experiment, tmp_path):
    def once(folder: Path) -> dict[str, bytes]:
        runs = [experiment / "runs" / f"hst{part}-p20-s0" for part in ("", "+satl")]
        drawn = [
            *draw_each(runs, folder, ("svg",), only=[3]),
            *draw_each(runs, folder, ("pdf",), only=[9]),
        ]
        return {file.name: file.read_bytes() for figure in drawn for file in figure.files}

    first = once(tmp_path / "one")
    assert sorted(first) == ["figure-03-pipeline.svg", "figure-09-examples.pdf"]
    assert once(tmp_path / "two") == first
    svg, pdf = first["figure-03-pipeline.svg"], first["figure-09-examples.pdf"]
    assert b"<text" not in svg
    assert b"<dc:date>" not in svg
    assert b"CreationDate" not in pdf
    assert b"/FontFile2" in pdf  # an embedded TrueType font, as type 42 has it
    assert b"/Type3" not in pdf


def test_what_is_missing_says_how_to_get_it(tmp_path):
    write_run(tmp_path / "run", "sst", images=80)
    drawn = {figure.number: figure for figure in draw_each([tmp_path / "run"], only=[4, 5, 6, 10, 11, 13])}
    assert list(drawn) == [4, 5, 6, 10, 11, 13]
    assert [figure.number for figure in drawn.values() if figure.files] == [4, 6]
    assert drawn[6].files[0] == tmp_path / "run" / "figures" / "figure-06-recall-by-class.svg"
    assert "needs a run of sst+satl beside sst: train one with method.name=sst+satl" in str(drawn[13].missing)
    assert "method.thresholds.rate" in str(drawn[10].missing)
    assert "as a sweep in the grid of an experiment" in str(drawn[11].missing)
    assert "sst+satl beside sst" in str(drawn[5].missing)


@pytest.mark.parametrize(
    ("number", "method", "truth", "words"),
    [
        (1, "ignore", True, "a method with generators"),
        (2, "sst+satl", False, "data.truth"),
        (6, "ignore", True, r"needs a run of sst\+satl"),
        (7, "sst+satl", False, "data.proportion"),
        (8, "sst+satl", False, "the truth of the unknown cells"),
        (12, "sst+satl", False, "the truth of the unknown cells"),
    ],
)
def test_runs_without_generators_or_truth(tmp_path, number, method, truth, words):
    write_run(tmp_path / "run", method, truth=truth, images=60)
    with pytest.raises(Missing, match=words):
        draw(number, group_of(tmp_path / "run"))


def test_figures_that_need_no_truth_are_drawn_without_it(tmp_path):
    for method in ("sst", "sst+satl"):
        write_run(tmp_path / method, method, truth=False, images=60)
    group = group_of(tmp_path)
    for number in (1, 9, 13):
        assert_text_is_clear(draw(number, group))


def test_classes_that_cannot_be_measured(tmp_path):
    record = read_record(write_run(tmp_path / "run", "sst+satl", images=60))
    write_record(replace(record, method=replace(record.method, average_precision=np.full(20, np.nan))))
    for number in (1, 8):
        with pytest.raises(Missing, match="needs a class with a known positive"):
            draw(number, group_of(tmp_path / "run"))


def test_runs_of_one_epoch(tmp_path):
    for method in ("sst", "sst+satl"):
        write_run(tmp_path / method, method, epochs=1, images=60)
    group = group_of(tmp_path)
    for number in (5, 13):
        assert_text_is_clear(draw(number, group))
    with pytest.raises(Missing, match="needs pseudo-labels"):
        draw(7, group)


def test_pictures_that_are_gone_keep_no_other_figure_away(tmp_path):
    folder = write_run(tmp_path / "run", "sst+satl", images=60)
    config = (folder / "config.yaml").read_text()
    start, end = config.index("  scenes:"), config.index("  proportion:")
    gone = f"  table: {tmp_path / 'gone.csv'}\n  images: {tmp_path}\n"
    (folder / "config.yaml").write_text(config[:start] + gone + config[end:])
    drawn = list(draw_each([folder], only=[6, 9], formats=["svg"]))
    assert [bool(figure.files) for figure in drawn] == [True, False]
    assert "needs the training images" in str(drawn[1].missing)
    assert "gone.csv" in str(drawn[1].missing)


def test_two_data_sets_get_a_figure_each_and_one_of_time(tmp_path):
    for name, backbone in (("one", "tiny"), ("two", "resnet18")):
        for method in ("sst", "sst+satl"):
            folder = write_run(tmp_path / f"{name}-{method}", method, images=60)
            config = folder / "config.yaml"
            config.write_text(config.read_text().replace("satl_tiny", backbone))
    drawn = list(draw_each([tmp_path], only=[5, 7], formats=["svg"]))
    assert [file.name for figure in drawn for file in figure.files] == [
        "figure-05-training-time.svg",
        "figure-07-precision-by-proportion-scenes-tiny.svg",
        "figure-07-precision-by-proportion-scenes-resnet18.svg",
    ]


def test_unfinished_runs_are_left_out_and_named(tmp_path):
    write_run(tmp_path / "done", "sst+satl", images=60)
    cut = write_run(tmp_path / "cut", "sst", images=60)
    lines = (cut / "metrics.jsonl").read_text().splitlines(keepends=True)
    (cut / "metrics.jsonl").write_text("".join(lines[:3]))
    said: list[str] = []
    drawn = list(draw_each([tmp_path], only=[13], announce=said.append))
    assert said == ["Left out, not finished: cut"]
    assert "needs a run of sst beside sst+satl" in str(drawn[0].missing)
    shutil.rmtree(tmp_path / "done")
    with pytest.raises(SatlError, match=r"not finished; continue it with train\(resume="):
        draw_each([tmp_path])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"formats": ["svgg"]}, r"formats='svgg'.*did you mean 'svg'"),
        ({"only": [14]}, "only=14.*from 1 to 13"),
        ({"folders": ["nowhere"]}, "nowhere: is not a folder"),
        ({"folders": ["."]}, "holds no run"),
        ({"folders": ["run", "run"]}, "choose with out"),
    ],
)
def test_mistakes_are_said_before_anything_is_drawn(tmp_path, options, words):
    write_run(tmp_path / "inner" / "run", "sst", images=40)
    names = options.pop("folders", ["inner/run"])
    with pytest.raises(SatlError, match=words):
        draw_each([tmp_path / name for name in names], **options)
    assert not list(tmp_path.rglob("figures"))


def test_the_guide_lists_every_figure_and_shows_small_pictures():
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "figures.md").read_text(encoding="utf-8")
    assert [int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)] == list(NUMBERS)
    shown = re.findall(r"\]\((figures/[^)]+)\)", page)
    assert len(shown) >= 3
    assert sorted(shown) == sorted(f"figures/{file.name}" for file in (docs / "figures").iterdir())
    assert all(0 < (docs / name).stat().st_size < 150_000 for name in shown)


@pytest.mark.slow
def test_every_figure_of_an_experiment_is_written(experiment, tmp_path):
    written = draw_figures(experiment, tmp_path)
    assert len(written) == 2 * len(NUMBERS)
    assert all(file.stat().st_size > 5_000 for file in written)

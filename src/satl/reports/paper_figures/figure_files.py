"""Draw the figures of the paper from run folders and experiment folders, and write their files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satl.drawing.figure_layout import check_formats, write_figure
from satl.drawing.style import lacking_characters
from satl.errors import Argument, SatlError, Sentence, first_of
from satl.experiments.finished_runs import RunGroup, find_runs, group_runs
from satl.reports.paper_figures.class_figures import rarest_classes, recall_by_class
from satl.reports.paper_figures.diagrams import pipeline, ranking_sketch
from satl.reports.paper_figures.examples import examples
from satl.reports.paper_figures.loss_curves import loss_curves
from satl.reports.paper_figures.run_averages import precision_by_proportion, training_time
from satl.reports.paper_figures.score_histograms import known_and_unknown, score_histograms
from satl.reports.paper_figures.sweeps import quantile_sweep, rate_sweep
from satl.reports.paper_figures.thresholds_on_scores import thresholds_on_scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULT_FORMATS = ("svg", "pdf")


@dataclass(frozen=True)
class PaperFigure:
    """One figure: its number in the paper, the name of its file, what it shows and what draws it."""

    number: int
    slug: str
    title: str
    draw: Callable[[RunGroup], Figure]


@dataclass(frozen=True)
class DrawnFigure:
    """A figure that was drawn, or could not be.

    Attributes:
        number: of the figure.
        title: what it shows.
        files: what was written; empty if it could not be drawn.
        missing: what it needs and how to get it; None if it was drawn.
        lacking: characters in it that no installed font has.
    """

    number: int
    title: str
    files: tuple[Path, ...] = ()
    missing: SatlError | None = None
    lacking: str = ""


_OF_A_GROUP = (
    PaperFigure(1, "score-histograms", "scores of positives and negatives", score_histograms),
    PaperFigure(2, "known-and-unknown", "scores of known and unknown cells", known_and_unknown),
    PaperFigure(6, "recall-by-class", "recall of pseudo-labels by class", recall_by_class),
    PaperFigure(7, "precision-by-proportion", "precision of pseudo-labels", precision_by_proportion),
    PaperFigure(8, "thresholds", "thresholds on scores", thresholds_on_scores),
    PaperFigure(9, "examples", "images with their labels", examples),
    PaperFigure(10, "rate", "pseudo-labels against the rate", rate_sweep),
    PaperFigure(11, "quantiles", "pseudo-labels against both quantiles", quantile_sweep),
    PaperFigure(12, "rarest-classes", "the ten rarest classes", rarest_classes),
    PaperFigure(13, "loss-curves", "classification loss", loss_curves),
)
NUMBERS = tuple(range(1, 14))
_AT_AN_EPOCH = 8


def draw_figures(folder: Path, out: Path | None = None) -> list[Path]:
    """Draw every figure that a run folder or an experiment folder has the data for; return the files.

    Args:
        folder: of a run, of an experiment, or with runs in it.
        out: where the files go; by default ``folder/figures``.

    Raises:
        SatlError: the folder holds no finished run.
    """
    return [file for drawn in draw_each([Path(folder)], out) for file in drawn.files]


def draw_each(
    folders: Sequence[Path],
    out: Path | None = None,
    formats: Iterable[str] = DEFAULT_FORMATS,
    only: Iterable[int] = NUMBERS,
    announce: Callable[[str], Any] = lambda text: None,
    epoch: int | None = None,
) -> Iterator[DrawnFigure]:
    """Draw the figures one after the other; yield each with its files, or with what it still needs.

    Args:
        folders: of runs and experiments.
        out: where the files go; by default ``figures`` in the folder, if there is only one.
        formats: of ``svg``, ``pdf``, ``png``.
        only: numbers of the figures to draw.
        announce: is called with messages: what takes long, what is left out.
        epoch: counted from 1, that figure 8 looks at; None for the last one.

    Raises:
        SatlError: a folder holds no finished run, or an option is wrong; before anything is drawn.
    """
    chosen = check_formats(formats)
    numbers = _check_numbers(only)
    if out is None and len(folders) > 1:
        raise SatlError(
            "several folders are given",
            remedy=Sentence("choose with {out} where their figures go", out=Argument("out")),
        )
    runs, unfinished = find_runs(folders, announce)
    if unfinished:
        announce(f"Left out, not finished: {first_of([path.name for path in unfinished])}")
    groups = group_runs(runs)
    target = Path(folders[0]) / "figures" if out is None else Path(out)
    return (drawn for number in numbers for drawn in _draw_number(number, groups, target, chosen, epoch))


def _draw_number(
    number: int, groups: Sequence[RunGroup], out: Path, formats: tuple[str, ...], epoch: int | None
) -> Iterator[DrawnFigure]:
    whole: dict[int, tuple[str, str, Callable[[], Figure]]] = {
        3: ("pipeline", "how SATL works", pipeline),
        4: ("ranking", "what differential ranking does", ranking_sketch),
        5: ("training-time", "training time", lambda: training_time(groups)),
    }
    if number in whole:
        slug, title, draw = whole[number]
        yield _draw_one(number, slug, title, draw, out, formats)
        return
    figure = next(figure for figure in _OF_A_GROUP if figure.number == number)
    for group in groups:
        several = len(groups) > 1
        slug = f"{figure.slug}-{_file_name(group.name)}" if several else figure.slug
        title = f"{figure.title} ({group.name})" if several else figure.title
        draw_it = partial(figure.draw, group)
        if epoch is not None and number == _AT_AN_EPOCH:
            slug, title = f"{slug}-epoch-{epoch}", f"{title} after epoch {epoch}"
            draw_it = partial(thresholds_on_scores, group, epoch)
        yield _draw_one(number, slug, title, draw_it, out, formats)


def _draw_one(
    number: int, slug: str, title: str, draw: Callable[[], Figure], out: Path, formats: tuple[str, ...]
) -> DrawnFigure:
    try:
        figure = draw()
    except SatlError as error:  # one figure that cannot be drawn keeps no other from being drawn
        return DrawnFigure(number, title, missing=error)
    from matplotlib.text import Text

    files = write_figure(figure, out / f"figure-{number:02d}-{slug}", formats)
    texts = [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)]
    return DrawnFigure(number, title, tuple(files), lacking=lacking_characters(texts))


def _check_numbers(only: Iterable[int]) -> tuple[int, ...]:
    numbers = tuple(sorted(set(only)))
    for number in numbers:
        if number not in NUMBERS:
            raise SatlError(
                "there is no such figure", where=Argument("only", number), remedy="give numbers from 1 to 13"
            )
    return numbers


def _file_name(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "data"

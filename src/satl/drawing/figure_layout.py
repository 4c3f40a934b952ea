"""The layout of a figure of the paper: panels, and above them a title, a note and a legend, wrapped to the width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satl.drawing import style
from satl.drawing.style import MethodStyle, styled
from satl.errors import Argument, SatlError, nearest
from satl.files import atomic_path

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.figure import Figure

WIDTH = 7.2
"""Inches, the width of two columns of a page."""
FORMATS = ("svg", "pdf", "png")
_MARGIN = 0.06
_PNG_DPI = 200


def start_figure(height: float, width: float = WIDTH) -> Figure:
    """Return an empty figure whose panels will have so many inches; :func:`add_heading` adds the heading on top."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.04, h_pad=0.04, wspace=0.03, hspace=0.03)  # type: ignore[union-attr, call-arg]
    return figure


def renderer_of(figure: Figure) -> RendererAgg:
    """Return what measures text of a figure."""
    return figure.canvas.get_renderer()  # type: ignore[attr-defined]


def add_heading(
    figure: Figure, title: str, note: str = "", handles: Sequence[Artist] = (), columns: int | None = None
) -> Figure:
    """Put title, note and legend above the panels; the figure grows by what they need.

    Args:
        figure: with its panels.
        title: what the figure shows.
        note: where the data comes from: data set, proportion, generator, number of seeds; wrapped to the width.
        handles: entries of the legend, wrapped to the width.
        columns: most columns of the legend, to keep entries below each other that belong together.
    """
    width, height = figure.get_size_inches()
    usable = width - 2 * _MARGIN
    parts: list[tuple[Any, float]] = [
        (
            figure.text(
                0, 0, _wrapped(figure, title, usable, 10.5, "bold"), fontsize=10.5, fontweight="bold"
            ),
            0.05,
        )
    ]
    if note:
        text = _wrapped(figure, note.replace("n = ", "n\u00a0=\u00a0"), usable, 8.0)
        parts.append((figure.text(0, 0, text, fontsize=8.0, color=style.MUTED.light, linespacing=1.25), 0.07))
    if handles:
        parts.append((_legend(figure, handles, usable, columns or len(handles)), 0.04))
    renderer, dpi = renderer_of(figure), figure.dpi
    sizes = [part.get_window_extent(renderer).height / dpi for part, _ in parts]
    added = _MARGIN + sum(size + gap for size, (_, gap) in zip(sizes, parts, strict=True))
    total = height + added
    figure.set_size_inches(width, total)
    top = total - _MARGIN
    for size, (part, gap) in zip(sizes, parts, strict=True):
        if hasattr(part, "set_bbox_to_anchor"):
            part.set_bbox_to_anchor((_MARGIN / width, top / total), figure.transFigure)
        else:
            part.set(x=_MARGIN / width, y=top / total, va="top")
        top -= size + gap
    if figure.axes:  # a diagram in inches stays where it is
        engine: Any = figure.get_layout_engine()
        engine.set(rect=(0, 0, 1, height / total))
        engine.execute(figure)  # once, so that every format has the same places
        figure.set_layout_engine("none")
    return figure


def _legend(figure: Figure, handles: Sequence[Artist], usable: float, most: int) -> Any:
    """Return a legend with as many columns as fit."""
    for columns in range(most, 0, -1):
        legend = figure.legend(
            handles=list(handles),
            loc="upper left",
            bbox_to_anchor=(0, 1),
            ncols=columns,
            borderaxespad=0,
            borderpad=0.1,
            handlelength=3.0,
            columnspacing=1.3,
            labelspacing=0.35,
        )
        if columns == 1 or legend.get_window_extent(renderer_of(figure)).width / figure.dpi <= usable:
            return legend
        legend.remove()
    raise AssertionError("a legend has at least one column")


def text_inches(figure: Figure, text: str, size: float, weight: str = "normal") -> float:
    """Return how wide a line of text is, in inches."""
    probe = figure.text(0, 0, text, fontsize=size, fontweight=weight)
    width = probe.get_window_extent(renderer_of(figure)).width / figure.dpi
    probe.remove()
    return float(width)


def fitted(figure: Figure, text: str, inches: float, size: float, weight: str = "normal") -> str:
    """Return the text, or its beginning and end around an ellipsis, not wider than so many inches."""
    text = " ".join(text.split())

    def shortened(kept: int) -> str:
        head = (kept + 1) // 2
        return f"{text[:head].rstrip()}\u2026{text[len(text) - kept + head :].lstrip()}"

    if len(text) < 3 or text_inches(figure, text, size, weight) <= inches:
        return text
    fits, too_long = 1, len(text)
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if text_inches(figure, shortened(middle), size, weight) <= inches:
            fits = middle
        else:
            too_long = middle
    return shortened(fits)


def panel_title(figure: Figure, name: str, kind: str, panels: int) -> str:
    """Return the title ``NAME (KIND)`` of one of several panels side by side, short enough not to leave it."""
    room = (figure.get_size_inches()[0] - 0.8) / panels - 0.12
    return (
        f"{fitted(figure, name, room - text_inches(figure, f' ({kind})', 9.0, 'bold'), 9.0, 'bold')} ({kind})"
    )


def _wrapped(figure: Figure, text: str, inches: float, size: float, weight: str = "normal") -> str:
    lines = [""]
    for word in text.split(" "):  # a no-break space is no place to break
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_inches(figure, longer, size, weight) > inches:
            lines.append(word)
        else:
            lines[-1] = longer
    return "\n".join(lines)


def line_handle(
    look: MethodStyle, title: str | None = None, *, line: bool = True, marker: bool = True
) -> Artist:
    """Return the entry of a legend for a method drawn as a line, with or without markers, or as markers alone."""
    from matplotlib.lines import Line2D

    return Line2D(
        [],
        [],
        color=str(look.colour),
        linestyle=look.dash if line else "none",  # type: ignore[arg-type]
        marker=look.marker if marker else "",
        markersize=5 if line else 6,
        markeredgecolor=style.PAPER.light,
        markeredgewidth=0.5,
        label=title or look.title,
    )


def patch_handle(title: str, **look: Any) -> Artist:
    """Return the entry of a legend for an area."""
    from matplotlib.patches import Patch

    return Patch(label=title, **{"linewidth": 0.9, **look})


def present_handle(title: str) -> Artist:
    """Return the entry for present cells: a hatched outline, as histograms draw them."""
    return patch_handle(title, facecolor="none", edgecolor=style.PRESENT.light, hatch="////")


def absent_handle(title: str) -> Artist:
    """Return the entry for absent cells: a light area, as histograms draw them."""
    return patch_handle(title, facecolor=style.ABSENT.light, edgecolor="none", alpha=0.75)


def bar_look(look: MethodStyle) -> dict[str, Any]:
    """Return how a bar of a method is filled; its hatch is white on the colour."""
    return {
        "facecolor": str(look.colour),
        "edgecolor": style.PAPER.light,
        "hatch": look.hatch,
        "linewidth": 0.5,
    }


def check_formats(formats: Iterable[str]) -> tuple[str, ...]:
    """Return the formats without repetition.

    Raises:
        SatlError: there is no such format.

    >>> check_formats(["svg", "pdf", "svg"])
    ('svg', 'pdf')
    """
    chosen = tuple(dict.fromkeys(formats))
    for name in chosen:
        if name not in FORMATS:
            raise SatlError(
                f"there is no such format{nearest(name, FORMATS)}",
                where=Argument("formats", name),
                remedy=f"use {', '.join(FORMATS)}",
            )
    return chosen


@styled
def write_figure(figure: Figure, stem: Path, formats: Iterable[str]) -> list[Path]:
    """Write a figure as ``STEM.FORMAT``, each atomically; the same figure gives the same bytes.

    In SVG text is drawn as paths, so that it looks the same without our font; in PDF it stays text, with the
    font embedded.
    """
    import matplotlib as mpl

    mpl.rcParams["svg.fonttype"] = "path"
    empty: dict[str, dict[str, Any]] = {
        "svg": {"Date": None, "Creator": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
        "png": {"Software": None},
    }
    written = []
    for name in check_formats(formats):
        path = stem.with_name(f"{stem.name}.{name}")
        with atomic_path(path) as temporary:
            figure.savefig(
                temporary, format=name, dpi=_PNG_DPI, facecolor=style.PAPER.light, metadata=empty[name]
            )
        written.append(path)
    return written

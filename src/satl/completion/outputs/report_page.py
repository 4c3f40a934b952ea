"""``report.html``: the report as one page without other files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from satl.errors import in_shell

if TYPE_CHECKING:
    from markupsafe import Markup

# With more classes than this the page shows no pictures, so that it stays light.
_MOST_PICTURES = 300
_WIDTH, _HEIGHT = 168, 34


def render_report(report: dict[str, Any], out: Path) -> str:
    """Return the page of a report.

    Args:
        report: from :func:`satl.completion.workflow.report_content.build_report`.
        out: the folder, as the user names it in commands.
    """
    from satl.drawing.html import render

    classes = report["classes"]
    pictures = len(classes) <= _MOST_PICTURES
    certified = [
        sum(entry[direction]["certified"] for entry in classes) for direction in ("present", "absent")
    ]
    return render(
        "satl.completion.outputs",
        "report.html.j2",
        filters={
            "score": lambda value: "\u2013" if value is None else f"{value:.4g}",
            "number": lambda value: f"{value:,}",
            "code": _code,
            "sure": lambda value: f"{100 * value:g}\u00a0%",
        },
        report=report,
        # Both are parts of commands that are copied into a terminal.
        out=in_shell(out),
        table=in_shell(report["source"]["labels"] if report["source"]["is_file"] else f"{out}/labels.npz"),
        name=Path(report["source"]["labels"]).name,
        counts=report["counts"],
        shares=_shares(report["counts"]),
        certified=certified,
        pictures=[draw_distribution(entry) if pictures else "" for entry in classes],
        alarms=[entry for entry in classes if entry["shift"]["code"] == "does_not_fit"],
        differing=[entry for entry in classes if entry["shift"]["code"] == "prevalence_differs"],
        without=_without(classes),
    )


def draw_distribution(entry: dict[str, Any]) -> Markup:
    """Draw how the scores of a class are spread: unknown cells as an area, known ones as lines, thresholds as bars.

    Each of the three has its own scale, because there may be a thousand times more unknown cells than positives;
    heights are square roots, or only the largest bin would be seen.
    """
    from markupsafe import Markup

    counts = entry["histogram"]
    low, high = counts["edges"][0], counts["edges"][-1]
    shapes = []
    for kind in ("unknown", "negative", "positive"):
        values = np.sqrt(np.asarray(counts[kind], dtype=np.float64))
        if not values.any():
            continue
        height = (_HEIGHT - 3) * values / values.max()
        x = (np.arange(len(values)) + 0.5) * _WIDTH / len(values)
        points = " ".join(f"{px:.1f},{_HEIGHT - py:.1f}" for px, py in zip(x, height, strict=True))
        if kind == "unknown":
            shapes.append(f'<polygon class="unknown" points="0,{_HEIGHT} {points} {_WIDTH},{_HEIGHT}"/>')
        else:
            shapes.append(f'<polyline class="{kind}" points="{points}"/>')
    for direction in ("absent", "present"):
        threshold = entry[direction]["threshold"]
        if threshold is not None:
            place = _WIDTH * float(np.clip((threshold - low) / (high - low), 0, 1))
            kept = "" if entry[direction]["certified"] else " withheld"
            shapes.append(
                f'<line class="{direction}{kept}" x1="{place:.1f}" x2="{place:.1f}" y1="0" y2="{_HEIGHT}"/>'
            )
    label = "scores of known positives, known negatives and unknown cells"
    return Markup(
        f'<svg class="spread" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{"".join(shapes)}</svg>'
    )


def _code(text: str) -> Markup:
    """Set text between backticks as code; everything is escaped."""
    from markupsafe import Markup, escape

    parts = [escape(part) for part in text.split("`")]
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else part for place, part in enumerate(parts)
    )


def _shares(counts: dict[str, int]) -> list[tuple[str, str, int, float]]:
    """Parts of the bar on top: style, words, cells, share of the unknown cells in per cent."""
    whole = max(counts["unknown"], 1)
    parts = (
        ("present", "accepted as present"),
        ("absent", "accepted as absent"),
        ("review", "for review"),
        ("left", "left unknown"),
    )
    return [(key, words, counts[key], 100 * counts[key] / whole) for key, words in parts]


def _without(classes: list[dict[str, Any]]) -> list[tuple[str, str, dict[str, Any]]]:
    """Classes and directions that accept nothing, though there is something unknown."""
    return [
        (entry["name"], direction, entry[direction])
        for entry in classes
        for direction in ("present", "absent")
        if not entry[direction]["certified"] and entry["unknown"]
    ]

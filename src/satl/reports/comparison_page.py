"""The page that compares methods trained on the same labels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from satl.drawing.html import image_uri, inline_svg, percent, render
from satl.drawing.style import generator_title, method_style
from satl.evaluation.pseudo_quality import NEXT_TO_NONE, UNION, next_to_none
from satl.experiments.tables.claims import listed
from satl.inference.run_record import MethodRecord
from satl.reports import distributions, figures
from satl.reports.comparison import (
    Comparison,
    Example,
    choose_examples,
    comparison_sentence,
    easy_and_hard,
    kolmogorov_smirnov,
    scores_by_label,
)
from satl.reports.training_images import PixelsOf

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

_TERMS = {
    "classification": "known labels (binary cross-entropy)",
    "cooccurrence": "co-occurrence",
    "contrast": "contrast",
    "pseudo": "pseudo-labels",
    "ranking": "differential ranking",
}


def sentence(comparison: Comparison) -> str:
    """Return how the subject compares with the other methods, better or worse."""
    titles = {method.name: method_style(method.name).title for method in comparison.methods}
    return comparison_sentence(comparison, titles)


def comparison_page(comparison: Comparison, pixels_of: PixelsOf, title: str) -> str:
    """Return the page as HTML that needs no other file and no network.

    Args:
        comparison: what was measured.
        pixels_of: gives the pixels of a training image.
        title: of the page.
    """
    drawer = _Drawer()
    easy, hard = easy_and_hard(comparison)
    return render(
        "satl.reports",
        "comparison.html.j2",
        title=title,
        sentence=sentence(comparison),
        proportion=comparison.proportion,
        comparison=comparison,
        table=_table(comparison),
        pseudo_sentence=_pseudo_sentence(comparison),
        looks=[method_style(method.name) for method in comparison.methods],
        pseudo_looks=[method_style(method.name) for method in comparison.with_generators()],
        has_truth=comparison.truth is not None,
        examples=_examples(comparison, pixels_of),
        pseudo=_pseudo_figures(comparison, drawer),
        shared_title=None if (shared := _shared_threshold(comparison)) is None else _title(shared),
        thresholds=_threshold_figures(comparison, drawer, [*easy, *hard]),
        scores=_score_figures(comparison, drawer, easy, hard),
        unknown=_unknown_figures(comparison, drawer, [*easy, *hard]),
        unknown_sentence=_unknown_sentence(comparison),
        training=_training_figures(comparison, drawer),
        classes=_class_figures(comparison, drawer),
    )


class _Drawer:
    """Numbers the figures of a page, so that their ids never clash."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, figure: Figure, label: str) -> Markup:
        self.count += 1
        return inline_svg(figure, f"f{self.count}", label)


def _title(method: MethodRecord) -> str:
    return method_style(method.name).title


def _table(comparison: Comparison) -> list[dict[str, Any]]:
    scores = [method.summary.get("mAP") for method in comparison.methods]
    best = max((score for score in scores if score is not None), default=None)
    rows = []
    for method, score in zip(comparison.methods, scores, strict=True):
        union = method.last_union()
        rows.append(
            {
                "look": method_style(method.name),
                "mAP": score,
                "width": 0.0 if not score or not best else 100 * score / best,
                "best": score is not None and score == best,
                "OF1": method.summary.get("OF1"),
                "CF1": method.summary.get("CF1"),
                "precision": union.get("micro_precision"),
                "recall": union.get("micro_recall"),
                "seconds": method.seconds,
            }
        )
    return rows


def _pseudo_sentence(comparison: Comparison) -> str:
    parts = []
    for method in comparison.with_generators():
        filled = int(method.filled(comparison.cells).sum())
        quality = method.quality(comparison.cells, comparison.truth)
        text = f"{_title(method)} fills {filled:,} unknown cells"
        if quality is not None and filled:
            text += (
                f", {percent(quality.micro_precision)} % of them rightly, and so finds "
                f"{percent(quality.micro_recall)} % of the hidden positives"
            )
        parts.append(text)
    if not parts:
        return ""
    silent = [_title(method) for method in comparison.with_generators() if _is_silent(method)]
    said = f"At the end of training, {'; '.join(parts)}."
    if silent:
        said += (
            f" {listed(silent)} made next to no pseudo-labels in the last epoch, under "
            f"{100 * NEXT_TO_NONE:g} % of the positives to be expected among the unknown cells, and so learned from "
            "the known cells alone."
        )
    return said


def _is_silent(method: MethodRecord) -> bool:
    """Whether the last epoch of a method made next to no pseudo-labels."""
    return bool(method.epochs) and next_to_none(method.epochs[-1]["pseudo_labels"].get(UNION) or {})


def _examples(comparison: Comparison, pixels_of: PixelsOf) -> list[dict[str, Any]]:
    return [_example_card(comparison, example, pixels_of) for example in choose_examples(comparison)]


def _example_card(comparison: Comparison, example: Example, pixels_of: PixelsOf) -> dict[str, Any]:
    methods = []
    for method in comparison.with_generators():
        outcome = example.outcomes[method.name]
        chips = [
            (kind, name)
            for kind in ("recovered", "filled", "wrong", "missed")
            for name in outcome.get(kind, ())
        ]
        methods.append({"title": _title(method), "chips": chips})
    return {
        "image": comparison.images[example.row],
        "uri": image_uri(pixels_of(example.row)),
        "known": example.known,
        "known_absent": example.known_absent,
        "methods": methods,
    }


def _epochs(method: MethodRecord, read: Callable[[dict[str, Any]], Any]) -> tuple[list[int], list[float]]:
    """Return the epochs, counted from 1, where ``read`` finds a value, and the values."""
    found = [(row["epoch"] + 1, read(row)) for row in method.epochs]
    kept = [(epoch, float(value)) for epoch, value in found if value is not None]
    return [epoch for epoch, _ in kept], [value for _, value in kept]


def _pseudo_figures(comparison: Comparison, drawer: _Drawer) -> list[Markup]:
    methods = comparison.with_generators()
    if comparison.truth is None or not methods:
        return []
    result = []
    for kind in ("precision", "recall"):
        curves = {method.name: _epochs(method, partial(_union_share, f"micro_{kind}")) for method in methods}
        figure = figures.curves(
            curves,
            ylabel=f"{kind} (%)",
            percent=True,
            from_zero=True,
            width=4.6,
            title=f"{kind.capitalize()} while training",
        )
        result.append(drawer(figure, f"{kind} of pseudo-labels by epoch"))
    order = np.argsort(-comparison.known_positives, kind="stable")
    names = [_counted(comparison, int(index)) for index in order]
    for kind in ("precision", "recall"):
        values = {}
        for method in methods:
            quality = method.quality(comparison.cells, comparison.truth)
            assert quality is not None
            values[method.name] = getattr(quality, kind)[order]
        figure = figures.class_dots(
            names, values, xlabel=f"{kind} (%)", title=f"{kind.capitalize()} by class"
        )
        result.append(drawer(figure, f"{kind} of pseudo-labels by class"))
    return result


def _union_share(key: str, row: dict[str, Any]) -> float | None:
    """Return a share of an epoch's pseudo-labels: None before stage 2, NaN where there was none to count."""
    if row["stage"] != 2:
        return None
    value = row["pseudo_labels"].get("union", {}).get(key)
    return float("nan") if value is None else float(value)


def _counted(comparison: Comparison, index: int) -> str:
    return f"{comparison.classes[index]} ({comparison.known_positives[index]})"


def _threshold_figures(comparison: Comparison, drawer: _Drawer, highlighted: list[int]) -> list[Markup]:
    subject = comparison.subject
    shared = _shared_threshold(comparison)
    result = []
    for generator in subject.generators:
        rows = [row for row in subject.epochs if row["stage"] == 2 and generator in row["thresholds"]]
        if not rows:
            continue
        reference = None
        if shared is not None:
            epochs, values = _epochs(shared, partial(_second_stage_mean, generator))
            reference = (epochs, values, f"{_title(shared)} (all classes)") if epochs else None
        figure = figures.threshold_trajectories(
            [row["epoch"] + 1 for row in rows],
            np.array([row["thresholds"][generator] for row in rows]),
            classes=comparison.classes,
            highlighted=highlighted,
            reference=reference,
            title=f"{generator_title(generator)} generator",
        )
        result.append(drawer(figure, f"Thresholds of the {generator_title(generator)} generator by epoch"))
    return result


def _second_stage_mean(generator: str, row: dict[str, Any]) -> float | None:
    values = row["thresholds"].get(generator)
    return float(np.mean(values)) if values and row["stage"] == 2 else None


def _shared_threshold(comparison: Comparison) -> MethodRecord | None:
    """Return another method whose threshold is one for all classes, to compare with."""
    for method in comparison.with_generators():
        if method is not comparison.subject and all(np.ptp(v) < 1e-6 for v in method.thresholds.values()):
            return method
    return None


def _score_figures(comparison: Comparison, drawer: _Drawer, easy: list[int], hard: list[int]) -> list[Markup]:
    subject, shared = comparison.subject, _shared_threshold(comparison)
    panels = []
    for kind, index in [("easy", i) for i in easy] + [("hard", i) for i in hard]:
        for generator in subject.generators:
            parts = scores_by_label(subject.scores[generator], comparison.cells, None, index)
            limits = {subject.name: float(subject.thresholds[generator][index])}
            if shared is not None and generator in shared.thresholds:
                limits = {shared.name: float(shared.thresholds[generator][index]), **limits}
            name = comparison.classes[index]
            figure = distributions.score_distributions(
                parts["known present"],
                parts["known absent"],
                thresholds=limits,
                title=f"{name} ({kind}), {generator_title(generator)}",
            )
            panels.append(
                drawer(figure, f"Scores of known cells of {name}, {generator_title(generator)} generator")
            )
    return panels


def _unknown_figures(comparison: Comparison, drawer: _Drawer, indices: list[int]) -> list[dict[str, Any]]:
    subject = comparison.subject
    if comparison.truth is None or not subject.generators:
        return []
    generator = subject.generators[-1]
    result = []
    for index in indices:
        parts = scores_by_label(subject.scores[generator], comparison.cells, comparison.truth, index)
        figure = distributions.known_against_unknown(
            (parts["known present"], parts["known absent"]),
            (parts["unknown present"], parts["unknown absent"]),
            title=comparison.classes[index],
        )
        notes = []
        for kind in ("present", "absent"):
            known, hidden = parts[f"known {kind}"], parts[f"unknown {kind}"]
            distance, chance = kolmogorov_smirnov(known, hidden)
            text = (
                "not measurable" if np.isnan(distance) else f"distance {distance:.2f} (chance: {chance:.2f})"
            )
            notes.append(f"{kind}: {text}, {len(known)} known and {len(hidden)} unknown")
        label = f"Known against unknown scores of {comparison.classes[index]}"
        result.append({"figure": drawer(figure, label), "notes": notes})
    return result


def _unknown_sentence(comparison: Comparison) -> str:
    """Return how often known and unknown scores differ by more than chance, over all classes, in a sentence."""
    subject = comparison.subject
    if comparison.truth is None or not subject.generators:
        return ""
    parts = []
    for kind in ("present", "absent"):
        distances = []
        for generator in subject.generators:
            for index in range(len(comparison.classes)):
                split = scores_by_label(subject.scores[generator], comparison.cells, comparison.truth, index)
                distances.append(kolmogorov_smirnov(split[f"known {kind}"], split[f"unknown {kind}"]))
        pairs = np.array([pair for pair in distances if not np.isnan(pair[0])]).reshape(-1, 2)
        if len(pairs):
            beyond = int((pairs[:, 0] > pairs[:, 1]).sum())
            parts.append(
                f"for {kind} cells the median distance is {np.median(pairs[:, 0]):.2f}, beyond chance in {beyond} of "
                f"{len(pairs)} cases"
            )
    if not parts:
        return ""
    return f"Over all classes and generators: {'; '.join(parts)}."


def _training_figures(comparison: Comparison, drawer: _Drawer) -> list[Markup]:
    stage1 = comparison.subject.stage1_epochs
    validation = {m.name: _epochs(m, lambda row: row.get("val", {}).get("mAP")) for m in comparison.methods}
    marks = {
        m.name: validation[m.name][0].index(m.best_epoch + 1)
        for m in comparison.methods
        if m.best_epoch + 1 in validation[m.name][0]
    }
    figure = figures.curves(
        validation, ylabel="mAP (%)", percent=True, stage1_epochs=stage1, marks=marks, title="Validation mAP"
    )
    result = [drawer(figure, "Validation mAP by epoch")]
    terms = list(
        dict.fromkeys(term for m in comparison.methods for row in m.epochs for term in row["losses"])
    )
    for term in terms:
        if term == "total":
            continue
        curves = {m.name: _epochs(m, partial(_loss, term)) for m in comparison.methods}
        figure = figures.curves(
            {name: curve for name, curve in curves.items() if curve[0]},
            ylabel="loss (weighted)",
            stage1_epochs=stage1,
            title=f"Loss: {_TERMS.get(term, term)}",
        )
        result.append(drawer(figure, f"Loss term {term} by epoch"))
    return result


def _loss(term: str, row: dict[str, Any]) -> float | None:
    value: float | None = row["losses"].get(term)
    return value


def _class_figures(comparison: Comparison, drawer: _Drawer) -> list[Markup]:
    subject = np.nan_to_num(np.asarray(comparison.subject.average_precision, float), nan=-1.0)
    order = np.argsort(-subject, kind="stable")
    halves = np.array_split(order, 2) if len(order) > 16 else [order]
    return [
        drawer(
            figures.class_dots(
                [comparison.classes[index] for index in half],
                {m.name: np.asarray(m.average_precision)[half] for m in comparison.methods},
                xlabel="average precision on test images (%)",
            ),
            "Average precision by class",
        )
        for half in halves
    ]

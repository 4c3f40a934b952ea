"""A comparison of methods trained on the same labels, and what reports compute from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from satl.inference.run_record import BoolArray, CellArray, FloatArray, MethodRecord, RunRecord


@dataclass(frozen=True)
class Comparison:
    """Several methods trained on the same table.

    Attributes:
        classes: C names.
        images: N ids of the training images.
        cells: (N, C) training labels, +1 present, -1 absent, 0 unknown.
        truth: (N, C) hidden truth of the same cells, or None.
        methods: in the order of the table; the last is the one the report is about.
        counts: images by split.
        seed: of the run.
        beginning: what all methods started from, in a sentence; may be empty.
    """

    classes: tuple[str, ...]
    images: tuple[str, ...]
    cells: CellArray
    truth: CellArray | None
    methods: tuple[MethodRecord, ...]
    counts: dict[str, int]
    seed: int
    beginning: str = ""

    @property
    def proportion(self) -> float:
        """Share of the training cells that are known."""
        return float((self.cells != 0).mean())

    @property
    def subject(self) -> MethodRecord:
        """The method the report is about."""
        return self.methods[-1]

    @property
    def known_positives(self) -> npt.NDArray[np.int64]:
        """(C,) training cells known to be present."""
        return np.count_nonzero(self.cells > 0, axis=0).astype(np.int64)

    def with_generators(self) -> tuple[MethodRecord, ...]:
        """Return the methods that make pseudo-labels."""
        return tuple(method for method in self.methods if method.generators)


def compare(*records: RunRecord, beginning: str = "") -> Comparison:
    """Compare runs that were trained on the same labels; the last is the subject.

    Args:
        records: the runs.
        beginning: what all of them started from, in a sentence.
    """
    subject = records[-1]
    assert all(subject.agrees_with(record) for record in records)
    return Comparison(
        classes=subject.classes,
        images=subject.images,
        cells=subject.cells,
        truth=subject.truth,
        methods=tuple(record.method for record in records),
        counts=dict(subject.counts),
        seed=int(subject.config["training"]["seed"]),
        beginning=beginning,
    )


def kolmogorov_smirnov(first: npt.ArrayLike, second: npt.ArrayLike) -> tuple[float, float]:
    """Return the two-sample Kolmogorov-Smirnov distance and what chance alone exceeds in 5 % of cases.

    The distance is the largest difference of the two cumulative distributions: 0 the same, 1 apart. Both
    are NaN if a sample is empty.

    >>> kolmogorov_smirnov([0.1, 0.2, 0.3, 0.4], [0.3, 0.4, 0.5, 0.6])[0]
    0.5
    """
    # scipy's ks_2samp also computes p-values: it takes 4 to 9 times as long and warns about samples of one.
    one, two = np.sort(np.asarray(first, float)), np.sort(np.asarray(second, float))
    if not len(one) or not len(two):
        return float("nan"), float("nan")
    both = np.concatenate([one, two])
    below_one = np.searchsorted(one, both, side="right") / len(one)
    below_two = np.searchsorted(two, both, side="right") / len(two)
    chance = 1.358 * np.sqrt((len(one) + len(two)) / (len(one) * len(two)))
    return float(np.abs(below_one - below_two).max()), float(min(chance, 1.0))


def scores_by_label(
    scores: FloatArray, cells: CellArray, truth: CellArray | None, index: int
) -> dict[str, FloatArray]:
    """Return the meaningful scores of a class, split into known and unknown, present and absent.

    Keys: ``known present``, ``known absent`` and, where there is truth, ``unknown present`` and
    ``unknown absent``.
    """
    column, labels = scores[:, index], cells[:, index]
    usable = ~np.isnan(column)
    parts = {"known present": column[usable & (labels > 0)], "known absent": column[usable & (labels < 0)]}
    if truth is not None:
        hidden = np.where(labels == 0, truth[:, index], 0)
        parts["unknown present"] = column[usable & (hidden > 0)]
        parts["unknown absent"] = column[usable & (hidden < 0)]
    return parts


def easy_and_hard(comparison: Comparison) -> tuple[list[int], list[int]]:
    """Return the two classes with the best and the two with the worst average precision of the subject.

    Only classes with at least three known positives whose scores mean something are considered, as long as
    there are enough; no class is in both lists.
    """
    method = comparison.subject
    precision = np.asarray(method.average_precision, float)
    known = comparison.cells > 0
    usable = comparison.known_positives.copy()
    for scores in method.scores.values():
        usable = np.minimum(usable, np.count_nonzero(known & ~np.isnan(scores), axis=0))
    for least in (3, 1, 0):
        choice = np.flatnonzero(~np.isnan(precision) & (usable >= least))
        if len(choice) >= 4:
            break
    order = [int(index) for index in choice[np.argsort(-precision[choice], kind="stable")]]
    half = min(2, (len(order) + 1) // 2)
    return order[:half], order[half:][-2:]


@dataclass(frozen=True)
class Example:
    """One training image, and whether its unknown labels were found.

    Attributes:
        row: row among the training images.
        known: classes known to be present.
        known_absent: how many classes are known to be absent.
        outcomes: method -> ``recovered``, ``wrong``, ``missed`` (or ``filled`` without truth) -> classes.
    """

    row: int
    known: tuple[str, ...]
    known_absent: int
    outcomes: dict[str, dict[str, tuple[str, ...]]]


def choose_examples(comparison: Comparison, count: int = 6) -> list[Example]:
    """Pick images that show what works and what does not: half recovered, the rest wrong or still unknown.

    The choice is by rule (no wrong label and the most recovered; then a wrong one; then nothing found), so a
    rerun shows the same images.
    """
    cells, truth, method = comparison.cells, comparison.truth, comparison.subject
    filled = method.filled(cells)
    unknown, has_known = cells == 0, (cells > 0).any(1)
    judge = np.where(unknown, 1 if truth is None else truth, 0)
    right, wrong, missed = filled & (judge > 0), filled & (judge < 0), ~filled & (judge > 0)
    if truth is None:
        missed = np.zeros_like(missed)
    n_right, n_wrong, n_missed = right.sum(1), wrong.sum(1), missed.sum(1)
    good = has_known & (n_right > 0) & (n_wrong == 0)
    groups = (
        (np.flatnonzero(good), right, (count + 1) // 2),
        (np.flatnonzero(has_known & (n_wrong > 0)), wrong, (count + 1) // 3),
        (np.flatnonzero(has_known & ~filled.any(1) & (n_missed > 0)), missed, 1),
        (np.flatnonzero(has_known), cells > 0, count),
        (np.arange(len(cells)), unknown, count),
    )
    chosen: list[int] = []
    shown: set[int] = set()
    for rows, marks, share in groups:
        order = rows[np.lexsort((rows, n_missed[rows] + n_wrong[rows], -n_right[rows]))]
        # First images that show a class not shown yet, so that six images do not all show one class.
        picked = 0
        for fresh in (True, False):
            for row in order.tolist():
                classes = set(np.flatnonzero(marks[row]).tolist())
                if picked >= share or len(chosen) >= count:
                    break
                if row not in chosen and (not fresh or classes - shown == classes):
                    chosen.append(row)
                    shown |= classes
                    picked += 1
    return [_example(comparison, row) for row in chosen]


def _example(comparison: Comparison, row: int) -> Example:
    labels = comparison.cells[row]
    outcomes = {}
    for method in comparison.with_generators():
        filled = np.zeros(len(labels), dtype=np.bool_)
        for name, limits in method.thresholds.items():
            filled |= (labels == 0) & (method.scores[name][row] > limits)
        if comparison.truth is None:
            outcomes[method.name] = {"filled": _names(comparison, filled)}
            continue
        hidden = np.where(labels == 0, comparison.truth[row], 0)
        outcomes[method.name] = {
            "recovered": _names(comparison, filled & (hidden > 0)),
            "wrong": _names(comparison, filled & (hidden < 0)),
            "missed": _names(comparison, ~filled & (hidden > 0)),
        }
    return Example(row, _names(comparison, labels > 0), int((labels < 0).sum()), outcomes)


def _names(comparison: Comparison, where: BoolArray) -> tuple[str, ...]:
    return tuple(comparison.classes[index] for index in np.flatnonzero(where))


def difference_words(points: float) -> str:
    """Return how a number compares with another, in points of a hundred, in words.

    >>> difference_words(2.31), difference_words(-0.4), difference_words(0.04)
    ('2.3 points above', '0.4 points below', 'level with')
    """
    if round(abs(points), 1) == 0:
        return "level with"
    return f"{abs(points):.1f} point{'' if round(abs(points), 1) == 1 else 's'} {'above' if points > 0 else 'below'}"


def comparison_sentence(comparison: Comparison, titles: dict[str, str]) -> str:
    """Return one or two sentences: how the subject compares with the other methods, better or worse."""
    subject, others = comparison.subject, comparison.methods[:-1]
    title = titles.get(subject.name, subject.name)
    score = subject.summary.get("mAP")
    if score is None:
        return "No class of the test images is measurable, so there is nothing to compare."
    text = (
        f"With {100 * comparison.proportion:.0f} % of the training labels known, {title} reaches "
        f"{100 * score:.1f} mAP on {comparison.counts.get('test', 0):,} unseen images"
    )
    parts = [
        f"{difference_words(100 * (score - other.summary['mAP']))} {titles.get(other.name, other.name)}"
        for other in others
        if other.summary.get("mAP") is not None
    ]
    text += f", {' and '.join(parts)}." if parts else "."
    best = max(
        (m for m in comparison.methods if m.summary.get("mAP") is not None), key=lambda m: m.summary["mAP"]
    )
    if best.summary["mAP"] > score:
        text += f" Here {titles.get(best.name, best.name)} is the best of them."
    return text

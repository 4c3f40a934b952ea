"""Inspect a table before any training: what is known, which classes are thin, what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from satl.labels.file_report import FileReport, counted
from satl.labels.io.registry import TableFile
from satl.labels.table import ABSENT, PRESENT, UNKNOWN, LabelTable, split_role

MIN_POSITIVES = 10
"""Below this many known positives a class is thin: their 10 % quantile is then just the lowest score."""
MIN_NEGATIVES = 100
"""Below this many known negatives a class is thin: more than 1 % of the unknown negatives may pass."""
NOMINAL_NEGATIVES = 1000
"""From 1 / (1 - 0.999) known negatives on, the 99.9 % quantile of the negatives means what it says."""


@dataclass(frozen=True)
class ClassReport:
    """What is known of one class.

    Attributes:
        name: of the class.
        positive, negative, unknown: numbers of cells.
        reachable_precision: the precision that all known positives, held out and without an error, could show at 95 %
            confidence.
        problems: why the class is too thin to learn from, each with what satl does about it; empty if it is not.
    """

    name: str
    positive: int
    negative: int
    unknown: int
    reachable_precision: float
    problems: tuple[str, ...] = ()

    @property
    def thin(self) -> bool:
        """Whether too little is known to learn the class and its threshold."""
        return bool(self.problems)


@dataclass(frozen=True)
class Inspection:
    """What is known in a label table and what is wrong; ``as_dict`` gives it as plain data for JSON.

    Attributes:
        counted: the split whose rows the classes are counted over ("train"), or None for all rows.
        unlabelled: images (of those rows) without any known label.
        truth_known, truth_contradicted: cells with a hidden truth, and known cells that differ from it.
        files: what was found of the image files, or None.
    """

    path: str | None
    format: str | None
    encoding: str | None
    encoding_detected: bool
    values: Mapping[str, int]
    num_images: int
    num_classes: int
    splits: Mapping[str, int]
    counted: str | None
    counted_images: int
    positive: int
    negative: int
    unknown: int
    positive_only: bool
    classes: tuple[ClassReport, ...]
    unlabelled: tuple[str, ...]
    truth_known: int | None
    truth_contradicted: int | None
    files: FileReport | None

    @property
    def known_proportion(self) -> float:
        """Share of the counted cells that are known."""
        return (self.positive + self.negative) / (self.positive + self.negative + self.unknown)

    @property
    def thin_classes(self) -> tuple[ClassReport, ...]:
        """The classes too thin to learn from, the fewest known positives first."""
        return tuple(sorted((c for c in self.classes if c.thin), key=lambda c: (c.positive, c.negative)))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know before training, one sentence each, most important first."""
        return tuple(_notes(self))

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        data = asdict(self)
        data["values"] = {value or "blank": count for value, count in self.values.items()}
        data["splits"] = dict(self.splits)
        for entry, report in zip(data["classes"], self.classes, strict=True):
            entry["thin"] = report.thin
            entry["reachable_precision"] = round(report.reachable_precision, 4)
        data["known_proportion"] = self.known_proportion
        data["notes"] = list(self.notes)
        return data


def inspect_table(table: LabelTable | TableFile, files: FileReport | None = None) -> Inspection:
    """Report what is known in a table, which classes are thin, and what is wrong.

    Args:
        table: a table, or what ``open_table`` returned, which adds the encoding and the values seen.
        files: what :func:`satl.images.file_checks.inspect_images` found of its image files.

    Classes are counted over the ``train`` rows where the table has any, else over all rows.

    >>> cells = np.array([[1, 0], [0, 0]])
    >>> report = inspect_table(LabelTable(("a", "b"), ("cat", "dog"), cells, encoding="signed"))
    >>> report.positive_only, report.unlabelled, report.classes[1].problems[0]
    (True, ('b',), 'nothing known: the threshold stays at 1 and no pseudo-label is made')
    """
    from satl.evaluation.confidence_bounds import (
        clopper_pearson_lower,  # here, because SciPy takes half a second to load
    )

    source = table if isinstance(table, TableFile) else None
    labels = table.table if isinstance(table, TableFile) else table
    splits = labels.splits
    counted = "train" if any(split_role(name) == "train" for name in splits) else None
    rows = np.zeros(labels.num_images, dtype=np.bool_)
    rows[slice(None) if counted is None else labels.train_rows()] = True
    cells = labels.cells[rows]
    positive = (cells == PRESENT).sum(axis=0).tolist()
    negative = (cells == ABSENT).sum(axis=0).tolist()
    reachable = clopper_pearson_lower(positive, positive).tolist()
    classes = tuple(
        ClassReport(name, p, n, len(cells) - p - n, precision, _problems(p, n))
        for name, p, n, precision in zip(labels.classes, positive, negative, reachable, strict=True)
    )
    empty = np.flatnonzero(rows)[~(cells != UNKNOWN).any(axis=1)]
    truth = labels.truth
    contradicted = None if truth is None else (truth != UNKNOWN) & labels.known & (truth != labels.cells)
    return Inspection(
        path=None if source is None else str(source.path),
        format=None if source is None else source.format,
        encoding=None if source is None else source.encoding,
        encoding_detected=source is not None and source.detected,
        values={} if source is None else dict(source.counts),
        num_images=labels.num_images,
        num_classes=labels.num_classes,
        splits=splits,
        counted=counted,
        counted_images=len(cells),
        positive=sum(positive),
        negative=sum(negative),
        unknown=int(cells.size - sum(positive) - sum(negative)),
        positive_only=sum(positive) > 0 and sum(negative) == 0,
        classes=classes,
        unlabelled=tuple(labels.images[i] for i in empty.tolist()),
        truth_known=None if truth is None else int((truth != UNKNOWN).sum()),
        truth_contradicted=None if contradicted is None else int(contradicted.sum()),
        files=files,
    )


def _problems(positive: int, negative: int) -> tuple[str, ...]:
    if positive == 0 and negative == 0:
        return ("nothing known: the threshold stays at 1 and no pseudo-label is made",)
    problems = []
    if positive == 0:
        problems.append(
            "no known positive: cannot be learned or measured, its threshold rests on negatives alone"
        )
    elif positive < MIN_POSITIVES:
        problems.append(
            f"{_few(positive, 'positive')} (want {MIN_POSITIVES}): its 10 % quantile is the lowest score"
        )
    if negative == 0:
        problems.append("no known negative: nothing holds false pseudo-labels back")
    elif negative < MIN_NEGATIVES:
        share = 100 / (negative + 1)
        problems.append(
            f"{_few(negative, 'negative')} (want {MIN_NEGATIVES}): about {share:.2g} % of negatives may pass, not 0.1 %"
        )
    return tuple(problems)


def _few(count: int, word: str) -> str:
    return f"only {count} known {word}{'s' * (count != 1)}"


def _notes(report: Inspection) -> list[str]:
    notes = []
    if report.positive + report.negative == 0:
        notes.append("Nothing is known at all: label some cells before training.")
    elif report.positive_only:
        notes.append(
            "Positive-only table: no cell is known to be absent, so an unlisted class may be absent or just not "
            "looked at, and no threshold can be learned from known negatives; mark some cells as absent."
        )
    unused = [name for name in report.splits if split_role(name) not in ("train", "val", "test")]
    if unused:
        count = sum(report.splits[name] for name in unused)
        notes.append(
            f"{counted(count, 'image has|images have')} a split that is none of train, val and test "
            f"({', '.join(map(repr, unused[:3]))}): training leaves them out."
        )
    if report.truth_contradicted:
        notes.append(
            f"{counted(report.truth_contradicted, 'known cell differs|known cells differ')} from the hidden truth."
        )
    if report.files is not None:
        notes.extend(report.files.notes)
    if report.unlabelled:
        share = len(report.unlabelled) / report.counted_images
        notes.append(
            f"{counted(len(report.unlabelled), 'image|images')} ({share:.1%}) "
            f"{'has' if len(report.unlabelled) == 1 else 'have'} no known label, such as "
            f"{report.unlabelled[0]!r}: only pseudo-labels can make use of such images."
        )
    thin = len(report.thin_classes)
    if thin:
        notes.append(
            f"{thin} of {counted(report.num_classes, 'class|classes')} {'is' if thin == 1 else 'are'} thin "
            f"(fewer than {MIN_POSITIVES} known positives or {MIN_NEGATIVES} known negatives): "
            f"label more, or trust less."
        )
    loose = sum(MIN_NEGATIVES <= c.negative < NOMINAL_NEGATIVES for c in report.classes)
    if loose:
        notes.append(
            f"{counted(loose, 'class has|classes have')} {MIN_NEGATIVES} to {NOMINAL_NEGATIVES - 1} known negatives: "
            f"the 99.9 % quantile is then the highest negative score, and about 1 in n + 1 negatives may pass."
        )
    uncertified = sum(c.reachable_precision < 0.95 for c in report.classes)
    if uncertified:
        notes.append(
            f"{counted(uncertified, 'class has|classes have')} fewer than 59 known positives: no hold-out of them, "
            f"even without an error, can show a precision of 0.95 at 95 % confidence."
        )
    return notes

"""A look at a table before any training: what is known, what is thin, which files are broken."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from satl.labels.io.registry import TableFile
from satl.labels.table import ABSENT, PRESENT, UNKNOWN, LabelTable, split_role

if TYPE_CHECKING:
    from satl.images.file_checks import FileReport, Progress

MIN_POSITIVES = 10
"""Below this many known positives a class is thin: their 10 % quantile is then just the lowest score."""
MIN_NEGATIVES = 100
"""Below this many known negatives a class is thin: more than 1 % of the unknown negatives may pass."""
NOMINAL_NEGATIVES = 1000
"""From 1 / (1 - 0.999) known negatives on, the 99.9 % quantile of the negatives means what it says."""


@dataclass(frozen=True)
class ClassReport:
    """What is known of one class.

    positive, negative, unknown: numbers of cells.
    problems: why the class is too thin to learn from, each with what satl does about it; empty if it is not.
    """

    name: str
    positive: int
    negative: int
    unknown: int
    problems: tuple[str, ...] = ()

    @property
    def thin(self) -> bool:
        """Whether too little is known to learn the class and its threshold."""
        return bool(self.problems)

    @property
    def reachable_precision(self) -> float:
        """The precision that all known positives, held out and free of errors, could show at 95 % confidence."""
        return reachable_precision(self.positive)


@dataclass(frozen=True)
class Inspection:
    """The health of a label table; ``as_dict`` gives it as plain data for JSON.

    counted: the split whose rows the classes are counted over ("train"), or None for all rows.
    unlabelled: images (of those rows) without any known label.
    truth_known, truth_contradicted: cells with a hidden truth, and known cells that differ from it.
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


def reachable_precision(count: int) -> float:
    """Return the precision that ``count`` checked labels without an error show at 95 % confidence.

    The Clopper-Pearson bound at zero errors, ``0.05 ** (1 / count)``; 0 without labels.

    >>> [round(reachable_precision(n), 3) for n in (0, 14, 29, 59, 299)]
    [0.0, 0.807, 0.902, 0.95, 0.99]
    """
    return 0.05 ** (1 / count) if count else 0.0


def inspect_table(
    table: LabelTable | TableFile,
    images_dir: str | os.PathLike[str] | None = None,
    *,
    check: Callable[[LabelTable, Path, Progress | None], FileReport] | None = None,
    progress: Progress | None = None,
) -> Inspection:
    """Inspect a table and, where ``images_dir`` is given, decode every image file in it.

    table: a table, or what ``open_table`` returned, which adds the encoding and the values seen.
    check: looks at the images; by default :func:`inspect_files`. With ``satl.images.inspection.inspect_images``
        ``images_dir`` may be a packed store, and files are found and refused as in training.
    progress: called with (images done, images in all) while files are read.

    Classes are counted over the ``train`` rows where the table has any, else over all rows.

    >>> report = inspect_table(LabelTable(("a", "b"), ("cat", "dog"), np.array([[1, 0], [0, 0]])))
    >>> report.positive_only, report.unlabelled, report.classes[1].problems[0]
    (True, ('b',), 'nothing known: the threshold stays at 1 and no pseudo-label is made')
    """
    from satl.images.file_checks import inspect_files

    source = table if isinstance(table, TableFile) else None
    labels = table.table if isinstance(table, TableFile) else table
    files = None if images_dir is None else (check or inspect_files)(labels, Path(images_dir), progress)
    splits = labels.splits
    counted = "train" if any(split_role(name) == "train" for name in splits) else None
    rows = np.zeros(labels.num_images, dtype=np.bool_)
    rows[slice(None) if counted is None else labels.train_rows()] = True
    cells = labels.cells[rows]
    positive = (cells == PRESENT).sum(axis=0).tolist()
    negative = (cells == ABSENT).sum(axis=0).tolist()
    classes = tuple(
        ClassReport(name, p, n, len(cells) - p - n, _problems(p, n))
        for name, p, n in zip(labels.classes, positive, negative, strict=True)
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


def _count(number: int, forms: str) -> str:
    """Say a number with the right one of two forms, ``"image|images"``."""
    one, many = forms.split("|")
    return f"{number:,} {one if number == 1 else many}"


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
            f"{_count(count, 'image has|images have')} a split that is none of train, val and test "
            f"({', '.join(map(repr, unused[:3]))}): training leaves them out."
        )
    if report.truth_contradicted:
        notes.append(
            f"{_count(report.truth_contradicted, 'known cell differs|known cells differ')} from the hidden truth."
        )
    files = report.files
    if files is not None:
        notes.extend(_file_notes(files))
    if report.unlabelled:
        share = len(report.unlabelled) / report.counted_images
        notes.append(
            f"{_count(len(report.unlabelled), 'image|images')} ({share:.1%}) "
            f"{'has' if len(report.unlabelled) == 1 else 'have'} no known label, such as "
            f"{report.unlabelled[0]!r}: only pseudo-labels can make use of such images."
        )
    thin = len(report.thin_classes)
    if thin:
        notes.append(
            f"{thin} of {_count(report.num_classes, 'class|classes')} {'is' if thin == 1 else 'are'} thin "
            f"(fewer than {MIN_POSITIVES} known positives or {MIN_NEGATIVES} known negatives): "
            f"label more, or trust less."
        )
    loose = sum(MIN_NEGATIVES <= c.negative < NOMINAL_NEGATIVES for c in report.classes)
    if loose:
        notes.append(
            f"{_count(loose, 'class has|classes have')} {MIN_NEGATIVES} to {NOMINAL_NEGATIVES - 1} known negatives: "
            f"the 99.9 % quantile is then the highest negative score, and about 1 in n + 1 negatives may pass."
        )
    uncertified = sum(c.reachable_precision < 0.95 for c in report.classes)
    if uncertified:
        notes.append(
            f"{_count(uncertified, 'class has|classes have')} fewer than 59 known positives: no hold-out of them, "
            f"even without an error, can show a precision of 0.95 at 95 % confidence."
        )
    return notes


def _file_notes(files: FileReport) -> list[str]:
    notes = []
    if files.missing:
        hint = f" ({files.hint})" if files.hint else ""
        notes.append(
            f"{len(files.missing):,} of {files.checked:,} image files "
            f"{'is' if len(files.missing) == 1 else 'are'} missing in {files.folder}, such as "
            f"{files.missing[0]!r}{hint}."
        )
    if files.unreadable:
        image, reason = files.unreadable[0]
        notes.append(
            f"{_count(len(files.unreadable), 'image file|image files')} cannot be decoded, "
            f"such as {image!r} ({reason}): replace them or remove their rows."
        )
    if files.duplicates:
        first = files.duplicates[0].images
        notes.append(
            f"{_count(len(files.duplicates), 'group of images has|groups of images have')} the same content, "
            f"such as {first[0]!r} and {first[1]!r}."
        )
    leaks = [group for group in files.duplicates if len(group.splits) > 1]
    if leaks:
        notes.append(
            f"{len(leaks):,} of these groups spread over several splits (such as {' and '.join(leaks[0].splits)}), so "
            f"results there would be too good: keep one image of each."
        )
    clashes = sum(group.contradictory for group in files.duplicates)
    if clashes:
        notes.append(f"In {clashes:,} of these groups known labels contradict each other: correct them.")
    return notes

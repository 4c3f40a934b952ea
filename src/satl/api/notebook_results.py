"""What calls give back: the numbers as frames, and a short display for notebooks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from satl.labels.frames import FrameKind, frame_from_arrow, make_frame

if TYPE_CHECKING:
    from satl.completion.workflow.complete import Completion
    from satl.evaluation import Evaluation
    from satl.inference.decision_thresholds import DecisionThresholds
    from satl.inference.recogniser import Recogniser
    from satl.labels import LabelTable

_MOST_ROWS = 20
"""Rows of a table that a notebook shows."""


def html_table(
    title: str,
    facts: Iterable[str],
    header: Sequence[str],
    rows: Sequence[Sequence[Any]],
    total: int | None = None,
) -> str:
    """Return a small table for a notebook; everything in it is escaped.

    Args:
        title: in bold.
        facts: a line each.
        header: names of the columns.
        rows: of which the first are shown.
        total: how many rows there are, where not all of them are given.

    >>> html_table("<run>", ["a & b"], ["class"], [["<i>"]])
    '<div><strong>&lt;run&gt;</strong><br>a &amp; b<table><tr><th>class</th></tr><tr><td>&lt;i&gt;</td></tr></table>...'
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_shown(value))}</td>" for value in row) + "</tr>"
        for row in rows[:_MOST_ROWS]
    )
    more = (len(rows) if total is None else total) - _MOST_ROWS
    note = f"<br>and {more:,} more" if more > 0 else ""
    lines = "".join(f"<br>{escape(fact)}" for fact in facts)
    return f"<div><strong>{escape(title)}</strong>{lines}<table><tr>{head}</tr>{body}</table>{note}</div>"


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def csv_frame(path: Path, kind: FrameKind | None) -> Any:
    """Return a CSV file that satl wrote as a frame."""
    import pyarrow.csv

    return frame_from_arrow(pyarrow.csv.read_csv(path), kind)


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """The folder of a run that was trained; can be given wherever a path of a run can.

    Attributes:
        path: the folder.
        kind: whose frames are given back: "pandas", "polars" or "arrow"; None: whichever is in use.
    """

    path: Path
    kind: FrameKind | None = None

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    @cached_property
    def frame(self) -> Any:
        """One row an epoch: stage, loss, validation mAP, pseudo-labels that were emitted."""
        rows = self._rows()
        return make_frame({name: [row[name] for row in rows] for name in _EPOCH}, self.kind)

    @property
    def thresholds(self) -> Any:
        """The thresholds of the pseudo-labels, one for each class and generator, as a frame."""
        from satl.runs.run_folder import RunFolder

        return csv_frame(RunFolder(self.path).thresholds, self.kind)

    def recogniser(self, checkpoint: str = "best") -> Recogniser:
        """Load the trained network."""
        from satl.inference.recogniser import Recogniser

        return Recogniser.load(self.path, checkpoint)

    def _rows(self) -> list[dict[str, Any]]:
        from satl.runs.run_folder import RunFolder

        return [
            {
                "epoch": row["epoch"] + 1,
                "stage": row.get("stage"),
                "loss": row.get("losses", {}).get("total"),
                "mAP": row.get("val", {}).get("mAP"),
                "pseudo_labels": sum(counts["emitted"] for counts in row.get("pseudo_labels", {}).values()),
            }
            for row in RunFolder(self.path).read_metrics()
        ]

    def __repr__(self) -> str:
        rows = self._rows()
        scores = [row["mAP"] for row in rows if row["mAP"] is not None]
        best = f", best validation mAP {100 * max(scores):.2f}" if scores else ""
        return f"TrainedRun({str(self.path)!r}, {len(rows)} epoch{'s' * (len(rows) != 1)}{best})"

    def _repr_html_(self) -> str:
        return html_table(
            repr(self),
            ["next: satl.evaluate(run), satl.complete(run), satl.predict(run, images)"],
            _EPOCH,
            [list(row.values()) for row in self._rows()],
        )


_EPOCH = ("epoch", "stage", "loss", "mAP", "pseudo_labels")


@dataclass(frozen=True, eq=False)
class CompletionResult:
    """A completed table and how far to trust it.

    Attributes:
        completion: what was done, counted in cells, and the folder that was written.
        kind: whose frames are given back.
    """

    completion: Completion
    kind: FrameKind | None = None

    @property
    def path(self) -> Path:
        """The folder that was written; ``satl review`` opens it."""
        return self.completion.folder.path

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    @property
    def report(self) -> dict[str, Any]:
        """All that can be said about the completion; ``report.html`` in the folder shows it."""
        return self.completion.report

    @cached_property
    def table(self) -> LabelTable:
        """The completed table."""
        return self.completion.folder.read_completed()

    @cached_property
    def frame(self) -> Any:
        """The completed table: 1 present, 0 absent, a gap where nothing could be promised."""
        return self.table.to_frame(self.kind)

    @cached_property
    def changes(self) -> Any:
        """What was filled in or is proposed for review, one row a cell, with score, threshold and band."""
        return csv_frame(self.completion.folder.changes, self.kind)

    @cached_property
    def classes(self) -> Any:
        """One row a class: known cells, accepted ones, proposals, thresholds."""
        rows = self._rows()
        return make_frame({name: [row[at] for row in rows] for at, name in enumerate(_CLASS)}, self.kind)

    def _rows(self) -> list[list[Any]]:
        return [
            [
                entry["name"],
                entry["known_positives"],
                entry["known_negatives"],
                entry["present"]["accepted"],
                entry["absent"]["accepted"],
                entry["review"],
                entry["left"],
                entry["present"]["threshold"],
                entry["absent"]["threshold"],
            ]
            for entry in self.report["classes"]
        ]

    def __repr__(self) -> str:
        done = self.completion
        return (
            f"CompletionResult({str(self.path)!r}: {done.present + done.absent:,} cells accepted, "
            f"{done.review:,} for review, {done.left:,} left unknown)"
        )

    def _repr_html_(self) -> str:
        facts = [self.report["statement"], *self.report["notes"], f"Report: {self.completion.folder.page}"]
        return html_table(repr(self), facts, _CLASS, self._rows())


_CLASS = (
    *("class", "known_present", "known_absent", "accepted_present", "accepted_absent", "review", "left"),
    *("present_from", "absent_to"),
)


@dataclass(frozen=True, eq=False)
class EvaluationResult:
    """What a model is worth on the known cells of some images.

    Attributes:
        evaluation: all numbers.
        split: "train", "val" or "test" of the run; "given" for data of the call.
        kind: whose frames are given back.
    """

    evaluation: Evaluation
    split: str
    kind: FrameKind | None = None

    @property
    def summary(self) -> dict[str, float | int | None]:
        """mAP, OF1, CF1 and the others, in [0, 1]; None: not measurable."""
        return self.evaluation.summary()

    @cached_property
    def frame(self) -> Any:
        """One row a class: average precision, precision, recall, F1."""
        rows = self.evaluation.as_dict()["per_class"]
        return make_frame({name: [row[name] for row in rows] for name in rows[0]}, self.kind)

    def __repr__(self) -> str:
        found = self.evaluation
        return f"EvaluationResult({self.split}, {found.num_images:,} images: mAP {100 * found.mAP:.2f})"

    def _repr_html_(self) -> str:
        names = ("mAP", "OP", "OR", "OF1", "CP", "CR", "CF1")
        summary = self.summary
        facts = ["  ".join(f"{name} {_shown(summary.get(name))}" for name in names)]
        rows = self.evaluation.as_dict()["per_class"]
        header = [
            "name",
            "known_positives",
            "known_negatives",
            "average_precision",
            "precision",
            "recall",
            "f1",
        ]
        return html_table(repr(self), facts, header, [[row[name] for name in header] for row in rows])


@dataclass(frozen=True, eq=False)
class PredictionResult:
    """Class probabilities of images, and the decisions that follow from thresholds.

    Attributes:
        images: N ids.
        classes: C names.
        probabilities: float32 (N, C).
        thresholds: from which probability on a class is present.
        kind: whose frames are given back.
    """

    images: tuple[str, ...]
    classes: tuple[str, ...]
    probabilities: npt.NDArray[np.float32]
    thresholds: DecisionThresholds
    kind: FrameKind | None = None

    @property
    def present(self) -> npt.NDArray[np.bool_]:
        """Bool (N, C): which classes are present."""
        return np.asarray(self.probabilities >= self.thresholds.values, dtype=np.bool_)

    @cached_property
    def frame(self) -> Any:
        """The probabilities: a column ``image`` and one for each class."""
        return self._frame(self.probabilities)

    @cached_property
    def decisions(self) -> Any:
        """The decisions: a column ``image`` and one for each class, 1 present and 0 not."""
        return self._frame(self.present.astype(np.int8))

    def _frame(self, values: npt.NDArray[Any]) -> Any:
        # Column by column, so that a class that is called "image" does not take the place of the ids.
        import pyarrow as pa

        columns = [pa.array(self.images, pa.string()), *(pa.array(column) for column in values.T.copy())]
        return frame_from_arrow(pa.Table.from_arrays(columns, names=["image", *self.classes]), self.kind)

    def __repr__(self) -> str:
        return f"PredictionResult({len(self.images):,} images x {len(self.classes)} classes)"

    def _repr_html_(self) -> str:
        rows = [
            [
                image,
                ", ".join(
                    f"{name} {value:.2f}"
                    for name, value, there in zip(self.classes, row, decided, strict=True)
                    if there
                )
                or None,
            ]
            for image, row, decided in zip(
                self.images[:_MOST_ROWS], self.probabilities, self.present, strict=False
            )
        ]
        facts = [f"Thresholds: {self.thresholds.source}"]
        return html_table(repr(self), facts, ("image", "present"), rows, len(self.images))

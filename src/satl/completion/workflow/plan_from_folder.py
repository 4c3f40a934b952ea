"""Plan the next labels for a completed folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from satl.completion.outputs.completed_folder import CompletedFolder
from satl.completion.statistics.certify import certify
from satl.completion.statistics.label_plan import LabelPlan, plan_labels
from satl.errors import Argument, RunError, Sentence
from satl.labels import LabelTable
from satl.scores import read_scores


def plan_from_folder(
    out: str | Path, budget: int = 500, seed: int = 0, scores: str | Path | None = None
) -> tuple[LabelPlan, LabelTable]:
    """Plan the next labels for the table of a completion; returns the plan and the table that it is about.

    Args:
        out: folder of a completion.
        budget, seed: see :func:`satl.completion.statistics.label_plan.plan_labels`.
        scores: the file of scores, if it has been moved since.
    """
    folder = CompletedFolder.open(out)
    report = folder.read_report()
    table = folder.read_labels()
    file = scores if scores is not None else folder.scores
    if scores is None and not folder.scores.is_file():
        file = Path(report["source"]["scores"])
        if not file.exists():
            raise RunError(
                f"the scores of {folder.path} are not there any more",
                where=file,
                remedy=Sentence("name the file with {scores}", scores=Argument("scores")),
            )
    values = read_scores(file, table).values
    labels = np.asfortranarray(table.cells)
    certification = certify(
        values,
        labels,
        folder.read_tested(table),
        precision=report["target_precision"],
        confidence=report["confidence"],
        family=report["family"],
        transfer=report["transfer"],
        encoding="signed",
    )
    return plan_labels(values, labels, certification, budget, seed, encoding="signed"), table

"""The content of ``report.json``: what was accepted and why, in numbers and in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from satl import __version__
from satl.completion.outputs.completed_folder import FORMAT
from satl.completion.statistics.assessment import Assessment, CompletionSettings, Withheld
from satl.completion.statistics.certificates import Certificate
from satl.completion.statistics.class_changes import ClassCounts, TableChanges
from satl.completion.workflow.case import Case
from satl.evaluation.undefined import finite_or_none
from satl.files import file_ending
from satl.labels import ABSENT, PRESENT, LabelTable

SHOWN_LABEL_ERRORS = 50
"""Label errors that the report lists; all of them are in ``changes.csv``."""

_WITHHELD = {
    Withheld.REVIEW_ONLY: "not accepted, because only proposals were asked for",
    Withheld.SHIFT: "withheld, because the unknown cells do not look like the known ones",
    Withheld.PREVALENCE: (
        "withheld, because at the share of positives estimated for the unknown cells its precision would be below "
        "the promise; a completion with transfer=prevalence certifies for that share"
    ),
}


def build_report(
    case: Case,
    settings: CompletionSettings,
    assessment: Assessment,
    counts: Sequence[ClassCounts],
    changes: TableChanges,
) -> dict[str, Any]:
    """Return the report; JSON-safe (undefined is None)."""
    table = case.table
    totals = _totals(table, counts)
    classes = _classes(table, settings, assessment, counts)
    notes = list(case.notes)
    if not changes.list_absent:
        notes.append(
            f"The {totals['absent']:,} cells accepted as absent are in the completed table, but not one by one in "
            "changes.csv, because there are so many; a completion that lists all cells has them there."
        )
    if not totals["review"] + totals["left"] and case.file.encoding not in (None, "words"):
        notes.append(
            "Nothing is unknown any more, so the completed table may be read in several ways: say that its encoding "
            f"is {case.file.encoding}."
        )
    return {
        "format": FORMAT,
        "satl": __version__,
        "target_precision": settings.precision,
        "confidence": settings.confidence,
        "family": settings.family,
        "transfer": settings.transfer,
        "review_only": settings.review_only,
        "images": case.images,
        "source": {
            **case.source,
            "is_file": case.file.path.is_file(),
            "extension": file_ending(case.file.path),
            "tested": case.tested_count,
            "lists_absent": changes.list_absent,
            "lists_left": changes.list_left,
        },
        "statement": statement(
            settings,
            totals,
            any(entry[side]["certified"] for entry in classes for side in ("present", "absent")),
        ),
        "assumption": assumption(settings),
        "model": model_sentence(case),
        "notes": notes,
        "counts": totals,
        "label_errors": _label_errors(table, changes),
        "classes": classes,
    }


def statement(settings: CompletionSettings, totals: dict[str, int], certified: bool = False) -> str:
    """Say in a few sentences what was done and what is promised.

    ``certified``: whether any class has a threshold, which matters where nothing was accepted.

    >>> print(statement(CompletionSettings(), dict(unknown=10, present=1, absent=6, review=2, left=1)))
    7 of 10 unknown cells were accepted (1 as present, 6 as absent), 2 are proposed for review and 1 stays unknown.
    With 95 % confidence for each class and direction, at least 95 % of the cells accepted for it are right.
    """
    accepted = totals["present"] + totals["absent"]
    left = f"{totals['left']:,} stay{'s' * (totals['left'] == 1)} unknown"
    done = (
        f"{accepted:,} of {totals['unknown']:,} unknown cells were accepted ({totals['present']:,} as present, "
        f"{totals['absent']:,} as absent), {totals['review']:,} "
        f"{'is' if totals['review'] == 1 else 'are'} proposed for review and {left}."
    )
    if settings.review_only:
        return f"{done} Only proposals were asked for, so nothing is promised."
    if not accepted and certified:
        return f"{done} There are certified thresholds, but no unknown cell lies beyond them."
    if not accepted:
        return f"{done} No precision could be promised for any class: see the reasons."
    each = "each class and direction"
    scope, place = (each, "it") if settings.family == "class" else ("all classes at once", each)
    return (
        f"{done} With {100 * settings.confidence:g} % confidence for {scope}, at least "
        f"{100 * settings.precision:g} % of the cells accepted for {place} are right."
    )


def assumption(settings: CompletionSettings) -> str:
    """Say what the promise rests on."""
    shared = (
        "a random choice decided which cells are known, so that the tested cells are like the unknown ones"
        if settings.transfer == "same"
        else "known positives are like unknown positives and known negatives like unknown negatives, only mixed in "
        "another proportion"
    )
    return (
        f"The promise rests on three things: the model has not seen the labels it was tested on; {shared}; and "
        "precision does not recover below the score at which it first misses the target. The second is checked "
        "below as far as scores can show it; an audit needs no assumption."
    )


def model_sentence(case: Case) -> str:
    """Say which model the statement is about, and on which cells it was tested."""
    source, tested = case.source, case.tested_count
    known = int(np.count_nonzero(case.basis))
    cells = f"{tested:,} known cell{'s' * (tested != 1)}"
    extra = ""
    if source.get("planned"):
        extra = f" Among them are {source['planned']:,} that a plan picked by their score."
    if source.get("certify_on"):
        extra += (
            f" They are the known cells of {source['certify_on']}, from before the table was filled further."
        )
    if source["kind"] == "run":
        if not tested:
            return (
                f"The scores are those of the run {source['run']} (checkpoint {source['checkpoint']}), which was "
                "trained on all known cells: nothing was left to test it on."
            )
        return (
            f"The statement is about the model of the run {source['run']} (checkpoint {source['checkpoint']}), which "
            f"was trained without the {tested:,} known cells it was tested on. A final model may be trained on all "
            f"known cells, but the statement is not about that one.{extra}"
        )
    if source.get("folds"):
        return (
            f"The scores come from {source['folds']} models, each for cells that it was not trained on, and were "
            f"tested on {cells}. The statement is about these scores, not about a model trained on all of them.{extra}"
        )
    if case.tested is None:
        return (
            f"All {cells} counted as out of sample, because nothing says otherwise: the statement is true only if "
            f"the model that made the scores was not trained on their labels.{extra}"
        )
    return (
        f"The statement is about the model that made the scores, tested on the {tested:,} of {known:,} known cells "
        f"that count as out of sample ({source['out_of_sample']}).{extra}"
    )


def _totals(table: LabelTable, counts: Sequence[ClassCounts]) -> dict[str, int]:
    known = int(np.count_nonzero(table.cells))
    totals = {key: sum(one.cells[key] for one in counts) for key in counts[0].cells}
    return {
        "images": table.num_images,
        "classes": table.num_classes,
        "known": known,
        "unknown": table.cells.size - known,
        "present": totals["present"],
        "absent": totals["absent"],
        "review": totals["review"],
        "left": totals["left"] + totals["without_score"],
        "without_score": totals["without_score"],
        "label_errors": totals["errors"],
    }


def _classes(
    table: LabelTable, settings: CompletionSettings, assessment: Assessment, counts: Sequence[ClassCounts]
) -> list[dict[str, Any]]:
    names = table.classes
    shifts = assessment.shift.records(names)
    present = _sides(assessment.certification.present, assessment.present_withheld, names, settings)
    absent = _sides(assessment.certification.absent, assessment.absent_withheld, names, settings)
    positives = (table.cells == PRESENT).sum(axis=0)
    negatives = (table.cells == ABSENT).sum(axis=0)
    entries = []
    for column, (name, one) in enumerate(zip(names, counts, strict=True)):
        entries.append(
            {
                "name": name,
                "known_positives": int(positives[column]),
                "known_negatives": int(negatives[column]),
                "unknown": table.num_images - int(positives[column]) - int(negatives[column]),
                "without_score": one.cells["without_score"],
                "prevalence_unknown": finite_or_none(assessment.shift.prevalence[column]),
                "shift": shifts[column],
                "present": {**present[column], "accepted": one.cells["present"]},
                "absent": {**absent[column], "accepted": one.cells["absent"]},
                "review": one.cells["review"],
                "review_from": finite_or_none(assessment.review_from[column]),
                "left": one.cells["left"] + one.cells["without_score"],
                "label_errors": one.cells["errors"],
                "histogram": one.histogram,
            }
        )
    return entries


def _sides(
    certificate: Certificate, withheld: Any, names: Sequence[str], settings: CompletionSettings
) -> list[dict[str, Any]]:
    sentences = certificate.explain(names)
    precision, bounds = certificate.precision, certificate.lower_bound
    certified, needed = certificate.certified, certificate.needed
    sides = []
    for row in range(len(names)):
        why = Withheld(int(withheld[row]))
        accepts = bool(certified[row]) and why is Withheld.NO
        reason = sentences[row]
        if settings.review_only and not certificate.tested[row]:
            direction = "present" if certificate.value > 0 else "absent"
            reason = (
                f"'{names[row]}' has no threshold for {direction}: only proposals were asked for, and none of its "
                "cells was tested."
            )
        if why is not Withheld.NO:
            reason = (
                f"{reason.replace(' is accepted ', ' would be accepted ', 1).rstrip('.')}; {_WITHHELD[why]}."
            )
        more = None if certified[row] else finite_or_none(needed.at_random[row])
        in_zone = None if certified[row] else finite_or_none(needed.in_zone[row])
        sides.append(
            {
                "threshold": finite_or_none(certificate.threshold[row]),
                "precision_lower_bound": settings.precision if accepts else None,
                "certified": accepts,
                "withheld": None if why is Withheld.NO else why.name.lower(),
                "target": finite_or_none(certificate.target[row]),
                "held_out": int(certificate.cells[row]),
                "errors": int(certificate.errors[row]),
                "tested": int(certificate.tested[row]),
                "precision": finite_or_none(precision[row]),
                "evidence_bound": finite_or_none(bounds[row]) if certified[row] else None,
                "found": finite_or_none(certificate.found[row]),
                "reason": reason,
                "more_labels": None if more is None else int(more),
                "more_labels_in_zone": None if in_zone is None else int(in_zone),
            }
        )
    return sides


def _label_errors(table: LabelTable, changes: TableChanges) -> list[dict[str, Any]]:
    found = []
    for place in range(min(SHOWN_LABEL_ERRORS, len(changes.error_rows))):
        row, column = int(changes.error_rows[place]), int(changes.error_columns[place])
        found.append(
            {
                "image": table.images[row],
                "label": table.classes[column],
                "known": int(table.cells[row, column]),
                "score": round(float(changes.scores[row, column]), 6),
                "confidence": round(float(changes.error_confidence[place]), 4),
            }
        )
    return found

"""Arrays of labels from Python: no public entry point guesses what 0 and 1 mean.

Every public callable with a parameter for labels is in one of the lists below, and a new one has to be put there.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import satl
from harness.host_synchronisation import forbid_host_synchronisation
from satl import ThresholdCompleter
from satl.checks.tensor_checks import LabelReader
from satl.completion import (
    certify,
    check_shift,
    draw_audit,
    estimate_audit,
    find_label_errors,
    hold_out,
    plan_labels,
)
from satl.errors import ArrayError, EncodingError
from satl.evaluation import (
    average_precision,
    average_precision_pair,
    count_metrics,
    counts_of_decisions,
    evaluate_scores,
    pseudo_label_quality,
    pseudo_label_table,
)
from satl.evaluation.tensor_average_precision import average_precision_pair_tensor, average_precision_tensor
from satl.functional import partial_bce, signed_labels
from satl.labels import LabelTable
from satl.labels.holdout import assign_folds
from satl.losses import DifferentialRankingLoss, PartialBCELoss, SATLLoss
from satl.models.functional import cooccurrence_counts, cooccurrence_graph
from satl.models.graph import convolution_graph
from satl.scoring import fit_probe, probe_logits
from satl.thresholds import MetricThreshold, SemanticAwareThreshold
from satl.thresholds.application import apply_rule

CLASSES = ("cat", "dog", "bird")
IMAGES = tuple(f"{number}.jpg" for number in range(40))
RANDOM = np.random.default_rng(0)
SCORES = RANDOM.random((40, 3), dtype=np.float32)
TRUTH = RANDOM.random((40, 3)) < 0.4
KNOWN = RANDOM.random((40, 3)) < 0.7
SIGNED = np.where(KNOWN, np.where(TRUTH, 1, -1), 0).astype(np.int8)
COMPLETE = np.where(TRUTH, 1, -1).astype(np.int8)
SAMPLE = draw_audit(np.ones((40, 3), dtype=np.int64), size=40)
CERTIFICATION = certify(SCORES, SIGNED, encoding="signed")
BASE = LabelTable(IMAGES, CLASSES, SIGNED)
FITTED = ThresholdCompleter().fit(SCORES, SIGNED)


def _table(labels: Any, encoding: str | None) -> Any:
    return LabelTable(IMAGES, CLASSES, labels, encoding=encoding).cells.tolist()


def _with_truth(labels: Any, encoding: str | None) -> Any:
    truth = BASE.with_truth(labels, encoding).truth
    assert truth is not None
    return truth.tolist()


def _audit(labels: Any, encoding: str | None) -> Any:
    return estimate_audit(SAMPLE, labels[SAMPLE.row, SAMPLE.column], encoding=encoding).as_dict()


def _tensor(function: Callable[..., Any]) -> Callable[[Any, str | None], Any]:
    return lambda labels, encoding: [
        part.tolist()
        for part in function(torch.from_numpy(SCORES), torch.as_tensor(labels), encoding=encoding)
    ]


WHOLE: dict[str, Callable[[Any, str | None], Any]] = {
    "LabelTable": _table,
    "LabelTable.with_cells": lambda labels, encoding: BASE.with_cells(labels, encoding).cells.tolist(),
    "LabelTable.with_truth": _with_truth,
    "evaluate_scores": lambda labels, encoding: evaluate_scores(
        SCORES, labels, CLASSES, encoding=encoding
    ).as_dict(),
    "average_precision": lambda labels, encoding: average_precision(
        SCORES, labels, encoding=encoding
    ).tolist(),
    "average_precision_pair": lambda labels, encoding: [
        part.tolist() for part in average_precision_pair(SCORES, labels, encoding=encoding)
    ],
    "average_precision_tensor": _tensor(average_precision_tensor),
    "average_precision_pair_tensor": _tensor(average_precision_pair_tensor),
    "count_metrics": lambda labels, encoding: count_metrics(SCORES, labels, encoding=encoding).summary(),
    "counts_of_decisions": lambda labels, encoding: counts_of_decisions(
        SCORES > 0.5, labels, encoding=encoding
    ).summary(),
    "pseudo_label_quality": lambda labels, encoding: pseudo_label_quality(
        SCORES > 0.5, labels, COMPLETE if encoding in (None, "signed") else labels, encoding=encoding
    ).emitted.tolist(),
    "pseudo_label_table": lambda labels, encoding: pseudo_label_table(
        {"one": SCORES > 0.5}, labels, COMPLETE if encoding in (None, "signed") else labels, encoding=encoding
    )["one"].emitted.tolist(),
    "hold_out": lambda labels, encoding: hold_out(labels, fraction=0.5, encoding=encoding).mask.tolist(),
    "assign_folds": lambda labels, encoding: assign_folds(labels, encoding=encoding).tolist(),
    "certify": lambda labels, encoding: certify(SCORES, labels, encoding=encoding).present.reason.tolist(),
    "Certification.decide": lambda labels, encoding: CERTIFICATION.decide(
        SCORES, labels, encoding=encoding
    ).tolist(),
    "check_shift": lambda labels, encoding: check_shift(SCORES, labels, encoding=encoding).verdict.tolist(),
    "ThresholdCompleter.fit": lambda labels, encoding: (
        ThresholdCompleter(encoding=encoding).fit(SCORES, labels).thresholds_.tolist()
    ),
    "ThresholdCompleter.complete": lambda labels, encoding: (
        FITTED.set_params(encoding=encoding).complete(SCORES, labels).tolist()
    ),
    "ThresholdCompleter.fit_complete": lambda labels, encoding: (
        ThresholdCompleter(encoding=encoding).fit_complete(SCORES, labels).tolist()
    ),
    "find_label_errors": lambda labels, encoding: find_label_errors(
        SCORES, labels, encoding=encoding
    ).row.tolist(),
    "plan_labels": lambda labels, encoding: plan_labels(
        SCORES, labels, CERTIFICATION, encoding=encoding
    ).row.tolist(),
    "estimate_audit": _audit,
    "fit_probe": lambda labels, encoding: fit_probe(
        torch.from_numpy(SCORES), torch.as_tensor(labels), encoding=encoding
    )[1].tolist(),
    "probe_logits": lambda labels, encoding: probe_logits(
        torch.from_numpy(SCORES), torch.as_tensor(labels), encoding=encoding
    ).tolist(),
    "apply_rule": lambda labels, encoding: [
        row.as_dict() for row in apply_rule(MetricThreshold(3), SCORES, labels, CLASSES, encoding=encoding)
    ],
    "cooccurrence_counts": lambda labels, encoding: cooccurrence_counts(labels, encoding=encoding).tolist(),
    "cooccurrence_graph": lambda labels, encoding: cooccurrence_graph(labels, encoding=encoding).tolist(),
    "convolution_graph": lambda labels, encoding: convolution_graph(labels, encoding=encoding).tolist(),
}
"""Takes the labels of a whole table: refuses what can be read in two ways, unless it is told."""

STEP = {
    "asymmetric_loss",
    "contrastive_loss",
    "cooccurrence_loss",
    "differential_ranking",
    "intra_image_scores",
    "large_loss",
    "mixed_bce",
    "partial_bce",
    "prototype_contrast",
    "pseudo_labels",
    "score_histogram",
    "self_paced_loss",
    "signed_labels",
    "GeneratorInputs",
    "Learner.score",
    "StepInputs",
}
"""The formulas of a training step, which look at no value: +1, -1, 0, or what :func:`signed_labels` makes of others."""

NO_ARRAY = {
    "read_source",  # a file
    "open_table",
    "read_table",
    "write_table",
    "ScoreTable",  # a table
    "Task",  # what a command is done to
    "ImportReport",  # counts of cells
    "MergeReport",
    "PairAgreement",
    "Certificate",
    "LabelPlan",
    "ThresholdCounts",
    "ReviewStore.tallies",  # names of classes
    "NetworkContext",  # cells of a table, by training
}
"""Has a parameter of such a name that is no array of labels from a user."""

NAMES = {"labels", "targets", "cells", "truth", "answers"}
FURTHER_MODULES = (
    "satl.evaluation.tensor_average_precision",
    "satl.models.functional",
    "satl.models.graph",
    "satl.thresholds.application",
)
"""Not offered by their room itself, but named in the documentation."""


def _public() -> Iterator[tuple[str, Any]]:
    """Yield every public callable of satl that takes labels, by its short name, and the class it belongs to."""
    offered = [name for name in dir(satl) if not name.startswith("_")]
    rooms = [room for name in offered if inspect.ismodule(room := getattr(satl, name))]
    for room in [satl, *rooms, *(importlib.import_module(name) for name in FURTHER_MODULES)]:
        own = [
            name for name, value in vars(room).items() if getattr(value, "__module__", "") == room.__name__
        ]
        for name in offered if room is satl else getattr(room, "__all__", own):
            found = getattr(room, name)
            if name.startswith("_") or not str(getattr(found, "__module__", "")).startswith("satl"):
                continue
            members = {name: found} if callable(found) else {}
            if inspect.isclass(found):
                members |= {
                    f"{name}.{key}": value
                    for key, value in inspect.getmembers(found, callable)
                    if not key.startswith("_") and str(getattr(value, "__module__", "")).startswith("satl")
                }
            for key, value in members.items():
                try:
                    parameters = set(inspect.signature(value).parameters)
                except (TypeError, ValueError):
                    continue
                if NAMES & parameters:
                    yield key, found


def test_every_public_callable_that_takes_labels_is_listed() -> None:
    names = set()
    for name, owner in _public():
        if inspect.isclass(owner) and issubclass(owner, nn.Module) and name not in STEP:
            # A module is told the encoding where it is made.
            assert "encoding" in inspect.signature(owner).parameters, name
        else:
            names.add(name)
    assert names - set(WHOLE) - STEP - NO_ARRAY == set(), "put it into WHOLE, STEP or NO_ARRAY"
    gone = set(WHOLE) | STEP | NO_ARRAY
    assert gone - names == set(), "no public callable with labels any more"


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("kind", [np.int8, np.int64, np.float32, np.bool_, np.uint8])
def test_zeros_and_ones_are_refused_unless_somebody_says_what_they_mean(name: str, kind: Any) -> None:
    zeros_and_ones = TRUTH.astype(kind)
    ones = int(TRUTH.sum()) if name != "estimate_audit" else int(TRUTH[SAMPLE.row, SAMPLE.column].sum())
    with pytest.raises(ArrayError, match="can be read in 2 ways") as caught:
        WHOLE[name](zeros_and_ones, None)
    message = str(caught.value)
    assert f"1 in {ones} cells" in message
    assert "encoding='complete'" in message
    assert "encoding='signed'" in message
    assert WHOLE[name](zeros_and_ones, "complete") == WHOLE[name](COMPLETE, None)


@pytest.mark.parametrize("name", WHOLE)
def test_every_encoding_means_what_it_means_in_files(name: str) -> None:
    blank = np.where(KNOWN, TRUTH, np.nan)
    csl = np.where(KNOWN, TRUTH, -1).astype(np.int64)
    chexpert = np.where(KNOWN, TRUTH, np.where(TRUTH, np.nan, -1))
    nan_signed = np.where(KNOWN, SIGNED, np.nan)
    function = WHOLE[name]
    if name.startswith("pseudo_label"):  # labels stand for the truth too, so nothing is judged
        assert sum(function(blank, "blank")) == 0
        return
    expected = function(SIGNED, None)
    assert function(SIGNED, "signed") == expected
    assert function(blank, "blank") == expected
    assert function(blank, None) == expected  # NaN is the unknown, so 0 is absent
    assert function(csl, "csl") == expected
    assert function(chexpert, "chexpert") == expected
    assert function(nan_signed, None) == expected  # NaN is unknown everywhere
    with pytest.raises(EncodingError, match="is not an encoding"):
        function(SIGNED, "cls")


STEP_MODULES: dict[str, Callable[[str | None], Callable[[Tensor, Tensor], Any]]] = {
    "PartialBCELoss": lambda encoding: PartialBCELoss(encoding=encoding),
    "DifferentialRankingLoss": lambda encoding: (
        lambda scores, labels: DifferentialRankingLoss(encoding=encoding)(scores, labels, 0.5)
    ),
    "SATLLoss": lambda encoding: SATLLoss(3, encoding=encoding),
    "SATLLoss.pseudo_labels": lambda encoding: SATLLoss(3, encoding=encoding).pseudo_labels,
    "observe": lambda encoding: SemanticAwareThreshold(3, encoding=encoding).observe,
    "pseudo_labels": lambda encoding: SemanticAwareThreshold(3, encoding=encoding).pseudo_labels,
}


@pytest.mark.parametrize("name", STEP_MODULES)
@pytest.mark.parametrize("kind", [torch.int8, torch.int64, torch.float32, torch.float16, torch.bfloat16])
def test_a_module_refuses_zeros_and_ones_unless_somebody_says_what_they_mean(
    name: str, kind: torch.dtype
) -> None:
    scores, zeros_and_ones = torch.from_numpy(SCORES), torch.from_numpy(TRUTH).to(kind)
    call = STEP_MODULES[name]
    with pytest.raises(ArrayError, match=r"can be read in 2 ways .* pass encoding='complete'"):
        call(None)(scores, zeros_and_ones)
    with pytest.raises(ArrayError, match=r"can be read in .* ways .* pass encoding='blank'"):
        call(None)(scores, torch.from_numpy(np.where(KNOWN, TRUTH, np.nan)))
    for encoding in ("complete", "signed"):
        call(encoding)(scores, zeros_and_ones)


def test_a_module_is_sure_after_a_batch_with_minus_one() -> None:
    loss = PartialBCELoss()
    one = torch.tensor([[1, 0, 0]])
    loss(torch.zeros(1, 3), torch.zeros(1, 3))  # nothing known, which says nothing
    with pytest.raises(ArrayError, match="can be read in 2 ways"):
        loss(torch.zeros(1, 3), one)
    loss(torch.zeros(1, 3), torch.tensor([[1, 0, -1]]))
    assert loss(torch.zeros(1, 3), one).isclose(torch.tensor(2.0).log())


def test_labels_are_read_once_where_a_rule_is_handed_on() -> None:
    csl = torch.from_numpy(np.where(KNOWN, TRUTH, -1))
    for encoding in ("csl", "signed"):
        with pytest.raises(ArrayError, match=r"made for encoding 'csl'.* leave out encoding"):
            SATLLoss(3, rule=SemanticAwareThreshold(3, encoding="csl"), encoding=encoding)
    with pytest.raises(ArrayError, match="made for encoding 'csl'"):
        apply_rule(MetricThreshold(3, encoding="csl"), SCORES, csl.numpy(), CLASSES, encoding="csl")
    with pytest.raises(ValueError, match="rule is for 2 classes instead of 3"):
        SATLLoss(3, rule=SemanticAwareThreshold(2))


def test_positives_only_are_taken_where_they_are_said_to_be() -> None:
    only = np.where(SIGNED > 0, 1, 0)
    assert LabelTable(IMAGES, CLASSES, only, encoding="signed").positive_only
    assert LabelTable(IMAGES, CLASSES, np.where(only, 1, np.nan)).positive_only
    assert LabelTable(IMAGES, CLASSES, np.ones((40, 3), dtype=np.bool_)).positive_only
    assert BASE.select([0]).with_split(["a"]).num_images == 1  # parts of a table are never asked again


MODULES: dict[str, Callable[[Tensor, Tensor, str], Any]] = {
    "PartialBCELoss": lambda scores, labels, encoding: PartialBCELoss(encoding=encoding)(scores, labels),
    "DifferentialRankingLoss": lambda scores, labels, encoding: DifferentialRankingLoss(encoding=encoding)(
        scores, labels, 0.5
    ),
    "SATLLoss": lambda scores, labels, encoding: SATLLoss(3, encoding=encoding)(scores, labels),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_read_by_the_encoding_they_are_told(name: str) -> None:
    scores, signed = torch.from_numpy(SCORES), torch.from_numpy(SIGNED)
    loss = MODULES[name]
    expected = loss(scores, signed, "signed")
    for encoding, labels in (
        ("csl", np.where(KNOWN, TRUTH, -1)),
        ("blank", np.where(KNOWN, TRUTH, np.nan)),
        ("signed", np.where(KNOWN, SIGNED, np.nan)),
    ):
        assert torch.equal(loss(scores, torch.from_numpy(labels), encoding), expected)
    whole = loss(scores, torch.from_numpy(COMPLETE), "signed")
    for kind in (torch.bool, torch.uint8, torch.int64, torch.float32, torch.bfloat16):
        assert torch.equal(loss(scores, torch.from_numpy(TRUTH).to(kind), "complete"), whole)
    # A batch of a signed array may well hold 0 and 1 only.
    assert loss(scores[:1], torch.tensor([[1, 0, 0]]), "signed").isfinite()
    for encoding, labels in (
        ("complete", [[1, 0, -1]]),
        ("csl", [[1.0, 0.0, np.nan]]),
        ("signed", [[1, 0, 2]]),
    ):
        with pytest.raises(ArrayError, match=f"which encoding '{encoding}' does not read"):
            loss(scores[:1], torch.tensor(labels), encoding)
    with pytest.raises(
        ArrayError, match=r"must be of a signed type, got torch\.bool.* pass encoding='complete'"
    ):
        loss(scores, torch.from_numpy(TRUTH), "signed")


@pytest.mark.parametrize(
    "name", sorted(set(satl.thresholds.__all__) - {"ThresholdRule", "CountingThreshold"})
)
def test_rules_read_by_the_encoding_they_are_told(name: str) -> None:
    arguments = {"rows": 2, "bins": 20, "min_count": 1} if name == "HistogramThreshold" else {}
    scores = torch.from_numpy(SCORES)
    csl = torch.from_numpy(np.where(KNOWN, TRUTH, -1))
    filled = []
    for encoding, labels in (("signed", torch.from_numpy(SIGNED)), ("csl", csl)):
        rule = getattr(satl.thresholds, name)(3, encoding=encoding, **arguments)
        assert rule.encoding == encoding
        with forbid_host_synchronisation():
            rule.observe(scores, labels)
            if name != "HistogramThreshold":
                rule.update()
            found = rule.pseudo_labels(scores, labels)
        filled.append(signed_labels(found, encoding).to(torch.int8))
        assert found.dtype == labels.dtype  # and they come back in their own encoding
    assert torch.equal(*filled)
    if name != "HistogramThreshold":
        with pytest.raises(ArrayError, match="does not read"):
            rule.pseudo_labels(scores, csl + 1)


def test_a_module_of_an_accelerator_looks_at_the_first_batch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    monkeypatch.setattr(
        "satl.checks.tensor_checks.as_array", lambda labels: looked.append(1) or np.ones((1, 1))
    )
    reader = LabelReader("complete")
    elsewhere = torch.empty(2, 3, device="meta")
    for _ in range(3):
        reader(elsewhere)
    assert looked == []  # nothing to look at
    monkeypatch.setattr("satl.checks.tensor_checks._may_wait", lambda device: True)
    for _ in range(3):
        reader(elsewhere)
    assert looked == [1]


def test_compiled_code_has_no_look_in_it() -> None:
    loss = PartialBCELoss(encoding="csl")
    compiled = torch.compile(loss, fullgraph=True, backend="eager")
    logits, labels = torch.zeros(2, 3), torch.tensor([[1, 0, -1], [0, 0, 1]])
    assert torch.equal(compiled(logits, labels), loss(logits, labels))


def test_a_formula_of_a_step_takes_what_signed_labels_makes() -> None:
    logits, labels = torch.zeros(2, 3), torch.tensor([[1, 0, 1], [0, 0, 1]])
    with forbid_host_synchronisation():
        found = partial_bce(logits, signed_labels(labels, "complete"))
    assert found.isclose(torch.log(torch.tensor(2.0)))


def test_a_module_survives_copies() -> None:
    import copy
    import pickle

    rule = pickle.loads(pickle.dumps(copy.deepcopy(SemanticAwareThreshold(3, encoding="csl"))))
    assert rule.encoding == "csl"
    assert SemanticAwareThreshold(3).encoding == "signed"
    assert "encoding='csl'" in repr(rule)

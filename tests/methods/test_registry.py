"""Methods are data: names, parameters, and what a wrong one says."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from satl.errors import ConfigError
from satl.methods import (
    GENERATORS,
    LOSSES,
    METHODS,
    NETWORKS,
    RULES,
    Method,
    configure,
    get_method,
    method_with,
    register_method,
)
from satl.methods.rules import default_rate


def test_the_methods_of_the_papers_are_there() -> None:
    assert {"ignore", "sst", "sst+sate", "sst+drl", "sst+satl"} <= set(METHODS)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_names_parts_that_exist(name: str) -> None:
    method = METHODS[name]
    assert set(method.stage1) | set(method.stage2) <= set(LOSSES)
    assert set(method.generators) <= set(GENERATORS)
    assert method.network in NETWORKS
    assert method.rule is None or method.rule in RULES
    assert bool(method.generators) == (method.rule is not None)
    assert method.summary.endswith(".")
    assert method.reference.endswith(".")
    configure(method, {})


def test_published_weights_are_the_defaults() -> None:
    _, parameters = configure(METHODS["sst+satl"], {})
    weights = {name: getattr(own, "weight", None) for name, own in parameters.losses.items()}
    assert weights == {
        "classification": None,
        "cooccurrence": 10.0,
        "contrast": 0.05,
        "pseudo": 1.0,
        "ranking": 0.01,
    }
    assert parameters.generators["cross"].model_dump() == {"leave_one_out": True, "bank_size": 100}


def test_what_a_method_adds_to_its_base_is_data() -> None:
    assert (METHODS["sst+satl"].base, METHODS["sst+satl"].adds) == ("sst", ("sate", "drl"))
    assert method_with("hst", "drl") == "hst+drl"
    assert {method.framework for method in METHODS.values() if method.adds} == {"sst", "hst"}
    assert (METHODS["satl+"].base, METHODS["satl+"].framework) == (None, "satl+")


def test_a_misspelt_method_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no method 'sst\+satle' \(did you mean 'sst\+satl'\?\); known: "):
        get_method("sst+satle")
    assert get_method("sst") is METHODS["sst"]


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="'sst' is registered twice"):
        register_method(METHODS["sst"])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"stage1": ("clasification",)},
            "stage1 names the loss term 'clasification', which is not registered (did you mean 'classification'?).",
        ),
        (
            {"stage2": ("classification", "pseudos")},
            "stage2 names the loss term 'pseudos', which is not registered (did you mean 'pseudo'?).",
        ),
        ({"stage1": ("zzz",)}, "stage1 names the loss term 'zzz', which is not registered; known: "),
        ({"stage1": "classification"}, "stage1 must be a tuple of names, such as ('classification',)."),
        (
            {"generators": ("probabilty",)},
            "generators names the generator 'probabilty', which is not registered (did you mean 'probability'?).",
        ),
        (
            {"rule": "semantics"},
            "rule names the threshold rule 'semantics', which is not registered (did you mean 'semantic'?).",
        ),
        (
            {"network": "transfers"},
            "network names the network 'transfers', which is not registered (did you mean 'transfer'?).",
        ),
        (
            {"rule": None},
            "generators names 'probability', whose scores need a threshold; set rule to one of ",
        ),
        (
            {"generators": (), "stage2": ("classification",)},
            "rule names 'semantic', but there is no generator whose scores it is for; name one of ",
        ),
        (
            {"generators": (), "rule": None},
            "stage2 names 'pseudo', which needs a generator; name one of ",
        ),
        ({"stage1": ("ranking",)}, "stage1 names 'ranking', which only stage2 can have."),
        ({"stage1": ("mixed",)}, "stage1 must name at least one loss term that is not about mixed images."),
        ({"stage2": ()}, "stage2 must name at least one loss term that is not about mixed images."),
        (
            {"stage2": ("classification", "prototype_contrast")},
            "a part needs the scores of 'prototype'; add it to generators.",
        ),
        (
            {"defaults": {"thresholds": {"rates": 0.5}}},
            "defaults: thresholds: there is no key 'rates' (did you mean 'rate'?).",
        ),
        (
            {"defaults": {"thresholds": {"rate": 1.5}}},
            "defaults: thresholds.rate: Input should be less than or equal to 1.",
        ),
        (
            {"defaults": {"rate": 0.5}},
            "defaults: there is no section 'rate'; valid sections: network, generators, ",
        ),
        ({"base": "sts"}, "base names the method 'sts', which is not registered (did you mean 'sst'?)."),
    ],
)
def test_a_method_that_cannot_train_is_refused_in_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    declared: dict[str, Any] = {
        "stage1": ("classification",),
        "stage2": ("classification", "pseudo"),
        "generators": ("probability",),
        "rule": "semantic",
    }
    with pytest.raises(ValueError) as caught:
        register_method(Method("mine", "Ours.", "Ours, 2026.", **(declared | changes)))
    assert str(caught.value).startswith(f"method 'mine': {sentence}")
    assert "mine" not in METHODS


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        (
            "ignore",
            {"losses": {"pseudo": {"weight": 1.0}}},
            "losses\n.*no loss 'pseudo'; those of method 'ignore'",
        ),
        ("ignore", {"thresholds": {"rate": 0.3}}, "thresholds\n.*'ignore' makes no pseudo-labels"),
        ("ignore", {"teacher": {"decay": 0.3}}, "teacher\n.*'ignore' has no teacher"),
        ("ignore", {"network": {"zero_gates": True}}, "network\n.*no key 'zero_gates'; valid keys: name"),
        ("sst", {"thresholds": {"rate": 0.3}}, "thresholds\n.*no key 'rate'; valid keys: start, step, end"),
        ("sst+satl", {"thresholds": {"start": 0.9}}, "no key 'start'"),
        ("sst+satl", {"thresholds": {"rate": 1.5}}, "thresholds.rate\n.*less than or equal to 1"),
        ("sst+satl", {"thresholds": {"convention": "eq6"}}, "thresholds.convention\n"),
        ("sst+satl", {"thresholds": 0.5}, "thresholds\n.*must be a section of keys"),
        ("sst", {"generators": {"cross": {"bank_size": 0}}}, "generators.cross.bank_size\n"),
        (
            "sst",
            {"generators": {"cros": {"bank_size": 5}}},
            r"generators\n.*no generator 'cros' \(did you mean 'cross'",
        ),
        ("sst", {"generators": {"cross": 5}}, "generators.cross\n.*must be a section of keys"),
        (
            "sst",
            {"losses": {"contrast": {"wight": 5}}},
            r"losses.contrast\n.*no key 'wight' \(did you mean 'weight'",
        ),
    ],
)
def test_parameters_of_other_methods_and_impossible_ones_are_refused(
    name: str, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        configure(METHODS[name], settings)


@pytest.mark.parametrize(
    ("proportion", "rate"), [(0.05, 0.2), (0.1, 0.2333), (0.2, 0.3), (0.3, 0.3667), (0.5, 0.5), (1.0, 0.8333)]
)
def test_default_rate_follows_the_proportion(proportion: float, rate: float) -> None:
    assert default_rate(proportion) == pytest.approx(rate, abs=1e-4)

"""Methods are data: names, parameters, and what a wrong one says."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError, create_model

from satl.errors import ConfigError
from satl.methods import METHODS, Method, get_method, register_method
from satl.methods.declaration import GENERATORS, NETWORKS, RULES, TERMS, Parameters, Part, default_rate
from satl.runs.config import MethodConfig


def test_the_methods_of_the_papers_are_there() -> None:
    assert {"ignore", "sst", "sst+sate", "sst+drl", "sst+satl"} <= set(METHODS)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_names_parts_that_exist(name: str) -> None:
    method = METHODS[name]
    assert set(method.stage1) | set(method.stage2) <= set(TERMS)
    assert set(method.generators) <= set(GENERATORS)
    assert method.network in NETWORKS
    assert method.threshold is None or method.threshold in RULES
    assert bool(method.generators) == (method.threshold is not None)
    assert method.summary.endswith(".")
    assert method.reference.endswith(".")
    method.parameters()


def test_published_weights_are_the_defaults() -> None:
    parameters = METHODS["sst+satl"].parameters().model_dump()
    assert parameters["cooccurrence_weight"] == 10.0
    assert parameters["contrast_weight"] == 0.05
    assert parameters["pseudo_weight"] == 1.0
    assert parameters["ranking_weight"] == 0.01
    assert parameters["bank_size"] == 100


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
            {"threshold": "semantics"},
            "threshold names the threshold rule 'semantics', which is not registered (did you mean 'semantic'?).",
        ),
        (
            {"network": "transfers"},
            "network names the network 'transfers', which is not registered (did you mean 'transfer'?).",
        ),
        ({"threshold": None}, "generators names 'probability', whose scores need a threshold; name one of "),
        (
            {"generators": (), "stage2": ("classification",)},
            "threshold names 'semantic', but there is no generator whose scores it is for; name one of ",
        ),
        (
            {"generators": (), "threshold": None},
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
            {"defaults": {"rates": 0.5}},
            "defaults names the parameter 'rates', which no part has (did you mean 'rate'?).",
        ),
        (
            {"defaults": {"rate": 1.5}},
            "defaults sets rate to 1.5: Input should be less than or equal to 1.",
        ),
    ],
)
def test_a_method_that_cannot_train_is_refused_in_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    declared: dict[str, Any] = {
        "stage1": ("classification",),
        "stage2": ("classification", "pseudo"),
        "generators": ("probability",),
        "threshold": "semantic",
    }
    with pytest.raises(ValueError) as caught:
        register_method(Method("mine", "Ours.", "Ours, 2026.", **(declared | changes)))
    assert str(caught.value).startswith(f"method 'mine': {sentence}")
    assert "mine" not in METHODS


class OwnRate(Parameters):
    """A parameter that the semantic rule has, too."""

    rate: float = 3.0


def test_two_parts_with_a_parameter_of_the_same_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TERMS, "own", Part(lambda context: 0, OwnRate, frozenset(), False))
    with pytest.raises(
        ValueError, match="SemanticParameters both bring a parameter 'rate'; give one of them"
    ):
        register_method(
            Method(
                "mine", "Ours.", "Ours.", ("own",), ("own", "pseudo"), "transfer", ("teacher",), "semantic"
            )
        )
    assert "mine" not in METHODS


@pytest.mark.parametrize("key", MethodConfig.model_fields)
def test_a_parameter_cannot_be_called_like_a_key_of_the_section(key: str) -> None:
    # In the configuration that a run keeps it would take the place of the method's name, rule or generators.
    own = create_model("Own", __base__=Parameters, **{key: (float, 0.5)})
    with pytest.raises(ValueError, match=f"part 'own': a parameter must not be called '{key}'"):
        TERMS.register("own", own)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("ignore", {"pseudo_weight": 1.0}),
        ("sst", {"rate": 0.3}),
        ("sst+satl", {"threshold_start": 0.9}),
        ("sst+satl", {"rate": 1.5}),
        ("sst+satl", {"convention": "eq6"}),
        ("sst", {"bank_size": 0}),
    ],
)
def test_parameters_of_other_methods_and_impossible_ones_are_refused(
    name: str, parameters: dict[str, object]
) -> None:
    with pytest.raises(ValidationError, match=next(iter(parameters))):
        METHODS[name].parameters(**parameters)


@pytest.mark.parametrize(
    ("proportion", "rate"), [(0.05, 0.2), (0.1, 0.2333), (0.2, 0.3), (0.3, 0.3667), (0.5, 0.5), (1.0, 0.8333)]
)
def test_default_rate_follows_the_proportion(proportion: float, rate: float) -> None:
    assert default_rate(proportion) == pytest.approx(rate, abs=1e-4)

"""Methods are data: names, parameters, and what a wrong one says."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from satl.errors import ConfigError
from satl.methods import METHODS, get_method, register_method
from satl.methods.base import GENERATORS, NETWORKS, RULES, TERMS, default_rate


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

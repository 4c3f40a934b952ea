"""A learner, its parameters and a recogniser can be pickled: for other processes, and to be kept whole."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from methods.simple import CLASSES, make_batch, make_learner
from satl.inference.recogniser import Recogniser
from satl.methods import METHODS, Learner, StepInputs, configure
from training.tiny import assert_same, tiny_config


def saved_and_loaded(thing: Any) -> Any:
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def pickled(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


@pytest.mark.parametrize("name", list(METHODS))
@pytest.mark.parametrize("again", [pickled, copy.deepcopy])
def test_parameters_come_back_as_they_were(name: str, again: Any) -> None:
    configured = configure(METHODS[name], {"losses": {loss: {} for loss in METHODS[name].losses}})
    assert again(configured) == configured


def test_a_method_with_another_rule_and_fewer_generators_comes_back() -> None:
    settings = {
        "generators": {"cross": False},
        "thresholds": {"rule": "precision"},
        "teacher": {"probe_weight": 0.1},
    }
    method, parameters = configure(METHODS["satl+"], settings)
    assert pickled((method, parameters)) == (method, parameters)
    assert (method.generators, method.rule, parameters.teacher.probe_weight) == (
        ("teacher",),
        "precision",
        0.1,
    )  # type: ignore[union-attr]


def assert_same_learner(found: Learner, learner: Learner) -> None:
    assert found.method == learner.method
    assert found.method_parameters == learner.method_parameters
    assert_same(dict(found.state_dict()), dict(learner.state_dict()))
    pixels, labels, indices = make_batch(6)
    noise = torch.rand(len(CLASSES), 15, generator=torch.Generator().manual_seed(1))
    teacher = torch.rand(6, len(CLASSES), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        inputs = StepInputs(pixels, labels, indices, 2, observe=False, noise=noise, teacher=teacher)
        result, expected = (module(inputs) for module in (found, learner))
        assert_same(result.parts, expected.parts)
        assert_same(result.pseudo, expected.pseudo)
        one, other = (module.score(pixels, labels, indices) for module in (found, learner))
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("again", [pickled, saved_and_loaded])
def test_a_learner_comes_back_with_equal_outputs(again: Any) -> None:
    learner = make_learner("satl+", "method.thresholds.rate=0.25")
    indices = make_batch(6)[2]
    assert learner.probe is not None
    learner.probe.keep(indices, torch.randn(6, len(CLASSES)), num_images=20)
    assert_same_learner(again(learner), learner)


def test_a_learner_with_compiled_code_leaves_it_behind() -> None:
    learner = make_learner("satl+")
    learner.compile_step(backend="eager")
    assert "_compute_losses" in vars(learner)
    for found in (pickled(learner), copy.deepcopy(learner)):
        assert "_compute_losses" not in vars(found)
        assert_same_learner(found, make_learner("satl+"))
    assert "_compute_losses" in vars(learner)


def test_a_recogniser_comes_back_in_another_process(tmp_path: Path) -> None:
    recogniser = Recogniser(tiny_config("method.name=satl+"), CLASSES, make_learner("satl+"))
    pixels = make_batch(2)[0]
    with torch.no_grad():
        logits = recogniser.learner.network(pixels).logits
    torch.save((recogniser, pixels, logits), tmp_path / "all.pt")
    code = (
        "import sys, torch; recogniser, pixels, logits = torch.load(sys.argv[1], weights_only=False)\n"
        "found = recogniser.learner.network(pixels).logits\n"
        "print(recogniser.classes, bool(torch.allclose(found, logits, atol=1e-6)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "all.pt")], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == f"{CLASSES} True"

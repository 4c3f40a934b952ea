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
from satl.methods import METHODS, Learner
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
    parameters = METHODS[name].parameters(bce_reduction="sample")
    found = again(parameters)
    assert type(found) is type(parameters)
    assert found == parameters
    assert found.model_fields_set == {"bce_reduction"}


def test_a_method_with_another_rule_and_fewer_generators_comes_back() -> None:
    model = METHODS["satl+"].with_generators(("teacher",)).with_threshold("precision").parameters
    found = pickled(model(probe_weight=0.1))
    assert type(found) is model
    assert found.probe_weight == 0.1


def assert_same_learner(found: Learner, learner: Learner) -> None:
    assert found.method == learner.method
    assert found.parameters_of_method == learner.parameters_of_method
    assert_same(dict(found.state_dict()), dict(learner.state_dict()))
    pixels, labels, indices = make_batch(6)
    noise = torch.rand(len(CLASSES), 15, generator=torch.Generator().manual_seed(1))
    teacher = torch.rand(6, len(CLASSES), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        result, expected = (
            module(pixels, labels, indices, 2, 1.0, False, teacher, noise) for module in (found, learner)
        )
        assert_same(result.parts, expected.parts)
        assert_same(result.pseudo, expected.pseudo)
        one, other = (module.score(pixels, labels, indices) for module in (found, learner))
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("again", [pickled, saved_and_loaded])
def test_a_learner_comes_back_with_equal_outputs(again: Any) -> None:
    learner = make_learner("satl+", "method.rate=0.25")
    indices = make_batch(6)[2]
    assert learner.probe is not None
    learner.probe.keep(indices, torch.randn(6, len(CLASSES)), num_images=20)
    assert_same_learner(again(learner), learner)


def test_a_learner_with_compiled_code_leaves_it_behind() -> None:
    learner = make_learner("satl+")
    learner.compile_step(backend="eager")
    assert "_judge" in vars(learner)
    for found in (pickled(learner), copy.deepcopy(learner)):
        assert "_judge" not in vars(found)
        assert_same_learner(found, make_learner("satl+"))
    assert "_judge" in vars(learner)


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

"""A recogniser looks at the images it is given: its own process's, none at all, and some that cannot be read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from harness.two_processes import run_in_two_processes
from inference import own_images_worker
from satl.errors import ArrayError, ImageError, RunError
from satl.images import ArrayImages, Batches
from satl.inference.recogniser import Recogniser
from satl.runs.data import load_data
from satl.training.forward import class_probabilities
from satl.training.survey import plan_survey, take_survey
from training.tiny import resume


def test_every_process_gets_the_probabilities_of_its_own_images(tiny_run: Path, tmp_path: Path) -> None:
    found = run_in_two_processes(own_images_worker.__file__, tmp_path, str(tiny_run))
    recogniser = Recogniser.load(tiny_run)
    expected = [recogniser.probabilities(own_images_worker.images(rank)) for rank in (0, 1, 7)]
    for rank in range(2):
        np.testing.assert_allclose(found[rank]["own"].numpy(), expected[rank], atol=1e-6)
        np.testing.assert_allclose(found[rank]["shared"].numpy(), expected[1], atol=1e-6)
    np.testing.assert_allclose(found[0]["alone"].numpy(), expected[2], atol=1e-6)


def test_of_no_images_there_are_no_probabilities(tiny_run: Path) -> None:
    recogniser = Recogniser.load(tiny_run, "last")
    data = load_data(recogniser.config)
    shape = (0, data.table.num_classes)
    empty = ArrayImages(np.zeros((0, 32, 32, 3), dtype=np.uint8))
    for found in (recogniser.probabilities(data.source, []), recogniser.probabilities(empty)):
        assert (found.shape, found.dtype) == (shape, np.float32)
    scores = recogniser.scores(data, [])
    assert list(scores) == list(recogniser.scores(data, [0]))
    assert {value.shape for value in scores.values()} == {shape}


def test_a_mask_of_rows_is_refused(tiny_run: Path) -> None:
    recogniser = Recogniser.load(tiny_run)
    source = own_images_worker.images(0)
    mask = np.array([False, False, True, True, False])
    with pytest.raises(ArrayError, match=r"np\.flatnonzero\(mask\)"):
        recogniser.probabilities(source, mask)
    chosen = recogniser.probabilities(source, np.flatnonzero(mask))
    np.testing.assert_allclose(chosen, recogniser.probabilities(source)[mask], atol=1e-6)


class Damaged(ArrayImages):
    """Images of which none can be read."""

    def gather(self, *arguments: object) -> torch.Tensor:
        raise ImageError("damaged")


def test_after_an_error_the_network_trains_on(tiny_run: Path) -> None:
    recogniser = Recogniser.load(tiny_run)
    network, transform, device = recogniser.learner.network.train(), recogniser.transform, recogniser.device
    modes = [module.training for module in network.modules()]
    assert True in modes
    batches = Batches(Damaged(np.zeros((3, 32, 32, 3), dtype=np.uint8)), batch_size=2)
    with pytest.raises(ImageError, match="damaged"):
        class_probabilities(network, batches, transform, device)
    assert [module.training for module in network.modules()] == modes
    cells = np.ones((3, len(recogniser.classes)), dtype=np.int8)
    plan = plan_survey(cells, np.arange(3), 2, seed=0, epoch=0)
    with pytest.raises(ImageError, match="damaged"):
        take_survey(network, plan, batches, transform, device)
    assert [module.training for module in network.modules()] == modes


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            {"backbone": "hf-hub:owner/model"},
            "is not the name of a timm architecture, and a run is loaded without",
        ),
        ({"backbone": "hf_hub:owner/model"}, "is not the name of a timm architecture"),
        ({"backbone": "local-dir:/tmp/model"}, "is not the name of a timm architecture"),
        ({"backbone": "owner/model"}, "is not the name of a timm architecture"),
        (
            {"backbone_kwargs": {"checkpoint_path": "/etc/passwd"}},
            "names checkpoint_path, which does not describe",
        ),
        (
            {"backbone_kwargs": {"pretrained_cfg": {"url": "x"}}},
            "names pretrained_cfg, which does not describe",
        ),
        ({"backbone_kwargs": {"pretrained_cfg_overlay": {"file": "x"}}}, "names pretrained_cfg_overlay"),
        ({"backbone_kwargs": {"cache_dir": "/tmp", "layer": 1}}, r"names cache_dir, layer, which"),
    ],
)
def test_a_run_of_a_stranger_fetches_nothing_and_opens_no_other_file(
    model: dict[str, Any], message: str, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import timm

    def touched(*_: Any, **__: Any) -> None:
        raise AssertionError("timm was asked")

    run = Path(shutil.copytree(tiny_run, tmp_path / "run"))
    content = yaml.safe_load((run / "config.yaml").read_text())
    content["model"] |= model
    (run / "config.yaml").write_text(yaml.safe_dump(content))
    monkeypatch.setattr(timm, "create_model", touched)
    with pytest.raises(RunError, match=message):
        Recogniser.load(run)
    if "backbone_kwargs" in model:
        with pytest.raises(RunError, match=message):
            resume(run)

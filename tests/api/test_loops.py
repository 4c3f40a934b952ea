"""The loops of docs/loops.md run as they stand: the loss falls, thresholds move, and none is longer than 15 lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from satl import PartialBCELoss, SATLLoss

PAGE = (Path(__file__).parents[2] / "docs" / "loops.md").read_text(encoding="utf-8")
NUM, DIM, CLASSES, EPOCHS = 256, 8, 3, 4


def blocks(heading: str) -> list[str]:
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def length(block: str) -> int:
    return sum(bool(line.strip()) for line in block.splitlines())


class Drawn:
    """Vectors whose classes can be read off them, seven tenths of the labels hidden."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        truth = torch.where(torch.rand(NUM, CLASSES) < 0.4, 1, -1)
        self.inputs = torch.cat(
            [truth + 0.5 * torch.randn(NUM, CLASSES), torch.randn(NUM, DIM - CLASSES)], dim=1
        )
        self.truth, self.labels = truth, torch.where(torch.rand(NUM, CLASSES) < 0.3, truth, 0)
        data = torch.utils.data.TensorDataset(self.inputs, self.labels)
        self.loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(DIM, 16), torch.nn.ReLU(), torch.nn.Linear(16, CLASSES)
        )
        self.before = self.loss()

    def loss(self) -> float:
        with torch.no_grad():
            return PartialBCELoss()(self.model(self.inputs), self.labels).item()

    def check(self, loss_fn: SATLLoss) -> None:
        """The network has learned, thresholds have moved, and what they fill is mostly right."""
        assert self.loss() < 0.8 * self.before
        assert loss_fn.epochs == EPOCHS
        assert (loss_fn.thresholds < 1).all()
        filled = loss_fn.pseudo_labels(self.model(self.inputs), self.labels)
        new = (self.labels == 0) & (filled == 1)
        assert new.any()
        assert (self.truth[new] == 1).float().mean() > 0.8


@pytest.fixture
def drawn() -> Drawn:
    return Drawn()


def names(drawn: Drawn, **further: Any) -> dict[str, Any]:
    given = {"torch": torch, "model": drawn.model, "loader": drawn.loader}
    return {**given, "num_classes": CLASSES, "epochs": EPOCHS, **further}


@pytest.mark.parametrize("heading", ["Plain PyTorch, and timm", "accelerate"])
def test_a_loop_written_out(drawn: Drawn, heading: str) -> None:
    (block,) = blocks(heading)
    assert length(block) <= 15
    scope = names(drawn, cpu=True)
    exec(block, scope)
    drawn.check(scope["loss_fn"])


def test_accelerate_keeps_the_thresholds(drawn: Drawn, tmp_path: Path) -> None:
    scope = names(drawn, cpu=True)
    exec(blocks("accelerate")[0], scope)
    loss_fn, accelerator = scope["loss_fn"], scope["accelerator"]
    found = loss_fn.thresholds.clone()
    accelerator.save_state(tmp_path)
    loss_fn.load_state_dict(SATLLoss(CLASSES).state_dict())
    accelerator.load_state(tmp_path)
    assert torch.equal(loss_fn.thresholds, found)
    assert loss_fn.epochs == EPOCHS


def test_lightning(drawn: Drawn, tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")
    callback, use = blocks("Lightning")
    assert length(callback) <= 15

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = drawn.model

        def training_step(self, batch: Any, number: int) -> torch.Tensor:
            return self.loss_fn(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    quiet = {
        "accelerator": "cpu",
        "default_root_dir": tmp_path,
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
    }
    scope = names(drawn, module=Module(), quiet=quiet)
    exec(callback, scope)
    exec(use, scope)
    loss_fn = scope["module"].loss_fn
    drawn.check(loss_fn)
    # No part of the module: DDP would broadcast its buffers, and the module would not load without the callback.
    assert list(scope["module"].buffers()) == []
    scope["trainer"].save_checkpoint(tmp_path / "run.ckpt")
    assert Module.load_from_checkpoint(tmp_path / "run.ckpt", weights_only=True).model is drawn.model
    scope["epochs"], scope["module"] = EPOCHS + 1, Module()
    exec(use.replace("loader)", f"loader, ckpt_path={str(tmp_path / 'run.ckpt')!r})"), scope)
    assert scope["module"].loss_fn.epochs == EPOCHS + 1  # it went on, and did not begin again
    assert (scope["module"].loss_fn.thresholds < loss_fn.thresholds + 0.05).all()


def test_fastai(drawn: Drawn) -> None:
    pytest.importorskip("fastai")
    import fastai.callback.progress
    import fastai.callback.schedule  # noqa: F401  they add lr_find and no_bar
    from fastai.data.core import DataLoaders

    (block,) = blocks("fastai")
    assert length(block) <= 15
    data = drawn.loader.dataset
    scope = names(drawn, dls=DataLoaders.from_dsets(data, data, bs=32, device=torch.device("cpu")))
    exec(block, scope)
    loss_fn = scope["learner"].loss_func
    drawn.check(loss_fn)
    assert int(loss_fn.rule.counts.sum()) == 0  # validation, which comes last, was not taken note of
    found = loss_fn.thresholds.clone()
    with scope["learner"].no_bar():
        scope["learner"].lr_find(show_plot=False)
    assert torch.equal(loss_fn.thresholds, found)
    assert loss_fn.epochs == EPOCHS
    assert int(loss_fn.rule.counts.sum()) == 0


def test_all_blocks_are_run() -> None:
    run = [
        block
        for heading in ("Plain PyTorch, and timm", "accelerate", "Lightning", "fastai")
        for block in blocks(heading)
    ]
    assert re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) == run

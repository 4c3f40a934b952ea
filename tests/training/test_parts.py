"""The small parts of training: average of weights, schedules, optimiser groups, tally, run folder, checkpoints."""

from __future__ import annotations

import math
import shutil
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from satl.errors import RunError
from satl.methods import StepResult
from satl.runs.run_folder import RunFolder
from satl.runs.training_config import TrainingConfig
from satl.training.averaging import MovingAverage
from satl.training.checkpoints import (
    load_module,
    load_state,
    module_content,
    random_states,
    restore_random_states,
    save_module,
    save_state,
)
from satl.training.optimisers import make_optimiser, make_schedule, rate_factor
from satl.training.tally import EpochTally


def test_the_average_follows_its_formula() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    average = MovingAverage(module, decay=0.3)
    expected = {name: value.clone() for name, value in module.state_dict().items()}
    generator = torch.Generator().manual_seed(0)
    for step in range(1, 6):
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(torch.rand(parameter.shape, generator=generator))
        module(torch.rand(4, 2, generator=generator))
        average.advance()
        average.update(module)
        keep = min(0.3, (1 + step) / (10 + step))
        for name, value in module.state_dict().items():
            expected[name] = (
                keep * expected[name] + (1 - keep) * value if value.is_floating_point() else value.clone()
            )
    for name, value in average.module.state_dict().items():
        torch.testing.assert_close(value, expected[name])
    assert int(average.module.state_dict()["1.num_batches_tracked"]) == 5
    assert not any(parameter.requires_grad for parameter in average.parameters())
    assert (1 + 1) / (10 + 1) < 0.3  # the first steps of this test used the other branch


def test_frozen_weights_are_shared_and_stay_as_they_are() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    module[0].requires_grad_(False)
    before = module[0].weight.detach().clone()
    average = MovingAverage(module, decay=0.9)
    frozen, trained = average.module.get_parameter("0.weight"), average.module.get_parameter("1.weight")
    assert frozen.data_ptr() == module[0].weight.data_ptr()
    assert trained.data_ptr() != module[1].weight.data_ptr()
    for _ in range(3):
        with torch.no_grad():
            module[1].weight.add_(1.0)
        average.advance()
        average.update(module)
    assert torch.equal(frozen, before)
    assert not torch.equal(trained, module[1].weight)
    average.module.load_state_dict(
        {name: value.clone() for name, value in average.module.state_dict().items()}
    )
    assert torch.equal(module[0].weight, before)


def factors(config: TrainingConfig, steps: int = 10) -> list[float]:
    return [rate_factor(step, steps, config) for step in range(config.epochs * steps)]


def test_the_step_schedule_divides_by_ten() -> None:
    values = factors(TrainingConfig(epochs=5, schedule="step", step_epochs=2))
    assert values[:20] == [1.0] * 20
    assert values[20:40] == pytest.approx([0.1] * 20)
    assert values[40:] == pytest.approx([0.01] * 10)


def test_the_cosine_schedule_falls_from_one_to_nearly_zero() -> None:
    values = factors(TrainingConfig(epochs=5, schedule="cosine"))
    assert values[0] == 1.0
    assert values[25] == pytest.approx(0.5)
    assert values == sorted(values, reverse=True)
    assert values[-1] == pytest.approx(0.5 * (1 + math.cos(math.pi * 49 / 50)))


def test_the_warm_up_rises_linearly_and_meets_the_schedule() -> None:
    for schedule in ("cosine", "constant"):
        values = factors(TrainingConfig(epochs=5, schedule=schedule, warmup_epochs=1.0))
        rises = [b - a for a, b in pairwise(values[:10])]
        assert rises == pytest.approx([1 / 11] * 9)
        assert 0 < values[0] < values[9] < 1
        assert values[10] == 1.0


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Linear(2, 3)
        self.head = nn.Linear(3, 1)
        self.fixed = nn.Linear(3, 1).requires_grad_(False)


class Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = Net()


def test_sgd_in_one_kernel_takes_thresholds_that_begin_to_learn_later() -> None:
    class Learning(Whole):
        def __init__(self) -> None:
            super().__init__()
            self.rules = nn.ModuleDict({"cross": nn.Linear(1, 1)})

    whole = Learning()
    optimiser = make_optimiser(whole, TrainingConfig(optimiser="sgd", momentum=0.9))
    for group in optimiser.param_groups:
        group["fused"], group["foreach"] = True, False
    for names in (["network"], ["network", "rules"]):  # a step of stage 1, a step of stage 2
        for name, parameter in whole.named_parameters():
            parameter.grad = torch.ones_like(parameter) if name.split(".")[0] in names else None
        before = [parameter.detach().clone() for parameter in whole.rules.parameters()]
        optimiser.step()
    assert all(not torch.equal(one, now) for one, now in zip(before, whole.rules.parameters(), strict=True))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD)],
)
def test_optimisers_have_a_group_for_the_backbone_and_one_for_the_rest(
    name: str, kind: type[torch.optim.Optimizer]
) -> None:
    whole = Whole()
    config = TrainingConfig(optimiser=name, lr=0.1, head_lr=0.5, weight_decay=0.01, momentum=0.8)
    optimiser = make_optimiser(whole, config)
    assert type(optimiser) is kind
    backbone, head = optimiser.param_groups
    assert [id(p) for p in backbone["params"]] == [id(p) for p in whole.network.backbone.parameters()]
    assert [id(p) for p in head["params"]] == [id(p) for p in whole.network.head.parameters()]
    assert (backbone["lr"], head["lr"], head["weight_decay"]) == (0.1, 0.5, 0.01)
    assert head.get("momentum", 0.8) == 0.8
    schedule = make_schedule(
        optimiser, 1, TrainingConfig(epochs=4, stage1_epochs=1, schedule="step", step_epochs=1)
    )
    optimiser.step()
    schedule.step()
    assert [group["lr"] for group in optimiser.param_groups] == pytest.approx([0.01, 0.05])


def test_without_trained_backbone_or_other_rate_there_is_one_rate() -> None:
    whole = Whole()
    whole.network.backbone.requires_grad_(False)
    optimiser = make_optimiser(whole, TrainingConfig(lr=0.1))
    assert [group["lr"] for group in optimiser.param_groups] == [0.1]


def test_the_tally_counts_by_hand() -> None:
    labels = torch.tensor([[1, 0, 0], [0, 0, -1]])
    truth = torch.tensor([[1, 1, -1], [1, 0, -1]])
    pseudo = {
        "intra": torch.tensor([[1, 1, 0], [0, 1, -1]]),  # right in (0, 1); truth of (1, 1) is not known
        "cross": torch.tensor([[1, 0, 1], [1, 0, -1]]),  # wrong in (0, 2), right in (1, 0)
    }
    tally = EpochTally(("intra", "cross"), 3, torch.device("cpu"))
    parts = {"classification": torch.tensor(1.0), "pseudo": torch.tensor(0.5)}
    tally.add(StepResult(torch.tensor(1.5), parts, pseudo, None), labels, truth)
    parts = {"classification": torch.tensor(2.0), "pseudo": torch.tensor(1.5)}
    tally.add(StepResult(torch.tensor(3.5), parts, {}, None), labels, truth)
    assert tally.mean_losses() == {"total": 2.5, "classification": 1.5, "pseudo": 1.0}
    assert tally.own_mean_losses() == tally.mean_losses()
    table = tally.pseudo_labels(with_truth=True, expected=2.25)
    assert {name: row["emitted"] for name, row in table.items()} == {"intra": 2, "cross": 2, "union": 4}
    assert (table["intra"]["micro_precision"], table["intra"]["micro_recall"]) == (1.0, 0.5)
    assert (table["cross"]["micro_precision"], table["cross"]["micro_recall"]) == (0.5, 0.5)
    assert table["union"]["micro_precision"] == pytest.approx(2 / 3)
    assert table["union"]["micro_recall"] == 1.0
    assert tally.pseudo_labels(False, 2.25)["union"] == {"emitted": 4, "expected": 2.2}
    other = EpochTally(("intra", "cross"), 3, torch.device("cpu"))
    other.load_state_dict(tally.state_dict())
    assert other.mean_losses() == tally.mean_losses()
    assert other.pseudo_labels(True, 2.25) == table
    assert EpochTally((), 3, torch.device("cpu")).own_mean_losses() == {}


def write(folder: RunFolder, text: str) -> None:
    with folder.new_checkpoint("last") as path:
        (path / "content").write_text(text)


def content(folder: RunFolder) -> str:
    return (folder.checkpoint("last") / "content").read_text()


def test_a_checkpoint_takes_the_place_of_the_old_one_only_when_complete(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    write(folder, "one")

    def write_half() -> None:
        with folder.new_checkpoint("last") as path:
            (path / "content").write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert content(folder) == "one"
    write(folder, "two")
    assert content(folder) == "two"
    assert held(folder) == {"last": "two", "last.previous": "one"}


def held(folder: RunFolder) -> dict[str, str]:
    return {path.name: (path / "content").read_text() for path in sorted(folder.checkpoints.iterdir())}


def test_a_crash_between_the_two_renames_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder.create(tmp_path / "run")
    write(folder, "one")
    replace = Path.replace

    def crash(self: Path, target: Path) -> Path:
        if self.name == "last.new":
            raise KeyboardInterrupt
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        with pytest.raises(KeyboardInterrupt):
            write(folder, "two")
        assert content(folder) == "one"
        with pytest.raises(KeyboardInterrupt):  # and again, with only the old one there
            write(folder, "three")
        assert content(folder) == "one"
    write(folder, "four")
    assert content(folder) == "four"
    assert held(folder) == {"last": "four", "last.previous": "one"}


def test_a_crash_while_the_one_before_is_removed_leaves_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder.create(tmp_path / "run")
    write(folder, "one")
    write(folder, "two")

    def crash(place: Path, **_: Any) -> None:
        if "previous" in place.name:
            raise KeyboardInterrupt
        shutil.rmtree(place)

    with monkeypatch.context() as patch:
        patch.setattr(
            "satl.runs.checkpoint_folders.shutil", SimpleNamespace(**{**vars(shutil), "rmtree": crash})
        )
        with pytest.raises(KeyboardInterrupt):
            write(folder, "three")
    # What is half removed is not taken for a checkpoint.
    assert sorted(held(folder)) == ["last", "last.new", "last.previous.removed"]
    assert content(folder) == "two"
    write(folder, "four")
    assert held(folder) == {"last": "four", "last.previous": "two"}


def test_a_checkpoint_that_satl_0_1_left_between_two_renames_is_found(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    (folder.checkpoints / "last.old").mkdir()
    (folder.checkpoints / "last.old" / "content").write_text("zero")
    assert content(folder) == "zero"
    write(folder, "one")
    assert held(folder) == {"last": "one"}


def test_a_run_folder_is_never_overwritten(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run").config.write_text("data: {}")
    with pytest.raises(RunError, match="already holds a run; resume it with train\\(resume="):
        RunFolder.create(tmp_path / "run")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is a file"):
        RunFolder.create(tmp_path / "file")
    with pytest.raises(RunError, match="cannot be made"):
        RunFolder.create(tmp_path / "file" / "run")


def test_classes_must_be_a_list(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.write_facts(["cat", "Ünï"], "digest", {})
    assert folder.read_classes() == ("cat", "Ünï")
    for text in ("{}", "[", "\xff"):
        folder.classes.write_bytes(text.encode("latin-1"))
        with pytest.raises(RunError, match=r"classes\.json: cannot be read"):
            folder.read_classes()


def test_modules_and_states_come_back_or_say_why_not(tmp_path: Path) -> None:
    module, other = nn.Linear(2, 2), nn.Linear(2, 2)
    save_module(module_content(module), tmp_path / "m.safetensors")
    load_module(other, tmp_path / "m.safetensors")
    assert torch.equal(module.weight, other.weight)
    for wrong in (nn.Linear(3, 2), nn.BatchNorm1d(2)):
        with pytest.raises(RunError, match=r"m\.safetensors: does not fit"):
            load_module(wrong, tmp_path / "m.safetensors")
    save_state({"epoch": 3, "x": torch.ones(2)}, tmp_path / "s.pt")
    assert load_state(tmp_path / "s.pt")["epoch"] == 3
    (tmp_path / "s.pt").write_bytes(b"nothing")
    with pytest.raises(RunError, match=r"s\.pt: cannot be read"):
        load_state(tmp_path / "s.pt")
    torch.save({"evil": Path("x")}, tmp_path / "s.pt")  # anything but plain data is refused, never run
    with pytest.raises(RunError, match=r"s\.pt: cannot be read"):
        load_state(tmp_path / "s.pt")


def test_random_states_come_back(tmp_path: Path) -> None:
    import random

    import numpy as np

    states = random_states()
    save_state(states, tmp_path / "random.pt")
    first = (torch.rand(3).tolist(), random.random(), np.random.rand(3).tolist(), random.gauss(0, 1))
    restore_random_states(load_state(tmp_path / "random.pt"))
    assert (torch.rand(3).tolist(), random.random(), np.random.rand(3).tolist(), random.gauss(0, 1)) == first

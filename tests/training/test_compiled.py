"""The compiled step: no graph break, and the numbers of the eager one; on a GPU also replayed as a graph."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from satl.methods import METHODS, Learner, StepInputs, configure
from satl.models import Backbone, SemanticTransferNetwork
from satl.training.averaging import MovingAverage
from satl.training.cuda_graph import STEPS_BEFORE_CAPTURE, CudaGraphStep
from satl.training.optimisers import make_optimiser
from satl.training.step import TrainingStep
from satl.training.tally import EpochTally
from satl.training.trainer import Trainer
from training.tiny import assert_same, tiny_config, train

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CLASSES, IMAGES = 5, 8
SOON = ("sst+satl", "satl+")


@pytest.fixture(autouse=True)
def full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU convolutions round their inputs to 10 bits unless they are told not to."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def make_learner(name: str, pair_head: str = "full") -> Learner:
    torch.manual_seed(0)
    backbone = Backbone("resnet18", kwargs={"layers": (1, 1, 1, 1), "channels": (8, 8, 16, 16)}, pool=1)
    sizes = {"feature_dim": 16, "attention_dim": 8, "pair_dim": 8, "pair_hidden": 8, "embedding_dim": 6}
    network = SemanticTransferNetwork(CLASSES, backbone, torch.eye(CLASSES), pair_head=pair_head, **sizes)
    method = METHODS[name]
    learner = Learner(*configure(method, {}), network, proportion=0.5).to(DEVICE).train()
    if learner.probe is not None:
        learner.probe.keep(torch.arange(64, device=DEVICE), torch.randn(64, CLASSES, device=DEVICE), 64)
    with torch.no_grad():
        for rule in learner.rules.values():
            rule.get_buffer("value").fill_(0.3) if "value" in dict(rule.named_buffers()) else None
    return learner


def make_step(learner: Learner, graph: bool = False, optimiser: str = "adam") -> TrainingStep:
    config = tiny_config(f"training.optimiser={optimiser}", "training.lr=1e-3").training
    average = MovingAverage(learner.network, 0.9) if learner.method.needs("teacher") else None
    return TrainingStep(
        learner,
        make_optimiser(learner, config, capturable=graph),
        average=average,
        tally=EpochTally(tuple(learner.generators), CLASSES, next(learner.parameters()).device),
        clip_norm=1.0,
        graph=graph,
    )


def make_inputs(learner: Learner, number: int, stage: int) -> StepInputs:
    generator = torch.Generator().manual_seed(number)

    def images() -> Tensor:
        return torch.randn(IMAGES, 3, 64, 64, generator=generator).to(DEVICE)

    method = learner.method
    pixels = images()
    return StepInputs(
        pixels=pixels,
        labels=torch.randint(-1, 2, (IMAGES, CLASSES), generator=generator).to(DEVICE),
        indices=torch.arange(IMAGES, device=DEVICE) + IMAGES * number,
        stage=stage,
        observe=True,
        ramp=torch.tensor(0.5 + 0.1 * number, device=DEVICE),
        noise=torch.rand(CLASSES, IMAGES * (IMAGES - 1) // 2, generator=generator).to(DEVICE),
        clean=images() if method.needs("teacher") else None,
        truth=torch.randint(0, 2, (IMAGES, CLASSES), generator=generator).mul(2).sub(1).to(DEVICE),
        shares=torch.linspace(0.5, 1.0, IMAGES, device=DEVICE) if learner.mixes(2) else None,
    )


def assert_same_state(one: TrainingStep, other: TrainingStep) -> None:
    expected, found = one.learner.state_dict(), other.learner.state_dict()
    assert list(found) == list(expected)  # compiling adds no names
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
        )
    assert one.tally is not None
    assert other.tally is not None
    assert one.tally.steps == other.tally.steps
    assert other.tally.own_mean_losses() == pytest.approx(one.tally.own_mean_losses(), rel=1e-4)
    assert torch.equal(one.tally.counts, other.tally.counts)
    if one.average is not None:
        assert other.average is not None
        assert one.average.steps == other.average.steps
        for name, value in one.average.module.state_dict().items():
            torch.testing.assert_close(other.average.module.state_dict()[name], value, rtol=1e-4, atol=1e-5)


def compare(name: str, backend: str, pair_head: str = "full") -> None:
    torch._dynamo.reset()
    learner = make_learner(name, pair_head)
    # Adam would make a whole step of a gradient that is nothing but rounding.
    eager, compiled = (make_step(one, optimiser="sgd") for one in (copy.deepcopy(learner), learner))
    compiled.compile(backend=backend)
    for stage in (1, 2):
        for number in range(2):
            inputs = make_inputs(learner, number, stage)
            wanted, found = eager(inputs), compiled(inputs)
            torch.testing.assert_close(found.loss, wanted.loss, rtol=1e-5, atol=1e-6)
            assert set(found.pseudo) == set(wanted.pseudo)
            for which, labels in wanted.pseudo.items():
                assert torch.equal(found.pseudo[which], labels)
        for step in (eager, compiled):
            step.learner.update_thresholds()
    assert_same_state(eager, compiled)


@pytest.mark.parametrize("name", SOON)
def test_the_step_has_no_graph_break_and_the_same_numbers(name: str) -> None:
    compare(name, "aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(METHODS) - set(SOON)))
def test_so_has_the_step_of_every_other_method(name: str) -> None:
    compare(name, "aot_eager")


@pytest.mark.slow
def test_generated_code_gives_the_same_numbers() -> None:
    compare("sst+satl", "inductor", "factorised")


def test_a_graph_break_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    learner = make_learner("sst+satl")
    compute_losses = learner._compute_losses

    def curious(*arguments: object) -> object:
        result = compute_losses(*arguments)  # type: ignore[arg-type]
        return result if float(result.loss) > 0 else None

    object.__setattr__(learner, "_compute_losses", curious)
    step = make_step(learner)
    step.compile(backend="eager")
    with pytest.raises(torch._dynamo.exc.TorchDynamoException):
        step(make_inputs(learner, 0, 2))


@pytest.mark.parametrize("name", sorted(METHODS) if DEVICE.type == "cuda" else ["satl+"])
def test_a_replayed_step_is_an_ordinary_one(name: str) -> None:
    """On a GPU the graph is captured after a few steps and replayed; elsewhere ``graph`` is not for use."""
    learner = make_learner(name)
    plain = make_step(copy.deepcopy(learner), optimiser="sgd")
    replayed = make_step(learner, graph=DEVICE.type == "cuda", optimiser="sgd")
    for stage in (1, 2):
        for number in range(2 * STEPS_BEFORE_CAPTURE):
            inputs = make_inputs(learner, number, stage)
            wanted, found = plain(inputs), replayed(inputs)
            torch.testing.assert_close(found.loss, wanted.loss, rtol=1e-4, atol=1e-5)
        for step in (plain, replayed):
            step.learner.update_thresholds()
    assert_same_state(plain, replayed)


class FakeGraph:
    """Stands for a CUDA graph: what is captured is done at once, so that the first replay has nothing to do."""

    def __init__(self) -> None:
        self.again: Callable[[], None] | None = None
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1
        if self.replays > 1:
            assert self.again is not None
            self.again()


def test_around_the_replays_everything_is_as_in_ordinary_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs are filled in, sums and averages count on, and a new stage does not add to old gradients."""
    stream = SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda chosen: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None, raising=False)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, **how: nullcontext())
    capture = CudaGraphStep._capture

    def record(self: CudaGraphStep, inputs: StepInputs) -> None:
        capture(self, inputs)

        def again() -> None:
            self.optimiser.zero_grad(set_to_none=True)  # a replay writes its gradients anew
            assert replayed.tally is not None
            assert self.inputs is not None
            replayed.tally.steps -= 1  # counted by the host, which a replay does not reach
            self.result = self.run(self.inputs)

        assert isinstance(self.graph, FakeGraph)
        self.graph.again = again

    monkeypatch.setattr(CudaGraphStep, "_capture", record)
    learner = make_learner("satl+").cpu()
    plain, replayed = make_step(copy.deepcopy(learner)), make_step(learner)
    replayed.cuda_graph = CudaGraphStep(replayed.run, replayed.optimiser)
    for stage in (1, 2):
        for number in range(2 * STEPS_BEFORE_CAPTURE):
            made = make_inputs(learner, number, stage)
            inputs = StepInputs(*(value.cpu() if isinstance(value, Tensor) else value for value in made))
            wanted, found = plain(inputs), replayed(inputs)
            torch.testing.assert_close(found.loss, wanted.loss)
        assert isinstance(replayed.cuda_graph.graph, FakeGraph)
        assert replayed.cuda_graph.graph.replays == STEPS_BEFORE_CAPTURE
    assert_same_state(plain, replayed)


def test_training_compiles_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []
    compile_step = Learner.compile_step

    def quick(learner: Learner, **options: object) -> None:
        asked.append(options)
        compile_step(learner, backend="eager")

    monkeypatch.setattr(Learner, "compile_step", quick)
    torch._dynamo.reset()
    short = ("training.epochs=2", "training.stage1_epochs=1", "data.scenes.train=32")
    compiled = train(tmp_path / "compiled", tiny_config(*short, "training.compile=true"))
    assert asked == [{}]
    plain = train(tmp_path / "plain", tiny_config(*short))
    assert isinstance(compiled, Trainer)
    assert len(asked) == 1
    assert_same(plain.learner.state_dict(), compiled.learner.state_dict())


def test_many_trainings_in_one_process_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is for each function, and a worker of an experiment trains one run after the other."""
    compile_step = Learner.compile_step
    monkeypatch.setattr(
        Learner, "compile_step", lambda learner, **options: compile_step(learner, backend="eager")
    )
    torch._dynamo.reset()
    both_stages = ("training.epochs=2", "training.stage1_epochs=1", "data.scenes.train=32")
    with torch._dynamo.config.patch(recompile_limit=3):
        for method in ("sst", "hst+satl", "satl+"):
            train(
                tmp_path / method, tiny_config(*both_stages, "training.compile=true", f"method.name={method}")
            )


def test_cuda_graphs_are_left_out_where_there_is_no_gpu(tmp_path: Path) -> None:
    short = ("training.epochs=1", "training.stage1_epochs=1", "data.scenes.train=32", "training.device=cpu")
    asked = train(tmp_path / "asked", tiny_config(*short, "training.cuda_graphs=true"))
    plain = train(tmp_path / "plain", tiny_config(*short))
    assert_same(plain.learner.state_dict(), asked.learner.state_dict())

"""A method put together: its loss is the sum of its terms, it learns, and all its memory is state."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from reference import losses as plain_losses
from reference import scoring as plain_scoring
from reference import thresholds as plain_thresholds
from satl.methods import LOSSES, METHODS, Learner, Parameters, StepInputs, configure
from satl.methods.method_parts import MethodPart
from satl.methods.rules import default_rate
from satl.models import SemanticTransferNetwork
from satl.scoring import GeneratorScores

CLASSES, SIZE = 4, 16


class TinyBackbone(nn.Module):
    """Two convolutions, so that a step takes milliseconds."""

    def __init__(self) -> None:
        super().__init__()
        self.channels = 12
        self.layers = nn.Sequential(
            *(nn.Conv2d(3, 12, 3, 2, 1), nn.ReLU(), nn.Conv2d(12, 12, 3, 2, 1), nn.BatchNorm2d(12))
        )

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.layers(images)
        return features


def make_learner(name: str, settings: dict[str, object] | None = None, proportion: float = 0.5) -> Learner:
    torch.manual_seed(0)
    method = METHODS[name]
    sizes = {"feature_dim": 16, "attention_dim": 8, "pair_dim": 8, "pair_hidden": 8, "embedding_dim": 6}
    graph = torch.eye(CLASSES) * 0.5 + 0.5
    network = SemanticTransferNetwork(CLASSES, TinyBackbone(), graph, pairs=method.needs("pairs"), **sizes)
    return Learner(*configure(method, settings or {}), network, proportion)


def make_batch(images: int, seed: int = 0, known: float = 0.6) -> tuple[Tensor, Tensor, Tensor]:
    """Images with a stripe for each present class, and labels with holes."""
    noise = torch.Generator().manual_seed(seed)
    truth = torch.where(torch.rand(images, CLASSES, generator=noise) < 0.5, 1, -1)
    pixels = 0.3 * torch.randn(images, 3, SIZE, SIZE, generator=noise)
    for n, c in itertools.product(range(images), range(CLASSES)):
        pixels[n, c % 3, 4 * c : 4 * c + 4] += 2.0 * (truth[n, c] > 0)
    labels = torch.where(torch.rand(images, CLASSES, generator=noise) < known, truth, 0).to(torch.int8)
    return pixels, labels, torch.arange(images)


def run(learner: Learner, stage: int, batch: tuple[Tensor, Tensor, Tensor], ramp: float = 1.0, seed: int = 0):
    torch.manual_seed(seed)
    return learner(StepInputs(*batch, stage=stage, ramp=ramp, observe=False, teacher=taught(learner, batch)))


def taught(learner: Learner, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor | None:
    """Let the network be its own teacher, where a method needs one."""
    if not learner.method.needs("teacher"):
        return None
    with torch.no_grad():
        return learner.network(batch[0]).logits.sigmoid()


def hand_computed(learner: Learner, bank: plain_scoring.Bank, batch: tuple[Tensor, Tensor, Tensor]):
    """The terms of SST+SATL in stage 2 by loops, unweighted."""
    pixels, labels, images = batch
    output = learner.network(pixels, with_pairs=True)
    pairs = torch.eye(CLASSES, dtype=torch.float64).repeat(len(labels), 1, 1)
    for q, (i, j) in enumerate(itertools.combinations(range(CLASSES), 2)):
        pairs[:, i, j] = pairs[:, j, i] = output.pair_logits[:, q].double().sigmoid()
    scores = {
        "intra": plain_scoring.intra_image(pairs, labels, leave_one_out=True),
        "cross": bank.scores(output.features, images),
    }
    terms = {"pseudo": 0.0, "ranking": 0.0}
    filled = {}
    for name, (values, informative) in scores.items():
        tau = learner.rules[name].value.double().tolist()
        filled[name] = labels.clone()
        meant = labels.clone()
        for n, c in itertools.product(range(len(labels)), range(CLASSES)):
            if bool(informative[n, c]):
                filled[name][n, c] = plain_thresholds.pseudo_label(
                    float(values[n, c]), int(labels[n, c]), tau[c]
                )
            else:
                meant[n, c] = 0
        terms["pseudo"] += float(plain_losses.partial_bce(output.logits, filled[name], "known"))
        terms["ranking"] += float(plain_losses.differential_ranking(values, meant, tau, True, "batch"))
    torch.manual_seed(0)
    noise = torch.rand(CLASSES, len(labels) * (len(labels) - 1) // 2)
    terms["classification"] = float(plain_losses.partial_bce(output.logits, labels, "known"))
    terms["cooccurrence"] = float(plain_losses.cooccurrence(output.pair_logits, labels))
    terms["contrast"] = float(plain_losses.contrastive(output.features, labels, noise))
    return terms, filled


def test_stage_2_is_the_weighted_sum_of_the_published_terms() -> None:
    learner = make_learner("sst+satl", {"generators": {"cross": {"bank_size": 5}}})
    bank = plain_scoring.Bank(CLASSES, 5)
    for seed in range(3):
        earlier = make_batch(6, seed)
        earlier = (*earlier[:2], earlier[2] + 3 + 10 * seed)  # the last batch shares no image, the first some
        result = run(learner, 1, earlier)
        learner.remember(result.generator_inputs)
        bank.remember(result.generator_inputs.features, earlier[1], earlier[2])
    learner.rules["intra"].value.copy_(torch.tensor([0.45, 0.5, 0.4, 0.55]))
    learner.rules["cross"].value.copy_(torch.tensor([0.1, 0.3, 0.0, 0.2]))
    batch = make_batch(6, seed=9)
    with torch.no_grad():
        result = run(learner, 2, batch)
        terms, filled = hand_computed(learner, bank, batch)
    weights = {"classification": 1.0, "pseudo": 1.0, "cooccurrence": 10.0, "contrast": 0.05, "ranking": 0.01}
    assert set(result.parts) == set(weights)
    for name, weight in weights.items():
        assert float(result.parts[name]) == pytest.approx(weight * terms[name], rel=1e-5), name
    assert float(result.loss) == pytest.approx(sum(weights[n] * terms[n] for n in weights), rel=1e-5)
    for name, labels in filled.items():
        assert torch.equal(result.pseudo[name], labels)
        assert int((labels != batch[1]).sum()) > 0  # the case is not an empty one


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.generators])
def test_stage_1_has_no_pseudo_labels(name: str) -> None:
    learner = make_learner(name)
    for rule in learner.rules.values():
        rule.value.detach().zero_()  # of buffers and parameters alike
    result = run(learner, 1, make_batch(5))
    assert set(result.parts) == set(METHODS[name].stage1) - {"mixed"}  # mixed images have a call of their own
    assert "pseudo" not in result.parts
    assert result.pseudo == {}
    assert float(result.loss.detach()) == pytest.approx(float(sum(result.parts.values())), rel=1e-6)


def test_thresholds_of_one_emit_nothing() -> None:
    learner, batch = make_learner("sst+satl"), make_batch(6)
    learner.remember(run(learner, 1, make_batch(6, seed=1)).generator_inputs)
    result = run(learner, 2, batch)
    for labels in result.pseudo.values():
        assert torch.equal(labels, batch[1])


def test_ramp_weighs_cooccurrence_and_contrast_only() -> None:
    learner, batch = make_learner("sst"), make_batch(6)
    full, quarter = run(learner, 1, batch), run(learner, 1, batch, ramp=0.25)
    for name, share in {"classification": 1.0, "cooccurrence": 0.25, "contrast": 0.25}.items():
        assert float(quarter.parts[name]) == pytest.approx(share * float(full.parts[name]), rel=1e-5)
        assert float(full.parts[name]) > 0


@pytest.mark.parametrize("rate", [None, 0.7])
def test_thresholds_move_to_the_quantiles_of_what_was_observed(rate: float | None) -> None:
    learner = make_learner("sst+satl", {"thresholds": {"rate": rate}}, proportion=0.3)
    seen: dict[str, tuple[list[list[float]], list[list[int]]]] = {"intra": ([], []), "cross": ([], [])}
    for seed in range(4):
        batch = make_batch(8, seed)
        with torch.no_grad():
            scores = learner.score(*batch)
            result = learner(StepInputs(*batch, stage=1, ramp=1.0, observe=True))
        learner.remember(result.generator_inputs)
        for name, (rows, labels) in seen.items():
            rows.extend(scores[name].tolist())
            labels.extend(batch[1].tolist())
    learner.update_thresholds()
    share = default_rate(0.3) if rate is None else rate
    for name, (rows, labels) in seen.items():
        for c in range(CLASSES):
            ideal = plain_thresholds.ideal_threshold(rows, labels, c, 0.999, 0.1)
            assert ideal is not None
            wanted = 1.0 + share * (ideal - 1.0)
            assert float(learner.thresholds()[name][c]) == pytest.approx(wanted, abs=1 / 2048)
            assert float(learner.thresholds()[name][c]) < 1.0


def test_nothing_is_observed_unasked() -> None:
    learner = make_learner("sst+satl")
    run(learner, 2, make_batch(6))
    assert not learner.rules["intra"].counts.any()


def test_scores_that_mean_nothing_are_not_numbers() -> None:
    learner, (pixels, labels, images) = make_learner("sst"), make_batch(3)
    labels[0] = torch.tensor([0, -1, 0, 0])
    labels[1] = torch.tensor([1, 0, -1, 0])
    scores = learner.score(pixels, labels, images)
    assert scores["intra"][0].isnan().all()
    assert scores["intra"][1].isnan().tolist() == [True, False, False, False]
    assert scores["cross"].isnan().all()
    assert scores["probability"].shape == (3, CLASSES)
    assert set(make_learner("ignore").score(pixels, labels, images)) == {"probability"}


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.network == "transfer"])
def test_every_method_learns(name: str) -> None:
    learner, batch = make_learner(name), make_batch(24)
    optimiser = torch.optim.SGD(learner.parameters(), lr=0.05, momentum=0.9)
    start = run(learner, 2, batch)
    for step in range(30):
        stage = 1 if step < 10 else 2
        if step >= 10 and step % 5 == 0:
            learner.update_thresholds()
        teacher = taught(learner, batch)
        result = learner(
            StepInputs(*batch, stage=stage, ramp=min(1.0, step / 5), observe=True, teacher=teacher)
        )
        optimiser.zero_grad()
        result.loss.backward()
        optimiser.step()
        learner.remember(result.generator_inputs)
        assert bool(result.loss.isfinite())
    end = run(learner, 2, batch)
    if "classification" in end.parts:  # terms that take unknown cells for negative cannot fall that far
        assert float(end.parts["classification"]) < 0.5 * float(start.parts["classification"])
    assert float(end.loss.detach()) < 0.8 * float(start.loss.detach())
    for parameter_name, parameter in learner.named_parameters():
        assert parameter.grad is not None, parameter_name


def test_a_batch_with_nothing_known_is_harmless() -> None:
    learner, (pixels, labels, images) = make_learner("sst+satl"), make_batch(5)
    result = learner(StepInputs(pixels, torch.zeros_like(labels), images, stage=2, ramp=1.0, observe=True))
    result.loss.backward()
    learner.remember(result.generator_inputs)
    learner.update_thresholds()
    assert float(result.parts["classification"]) == 0.0
    assert float(result.parts["ranking"]) == 0.0
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in learner.parameters())
    assert bool((learner.thresholds()["cross"] == 1.0).all())


def test_state_holds_thresholds_histograms_and_banks() -> None:
    small = {"generators": {"cross": {"bank_size": 3}}}
    first, second = make_learner("sst+satl", small), make_learner("sst+satl", small)
    for seed in range(3):
        with torch.no_grad():
            first.remember(first(StepInputs(*make_batch(6, seed), stage=2, observe=True)).generator_inputs)
        if seed == 1:
            first.update_thresholds()
    state = first.state_dict()
    for name in ("intra", "cross"):
        assert bool((state[f"rules.{name}.value"] < 1).any())
        assert bool(state[f"rules.{name}.counts"].any())
    for name in ("rows", "owners", "written"):
        assert bool(state[f"generators.cross.{name}"].any())
    second.load_state_dict(state)
    for learner in (first, second):
        with torch.no_grad():
            learner.remember(run(learner, 2, make_batch(6, 7)).generator_inputs)
        learner.update_thresholds()
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name


def test_bfloat16_step_has_a_float32_loss() -> None:
    learner, batch = make_learner("sst+satl"), make_batch(6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = learner(StepInputs(*batch, stage=2, ramp=1.0, observe=True))
    result.loss.backward()
    learner.remember(result.generator_inputs)
    assert result.loss.dtype == torch.float32
    assert all(bool(p.grad.isfinite().all()) for p in learner.parameters() if p.grad is not None)


@pytest.mark.parametrize("kind", ["values", "informative"])
def test_scores_that_are_not_of_every_cell_are_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner("sst+satl")
    whole = GeneratorScores(torch.rand(6, CLASSES), torch.ones(6, CLASSES, dtype=torch.bool))
    partly = whole._replace(**{kind: getattr(whole, kind)[:, :1]})
    monkeypatch.setattr(learner.generators["intra"], "forward", lambda evidence: partly)
    with pytest.raises(ValueError, match=rf"generator 'intra': the {kind} .* got \(6, 1\)"):
        run(learner, 2, make_batch(6))


def test_a_loss_that_is_no_scalar_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    part = MethodPart(lambda context, parameters: context.output.logits, Parameters, frozenset(), False)
    monkeypatch.setitem(LOSSES, "classification", part)
    with pytest.raises(
        ValueError, match=r"loss term 'classification' must return a scalar, got the shape \(6, 4\)"
    ):
        run(make_learner("ignore"), 1, make_batch(6))

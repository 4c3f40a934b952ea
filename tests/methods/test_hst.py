"""HST put together: its terms by hand, thresholds that learn in any method, learning, resuming, two processes."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from pydantic import ValidationError
from safetensors.torch import load_file
from torch import Tensor

from methods.simple import default_settings
from methods.test_learner import CLASSES, make_batch, make_learner, run
from reference import losses as plain_losses
from reference import scoring as plain_scoring
from reference import thresholds as plain_thresholds
from satl.evaluation import evaluate_scores
from satl.methods import METHODS, Learner, StepInputs, configure, get_method
from satl.runs.data import load_data
from satl.runs.run_folder import RunFolder
from satl.scoring import Survey
from satl.scoring.functional import kmeans
from satl.training.trainer import Trainer
from training.tiny import TINY, KillAt, Killed, assert_same_run, metrics, resume, tiny_config, train

HST = ["hst", "hst+sate", "hst+drl", "hst+satl"]


def survey_of(learner: Learner, batch: tuple[Tensor, Tensor, Tensor]) -> Survey:
    """What a trainer would show of a few images."""
    pixels, labels, images = batch
    with torch.no_grad():
        features = learner.network.eval().class_features(pixels)
    learner.network.train()
    found = Survey(
        torch.zeros(CLASSES, len(labels), features.shape[-1]), torch.full((CLASSES, len(labels)), -1)
    )
    for c in range(CLASSES):
        known = (labels[:, c] > 0).nonzero().flatten()
        found.features[c, : len(known)] = features[known, c]
        found.images[c, : len(known)] = images[known]
    return found


def plain_clusters(survey: Survey, size: int, seed: int) -> list[list[plain_scoring.Cluster]]:
    _, members = kmeans(survey.features, survey.images >= 0, size, seed)
    clusters: list[list[plain_scoring.Cluster]] = []
    for c in range(CLASSES):
        found: dict[int, plain_scoring.Cluster] = {}
        for m, k in enumerate(members[c].tolist()):
            if k >= 0:
                found.setdefault(k, []).append((int(survey.images[c, m]), survey.features[c, m]))
        clusters.append(list(found.values()))
    return clusters


def hand_computed(
    learner: Learner, clusters: list[list[plain_scoring.Cluster]], batch: tuple[Tensor, Tensor, Tensor]
) -> tuple[dict[str, float], dict[str, Tensor]]:
    """The terms of HST with everything in stage 2 by loops, unweighted."""
    pixels, labels, images = batch
    output = learner.network(pixels, with_pairs=True)
    pairs = torch.eye(CLASSES, dtype=torch.float64).repeat(len(labels), 1, 1)
    for q, (i, j) in enumerate(itertools.combinations(range(CLASSES), 2)):
        pairs[:, i, j] = pairs[:, j, i] = output.pair_logits[:, q].double().sigmoid()
    scores = {
        "intra": plain_scoring.intra_image(pairs, labels, leave_one_out=True),
        "prototype": plain_scoring.prototype_scores(output.features, images, clusters, leave_one_out=True),
    }
    terms = {"pseudo": 0.0, "ranking": 0.0, "threshold": 0.0}
    filled = {}
    for name, (values, informative) in scores.items():
        tau = learner.rules[name].value.detach().double()
        filled[name], meant = labels.clone(), torch.where(informative, labels, 0)
        for n, c in informative.nonzero().tolist():
            filled[name][n, c] = plain_thresholds.pseudo_label(
                float(values[n, c]), int(labels[n, c]), float(tau[c])
            )
        terms["pseudo"] += float(plain_losses.partial_bce(output.logits, filled[name], "known"))
        terms["ranking"] += float(
            plain_losses.differential_ranking(values, meant, tau.tolist(), True, "batch")
        )
        terms["threshold"] += float(plain_losses.threshold_learning(values, meant, tau))
    torch.manual_seed(0)
    noise = torch.rand(CLASSES, len(labels) * (len(labels) - 1) // 2)
    terms["classification"] = float(plain_losses.partial_bce(output.logits, labels, "known"))
    terms["cooccurrence"] = float(plain_losses.cooccurrence(output.pair_logits, labels))
    terms["contrast"] = float(plain_losses.contrastive(output.features, labels, noise))
    terms["prototype_contrast"] = float(
        plain_losses.prototype_contrast(scores["prototype"][0], labels, "fixed")
    )
    return terms, filled


WEIGHTS = {"classification": 1.0, "pseudo": 1.0, "cooccurrence": 10.0, "contrast": 0.05}
WEIGHTS |= {"prototype_contrast": 0.05}
OWN = {"hst": {"threshold": 0.1}, "hst+sate": {}, "hst+satl": {"ranking": 0.01}}
OWN["hst+drl"] = {"threshold": 0.1, "ranking": 0.01}


@pytest.mark.parametrize("name", HST)
def test_stage_2_is_the_weighted_sum_of_the_published_terms(name: str) -> None:
    learner, batch = make_learner(name, {"generators": {"prototype": {"size": 3}}}), make_batch(8, seed=9)
    shown = make_batch(12, seed=3)
    survey = survey_of(learner, (*shown[:2], shown[2] + 4))  # four images of the batch are in the survey
    learner.study(survey, epoch=0, seed=5)
    learner.rules["intra"].value.detach().copy_(torch.tensor([0.45, 0.5, 0.4, 0.55]))
    learner.rules["prototype"].value.detach().copy_(torch.tensor([0.1, 0.3, 0.0, 0.2]))
    with torch.no_grad():
        result = run(learner, 2, batch)
        terms, filled = hand_computed(learner, plain_clusters(survey, 3, 5), batch)
    weights = WEIGHTS | OWN[name]
    assert set(result.parts) == set(weights)
    for term, weight in weights.items():
        assert float(result.parts[term]) == pytest.approx(weight * terms[term], rel=1e-5), term
    assert float(result.loss) == pytest.approx(sum(weights[n] * terms[n] for n in weights), rel=1e-5)
    for generator, labels in filled.items():
        assert torch.equal(result.pseudo[generator], labels)
        assert int((labels != batch[1]).sum()) > 0  # the case is not an empty one


def test_published_values_are_the_defaults() -> None:
    settings = default_settings("hst")
    assert settings["generators"]["prototype"] == {
        "leave_one_out": True,
        "size": 10,
        "every": 5,
        "samples": 512,
    }
    assert settings["thresholds"] == {
        "rule": "learned",
        "weight": 0.1,
        "shared": True,
        "decay": True,
        "initial": 1.0,
        "lr": None,
    }
    assert settings["losses"]["prototype_contrast"] == {"weight": 0.05, "sign": "fixed"}
    weights = {name: values.get("weight") for name, values in settings["losses"].items()}
    assert (weights["cooccurrence"], weights["contrast"], weights["pseudo"]) == (10.0, 0.05, 1.0)
    assert default_settings("hst+satl")["losses"]["ranking"]["weight"] == 0.01


def test_the_published_sign_is_an_option() -> None:
    batch = make_batch(8)
    values = {}
    for sign in ("fixed", "reference"):
        learner = make_learner("hst", {"losses": {"prototype_contrast": {"sign": sign}}})
        learner.study(survey_of(learner, make_batch(12, seed=3)), epoch=0, seed=0)
        values[sign] = float(run(learner, 2, batch).parts["prototype_contrast"])
    assert values["fixed"] + values["reference"] == pytest.approx(0.1)
    assert values["fixed"] != values["reference"]


# Thresholds that learn, in any method


@pytest.mark.parametrize("name", ["sst", "sst+drl"])
def test_any_method_can_learn_its_thresholds(name: str) -> None:
    method, parameters = configure(get_method(name), {"thresholds": {"rule": "learned", "shared": False}})
    learner = Learner(method, parameters, make_learner(name).network, 0.5)
    learner.remember(run(learner, 1, make_batch(6, seed=1)).generator_inputs)
    for rule in learner.rules.values():
        rule.value.detach().fill_(-0.5)
    result = run(learner, 2, make_batch(6))
    assert set(result.parts) == {*method.stage2, "threshold"}
    result.loss.backward()
    for rule in learner.rules.values():
        assert rule.value.grad.abs().sum() > 0
    assert set(learner.thresholds()) == {"intra", "cross"}
    assert not any(value.requires_grad for value in learner.thresholds().values())


def test_hst_with_another_rule_has_no_threshold_loss() -> None:
    method, parameters = configure(get_method("hst"), {"thresholds": {"rule": "semantic"}})
    learner = Learner(method, parameters, make_learner("hst").network, 0.5)
    assert set(run(learner, 2, make_batch(6)).parts) == set(method.stage2)
    assert "weight" not in type(parameters.thresholds).model_fields
    with pytest.raises(ValidationError, match=r"no rule 'lerned' \(did you mean 'learned'\?\)"):
        configure(get_method("sst"), {"thresholds": {"rule": "lerned"}})


def test_thresholds_start_to_learn_and_to_decay_with_stage_2(tmp_path: Path) -> None:
    config = tiny_config("method.name=hst", "training.optimiser=adam", "training.lr=0.01")
    trainer = Trainer(config, load_data(config), RunFolder(tmp_path))
    batches = list(trainer.batches.epoch(0))
    for step in range(2):
        trainer.train_step(batches[step], 1, step)
    assert all(bool((value == 1.0).all()) for value in trainer.learner.thresholds().values())
    for step in range(2):
        trainer.train_step(batches[step], 2, step)
    for value in trainer.learner.thresholds().values():
        # Adam turns the decay of 5e-4 into a full step.
        torch.testing.assert_close(value, torch.full_like(value, value[0]))
        assert 0.975 < float(value[0]) < 0.985


def test_nothing_known_is_harmless() -> None:
    for name in HST:
        learner, (pixels, labels, images) = make_learner(name), make_batch(5)
        nothing = torch.zeros_like(labels)
        learner.study(survey_of(learner, (pixels, nothing, images)), epoch=0, seed=0)
        result = learner(StepInputs(pixels, nothing, images, stage=2, ramp=1.0, observe=True))
        result.loss.backward()
        learner.update_thresholds()
        assert float(result.parts["classification"]) == 0.0
        assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in learner.parameters())
        assert all(bool((value == 1.0).all()) for value in learner.thresholds().values())
        assert not any(bool((filled != 0).any()) for filled in result.pseudo.values())


# Whole runs on tiny scenes

SCENES = (
    *("data.scenes.train=112", "data.scenes.val=60", "data.proportion=0.5", "training.epochs=7"),
    *(
        "training.stage1_epochs=4",
        "training.optimiser=adam",
        "training.lr=0.01",
        "training.schedule=constant",
    ),
    *("model.backbone=satl_tiny", "model.backbone_kwargs={widths: [12, 24, 32]}", "model.prior_bias=true"),
    *("model.feature_dim=32", "model.embedding_dim=32", "method.generators.prototype.every=2"),
)


@pytest.mark.parametrize("name", HST)
def test_learns_on_tiny_scenes(name: str, tmp_path: Path) -> None:
    quantile = ("method.thresholds.negative_quantile=0.9",) if METHODS[name].rule == "semantic" else ()
    config = tiny_config(f"method.name={name}", *SCENES, *quantile)
    trainer = train(tmp_path / "run", config)
    rows = metrics(tmp_path / "run")
    losses = [row["losses"]["classification"] for row in rows]
    assert losses[-1] < 0.9 * losses[0]
    data = load_data(config)
    cells = data.table.cells[data.rows("val")]
    noise = np.random.default_rng(0)
    chance = [evaluate_scores(noise.random(cells.shape), cells, data.table.classes).mAP for _ in range(10)]
    assert trainer.best["mAP"] > np.mean(chance) + 0.05
    assert set(rows[-1]["thresholds"]) == set(rows[-1]["pseudo_labels"]) - {"union"} == {"intra", "prototype"}
    assert ("threshold" in rows[-1]["losses"]) == (METHODS[name].rule == "learned")
    assert min(rows[-1]["thresholds"]["intra"]) < 0.95
    assert rows[-1]["pseudo_labels"]["union"]["emitted"] > 0
    text = (tmp_path / "run" / "thresholds.csv").read_text()
    assert text.count(",prototype,") == data.table.num_classes


@pytest.mark.parametrize(("name", "learned"), [("hst", True), ("hst+satl", False)])
def test_a_run_killed_between_surveys_ends_like_one_left_alone(
    name: str, learned: bool, tmp_path: Path
) -> None:
    settings = [f"method.name={name}", "training.checkpoint_steps=1", "method.generators.prototype.every=1"]
    settings += [
        "method.generators.prototype.size=3",
        "method.generators.prototype.samples=9",
        "training.stage1_epochs=1",
    ]
    config = tiny_config(*settings, "training.epochs=3", "training.optimiser=adam")
    train(tmp_path / "alone", config)
    with pytest.raises(Killed):
        train(tmp_path / "cut", config, KillAt(epoch=1, step=2))  # within the epoch of the first survey
    with pytest.raises(Killed):
        resume(tmp_path / "cut", KillAt(epoch=2, step=0))  # after the second, before its first checkpoint
    resume(tmp_path / "cut")
    assert_same_run(tmp_path / "alone", tmp_path / "cut")
    state = load_file(tmp_path / "cut" / "checkpoints" / "last" / "learner.safetensors")
    assert int((state["generators.prototype.members"] > 0).sum(1).max()) == 3
    assert bool((state["rules.intra.value"] < 1).all())
    assert (state["rules.intra.value"].unique().numel() == 1) == learned


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hst", "hst+satl"])
def test_two_processes_find_the_prototypes_of_one(name: str, tmp_path: Path) -> None:
    from training.test_processes import alone, assert_close, finish, torchrun
    from training.tiny import assert_same

    settings = [
        f"method.name={name}",
        "method.generators.prototype.samples=7",
        "method.generators.prototype.size=3",
    ]
    settings += ["training.epochs=3", "training.stage1_epochs=1"]
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    options = [part for setting in settings for part in ("--set", setting)]
    start = ("train", tmp_path / "tiny.yaml", *options, "--quiet", "--out")
    runs = [
        begin(tmp_path / f"of {where}", *start, tmp_path / where, COMPUTE_PRECISELY="1")
        for begin, where in ((alone, "one"), (torchrun, "two"))
    ]
    for process in runs:
        code, _, err = finish(process)
        assert code == 0, err
    dumps = (tmp_path / "of one" / "rank-0.pt", *(tmp_path / "of two" / f"rank-{rank}.pt" for rank in (0, 1)))
    states = [torch.load(dump)["learner"] for dump in dumps]
    expected, first, second = (
        {key: value for key, value in state.items() if not key.endswith(".counts")} for state in states
    )
    assert expected["generators.prototype.members"].sum() > 0
    assert_same(first, second)
    for state in (first, expected):
        # Two points are equally far from each other: which of them is the first prototype is decided by rounding.
        state["generators.prototype.rows"] = state["generators.prototype.rows"].sum(1)
        for part in ("members", "owners"):
            state[f"generators.prototype.{part}"] = state[f"generators.prototype.{part}"].sort(1).values
    assert_close(first, expected, rtol=1e-6, atol=1e-9)


def test_thresholds_with_a_rate_of_their_own_fill_cells_where_the_published_ones_stay(tmp_path: Path) -> None:
    settings = (
        *("method.name=hst", "data.proportion=0.5", "training.stage1_epochs=1", "training.epochs=3"),
        "training.optimiser=adam",
    )
    train(tmp_path / "published", tiny_config(*settings))
    tuned = ("method.thresholds.initial=0.9", "method.thresholds.lr=0.2")
    train(tmp_path / "tuned", tiny_config(*settings, *tuned))
    before, now = (metrics(tmp_path / name)[-1] for name in ("published", "tuned"))
    assert max(now["thresholds"]["intra"]) < 0.9
    assert now["pseudo_labels"]["union"]["emitted"] > before["pseudo_labels"]["union"]["emitted"]
    assert now["lr"] == before["lr"]  # the rate that is written down is still the head's
    found = RunFolder.open(tmp_path / "tuned").read_config().method.thresholds
    assert (found["initial"], found["lr"]) == (0.9, 0.2)

"""Runs on features: the same trainer and commands, without a picture anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from reference.features import components_by_deflation
from satl.errors import ConfigError, RunError, TableError
from satl.features import FeatureFolder, FeatureTable, FeatureWriter, feature_statistics
from satl.features.feature_statistics import mean_and_deviation, principal_components
from satl.features.feature_views import MeanView, RandomView
from satl.inference.recogniser import Recogniser
from satl.methods import METHODS, Learner, StepInputs, get_method, on_features
from satl.methods.satl_plus import default_mixed_weight
from satl.models.class_network import NetworkOutput
from satl.runs.config import RunConfig
from satl.runs.data import load_data
from satl.runs.reading import apply_overrides, make_config
from satl.runs.run_folder import RunFolder
from satl.scoring import ProbeLogits, probe_logits
from satl.training import feature_maps, probing
from satl.training import trainer as trainer_module
from satl.training.build import build_learner, feature_vectors
from satl.training.probing import fit_to_some
from satl.training.trainer import Trainer
from training.tiny import KillAt, Killed, assert_same_run, metrics, resume, train

NUM, VIEWS, DIM, CLASSES = 90, 2, 6, ("cat", "dog", "cow")
ABLE = sorted(name for name in METHODS if name in ("ignore", "satl+", "ml-gcn", "curriculum", "asl"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with labels.csv, features in a folder, and the first view alone in an npz."""
    folder = tmp_path_factory.mktemp("features")
    draw = np.random.default_rng(0)
    truth = draw.random((NUM, 3)) < 0.4
    features = (truth @ draw.normal(size=(3, DIM)))[:, None] + 0.3 * draw.normal(size=(NUM, VIEWS, DIM)) + 4
    ids = [f"p/{row}.jpg" for row in range(NUM)]
    FeatureFolder.write(folder / "features", ids, features, {"backbone": "toy"}, part_rows=40)
    np.savez(folder / "one.npz", images=ids[::-1], features=features[::-1, 0].astype(np.float32))
    known = draw.random((NUM, 3)) < 0.5
    lines = ["image,split,cat,dog,cow"]
    for row, name in enumerate(ids):
        split = ("test", "val", "train", "train", "train")[row % 5]
        cells = ["" if not known[row, c] and split == "train" else str(int(truth[row, c])) for c in range(3)]
        lines.append(",".join([name, split, *cells]))
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


def config_of(data: Path, *settings: str, features: str = "features") -> RunConfig:
    content: dict[str, Any] = {
        "data": {"table": str(data / "labels.csv"), "features": str(data / features)},
        "model": {"embedding_dim": 8, "feature_dim": 8},
        "training": {"epochs": 3, "stage1_epochs": 1, "batch_size": 18, "lr": 0.05, "device": "cpu"},
    }
    return make_config(apply_overrides(content, settings), "features")


@pytest.mark.parametrize("name", ABLE)
def test_methods_learn_from_features_alone(name: str, data: Path, tmp_path: Path) -> None:
    train(tmp_path / "run", config_of(data, f"method.name={name}"))
    rows = metrics(tmp_path / "run")
    assert [row["stage"] for row in rows] == [1, 2, 2]
    assert rows[-1]["val"]["mAP"] > 0.8  # by chance 0.4


@pytest.mark.parametrize("features", ["features", "one.npz"])  # several views, and one, whose maps are kept
def test_a_run_that_was_cut_off_ends_the_same(features: str, data: Path, tmp_path: Path) -> None:
    config = config_of(data, "training.checkpoint_steps=1", "features.components=3", features=features)
    whole = train(tmp_path / "whole", config)
    assert (whole.inputs._maps is not None) == (features == "one.npz")
    with pytest.raises(Killed):
        train(tmp_path / "cut", config, KillAt(epoch=1, step=1))
    resume(tmp_path / "cut")
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def step_inputs(config: RunConfig, folder: Path) -> StepInputs:
    """The first step of a teacher's stage, as a trainer makes it."""
    trainer = Trainer.start(config, load_data(config), RunFolder(folder))
    batch = next(iter(trainer.batches.epoch(1)))
    return trainer.inputs.make(batch, epoch=1, step=0, stage=2, observe=True)


@pytest.mark.parametrize("features", ["features", "one.npz"])
def test_network_and_teacher_get_maps_that_are_computed_once(
    features: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(data, "method.name=satl+", "features.components=3", features=features)
    kept = step_inputs(config, tmp_path / "kept")
    assert kept.clean is not None
    assert kept.pixels.shape == kept.clean.shape == (18, 3, 1, 1)
    assert (kept.clean is kept.pixels) == (features == "one.npz")
    monkeypatch.setattr(feature_maps, "MOST_BYTES", 0)
    anew = step_inputs(config, tmp_path / "anew")
    assert anew.clean is not None
    torch.testing.assert_close(kept.pixels, anew.pixels)
    torch.testing.assert_close(kept.clean, anew.clean)
    loaded = load_data(config)
    assert isinstance(loaded.source, FeatureTable)
    learner = build_learner(config, loaded.table.classes, loaded.table.cells, feature_vectors(config, loaded))
    seen = torch.from_numpy(loaded.source.take(kept.indices.numpy())).float().mean(1)
    expected = learner.network.get_submodule("backbone")(seen)
    torch.testing.assert_close(kept.clean, expected)


def test_maps_are_kept_where_those_of_all_rows_fit(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(data, "features.components=3", features="one.npz")
    for size, kept in (
        (NUM * 3 * 4, True),
        (NUM * 3 * 4 - 1, False),
    ):  # float32 of rows that are not trained on, too
        monkeypatch.setattr(feature_maps, "MOST_BYTES", size)
        trainer = Trainer.start(config, load_data(config), RunFolder(tmp_path / str(size)))
        assert (trainer.inputs._maps is not None) == kept


@torch.no_grad()
def test_features_are_mixed_as_the_network_sees_them(data: Path, tmp_path: Path) -> None:
    config = config_of(data, "method.name=satl+", features="one.npz")
    loaded = load_data(config)
    learner = build_learner(config, loaded.table.classes, loaded.table.cells, feature_vectors(config, loaded))
    torch.nn.init.normal_(learner.network.get_submodule("classifier").weight)
    assert isinstance(loaded.source, FeatureTable)
    rows = np.arange(4)
    vectors = torch.from_numpy(loaded.source.take(rows))[:, 0].float()
    labels = torch.from_numpy(loaded.table.cells[rows].copy())
    shares = torch.tensor([0.5, 0.7, 0.9, 1.0])
    teacher = torch.rand(4, 3, generator=torch.Generator().manual_seed(0))
    maps = learner.network.get_submodule("backbone")(vectors).flatten(1)
    weight = learner.network.get_submodule("classifier").weight
    cost = 0.0
    for row, other in enumerate((1, 0, 3, 2)):
        share = shares[row]
        logits = weight @ (share * maps[row] + (1 - share) * maps[other])
        logits += learner.network.get_submodule("classifier").bias
        present = [torch.where(labels[n] == 0, teacher[n], (labels[n] > 0).float()) for n in (row, other)]
        target = share * present[0] + (1 - share) * present[1]
        cost -= float((target * logits.sigmoid().log() + (1 - target) * (-logits).sigmoid().log()).mean()) / 4
    for pixels in (vectors, maps[:, :, None, None]):
        inputs = StepInputs(
            pixels, labels, torch.arange(4), 2, False, torch.ones(()), shares=shares, teacher=teacher
        )
        found = learner(inputs, mixed=True).parts["mixed"]
        assert float(found) == pytest.approx(cost * default_mixed_weight(learner.positive_share), rel=1e-4)


@pytest.mark.parametrize(
    ("images", "known", "weight"),
    [(8000, 800, 0.0), (8000, 4000, 0.0), (50_000, 5000, 10.0), (50_000, 25_000, 20.0)],
)
def test_known_cells_weigh_more_where_many_are_known(
    data: Path, images: int, known: int, weight: float
) -> None:
    config = config_of(data, "method.name=satl+", features="one.npz")
    loaded = load_data(config)
    cells = np.zeros((images, 3), dtype=np.int8)
    cells[:known] = 1
    cells[: known // 2] = -1
    learner = build_learner(config, loaded.table.classes, cells, feature_vectors(config, loaded))
    losses = learner.method_parameters.losses
    assert losses["mixed_known"].weight == pytest.approx(weight)  # type: ignore[attr-defined]
    assert losses["mixed_known"].switched_off == (weight == 0)
    # Of images, whose network is trained, it is off; a number that somebody gave stays what it is.
    assert "mixed_known" not in METHODS["satl+"].losses
    given = config_of(data, "method.name=satl+", "method.losses.mixed_known.weight=3", features="one.npz")
    learner = build_learner(given, loaded.table.classes, cells, feature_vectors(given, loaded))
    assert learner.method_parameters.losses["mixed_known"].weight == 3  # type: ignore[attr-defined]


class OwnNetwork(nn.Module):
    """A network of one's own, without a backbone: it takes the vectors as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.num_classes = self.feature_dim = len(CLASSES)
        self.classifier = nn.Linear(DIM, len(CLASSES))
        self.seen: set[tuple[int, ...]] = set()

    def forward(self, vectors: torch.Tensor, with_pairs: bool = False) -> NetworkOutput:
        self.seen.add(tuple(vectors.shape[1:]))
        logits = self.classifier(vectors)
        return NetworkOutput(logits, logits[:, None].expand(-1, len(CLASSES), -1), None)


def test_a_network_without_a_backbone_trains_on_the_vectors(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    network, build = OwnNetwork(), trainer_module.build_learner

    def with_own(*given: Any) -> Learner:
        learner = build(*given)
        learner.network = network
        return learner

    monkeypatch.setattr(trainer_module, "build_learner", with_own)
    settings = ("method.name=satl+", "method.teacher.probe_weight=0", "training.epochs=12")
    config = config_of(data, *settings, features="one.npz")
    train(tmp_path / "run", config)
    assert network.seen == {(DIM,)}
    assert metrics(tmp_path / "run")[-1]["val"]["mAP"] > 0.6


def test_memory_and_files_give_the_same_run(data: Path, tmp_path: Path) -> None:
    train(tmp_path / "memory", config_of(data))
    mapped = config_of(data, "images.cache_gb=0")
    source = load_data(mapped).source
    assert isinstance(source, FeatureTable)
    assert not source.in_memory
    train(tmp_path / "mapped", mapped)
    assert_same_run(tmp_path / "memory", tmp_path / "mapped")


def test_a_shell_is_built_without_the_features(data: Path, tmp_path: Path) -> None:
    """What a run learned, its standardisation included, is in its folder."""
    trainer = train(tmp_path / "run", config_of(data))
    facts = RunFolder.open(tmp_path / "run").read_features()
    assert facts is not None
    assert (facts["dim"], facts["views"], facts["made_by"]) == (DIM, VIEWS, {"backbone": "toy"})
    source, rows = trainer.data.source, trainer.data.rows("train")
    assert isinstance(source, FeatureTable)
    recogniser = Recogniser.load(tmp_path / "run")
    vectors = source.take(rows).astype(np.float64).reshape(-1, DIM)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    inputs = recogniser.learner.network.backbone
    np.testing.assert_allclose(inputs.mean, vectors.mean(0), rtol=1e-4)
    np.testing.assert_allclose(inputs.scale, 1 / vectors.std(0), rtol=1e-4)
    expected = torch.from_numpy(source.take(rows).astype(np.float32)).mean(1)
    with torch.no_grad():
        logits = recogniser.learner.network(expected).logits
    np.testing.assert_allclose(recogniser.probabilities(source, rows), logits.sigmoid(), atol=1e-6)


def test_without_standardisation_features_stay_as_they_are(data: Path, tmp_path: Path) -> None:
    train(tmp_path / "run", config_of(data, "features.standardise=false", "training.epochs=1"))
    inputs = Recogniser.load(tmp_path / "run").learner.network.backbone
    assert torch.equal(inputs.mean, torch.zeros(DIM))
    assert torch.equal(inputs.scale, torch.ones(DIM))


def test_other_features_are_refused(data: Path, tmp_path: Path) -> None:
    config = config_of(data, "training.checkpoint_steps=1")
    with pytest.raises(Killed):
        train(tmp_path / "run", config, KillAt(epoch=1, step=1))
    file = tmp_path / "run" / "config.yaml"
    file.write_text(file.read_text().replace(str(data / "features"), str(data / "one.npz")))
    with pytest.raises(RunError, match="the labels, the split or the features are not those"):
        resume(tmp_path / "run")


def test_missing_features_name_the_image(data: Path, tmp_path: Path) -> None:
    ids = [f"p/{row}.jpg" for row in range(1, NUM)]
    np.savez(tmp_path / "less.npz", images=ids, features=np.zeros((NUM - 1, DIM)))
    with pytest.raises(TableError, match=r"1 of 90 images have no features, the first is 'p/0.jpg'"):
        load_data(config_of(data, features=str(tmp_path / "less.npz")))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["method.name=sst+satl"], "'sst+satl' attends to the positions of a feature map"),
        (["method.name=kggr"], "use one of asl, "),
        (["images.size=64"], "images.size (64) is about pixels"),
        (["model.backbone=resnet18"], 'model.backbone ("resnet18") is about pixels'),
        (["method.inputs=images"], "leave method.inputs out"),
        (["method.network.hidde=4"], "there is no key 'hidde' (did you mean 'hidden'?)"),
        (["data.scenes={}", "data.table=null"], "features belongs to a table or a dataset"),
    ],
)
def test_what_means_nothing_is_refused(settings: list[str], told: str, data: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(data, *settings)
    assert told in str(caught.value)


def test_defaults_are_those_of_features(data: Path) -> None:
    content = {"data": {"table": str(data / "labels.csv"), "features": str(data / "one.npz")}}
    config = make_config(content, "nothing else")
    assert config.method.name == "satl+"
    assert config.method.inputs == "features"
    assert config.training.lr == 3e-4
    assert config.model.prior_bias
    chosen, _ = config.method.configured()
    assert chosen == on_features(get_method("satl+"))
    plain = config.resolved()
    assert "size" not in plain["images"]
    assert "backbone" not in plain["model"]
    assert make_config(plain, "again").resolved() == plain
    images = make_config({"data": {"table": "t.csv", "images": "."}}, "images").resolved()
    assert "features" not in images
    assert "inputs" not in images["method"]


def test_views_are_chosen_by_position_in_the_global_batch() -> None:
    features = torch.randn(8, 3, 4)
    augment = RandomView()

    def draw(first: int, num: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(7)
        return augment(features[first : first + num], generator, first=first, total=8)

    whole = draw(0, 8)
    assert torch.equal(torch.cat([draw(0, 3), draw(3, 5)]), whole)
    chosen = [(features[row] == whole[row]).all(1).nonzero().item() for row in range(8)]
    assert len(set(chosen)) > 1
    np.testing.assert_allclose(MeanView()(features), features.mean(1))
    one = features[:, :1]
    state = (generator := torch.Generator().manual_seed(0)).get_state()
    assert torch.equal(augment(one, generator), one[:, 0])
    assert torch.equal(generator.get_state(), state)  # nothing was drawn


def test_the_digest_of_the_data_covers_the_features(data: Path) -> None:
    one, other = (load_data(config_of(data, features=name)) for name in ("features", "one.npz"))
    assert one.fingerprint() != other.fingerprint()
    facts = json.dumps(one.feature_facts())
    assert json.loads(facts)["digest"] == one.source.digest  # type: ignore[union-attr]


@pytest.mark.parametrize("unit_length", [True, False])
def test_vectors_come_in_standardised_of_unit_length_or_as_they_are(unit_length: bool, data: Path) -> None:
    config = config_of(data, f"features.unit_length={str(unit_length).lower()}", features="one.npz")
    run_data = load_data(config)
    assert isinstance(run_data.source, FeatureTable)
    rows = run_data.rows("train")
    vectors = torch.from_numpy(run_data.source.take(rows)[:, 0]).float()
    learner = build_learner(
        config, run_data.table.classes, run_data.table.cells[rows], feature_vectors(config, run_data)
    )
    backbone = learner.network.get_submodule("backbone")
    with torch.no_grad():
        found, longer = backbone(vectors).flatten(1), backbone(2 * vectors).flatten(1)
    torch.testing.assert_close(found.mean(0), torch.zeros(DIM), atol=1e-4, rtol=0)
    torch.testing.assert_close(found.std(0, correction=0), torch.ones(DIM), atol=1e-3, rtol=0)
    assert torch.allclose(found, longer, atol=1e-4) == unit_length


def feature_table(vectors: np.ndarray[Any, np.dtype[np.float64]]) -> FeatureTable:
    ids = tuple(str(row) for row in range(len(vectors)))
    return FeatureTable(Path("f"), ids, [vectors[:, None]], None, "")


@pytest.mark.parametrize("unit_length", [True, False])
def test_principal_components_are_those_of_the_definition(unit_length: bool) -> None:
    draw = np.random.default_rng(0)
    vectors = (
        draw.normal(size=(60, 6)) @ np.diag([5.0, 3.0, 2.0, 1.0, 0.5, 0.2]) @ draw.normal(size=(6, 6)) + 3
    )
    table, rows = feature_table(vectors), np.arange(10, 60)
    mean, _ = mean_and_deviation(table, rows, unit_length)
    components, deviation = principal_components(table, rows, mean, 3, unit_length)
    seen = vectors[10:]
    if unit_length:
        seen = seen / np.linalg.norm(seen, axis=1, keepdims=True)
    np.testing.assert_allclose(components, components_by_deflation(seen, 3), atol=1e-3)
    projected = (seen - seen.mean(0)) @ components.T
    np.testing.assert_allclose(deviation, np.sqrt(np.square(projected).mean()), rtol=1e-4)


def test_components_that_nothing_varies_along_are_zero() -> None:
    vectors = np.random.default_rng(0).normal(size=(4, 10))
    mean, _ = mean_and_deviation(feature_table(vectors), np.arange(4))
    components, _ = principal_components(feature_table(vectors), np.arange(4), mean, 6)
    np.testing.assert_allclose(np.linalg.norm(components, axis=1), [1, 1, 1, 0, 0, 0], atol=1e-6)


def test_components_of_very_many_rows_are_those_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    table = feature_table(draw.normal(size=(2000, 5)) * [9.0, 6.0, 3.0, 1.0, 1.0])
    rows, mean = np.arange(2000), np.zeros(5)
    whole, _ = principal_components(table, rows, mean, 2)
    monkeypatch.setattr(feature_statistics, "MOST_ROWS", 500)
    some, _ = principal_components(table, rows, mean, 2)
    assert not np.array_equal(whole, some)
    np.testing.assert_allclose(whole @ some.T, np.eye(2), atol=0.1)


def test_long_vectors_come_in_as_principal_components(data: Path, tmp_path: Path) -> None:
    config = config_of(data, "features.components=4", "training.checkpoint_steps=1")
    train(tmp_path / "run", config)
    assert metrics(tmp_path / "run")[-1]["val"]["mAP"] > 0.8
    network = Recogniser.load(tmp_path / "run").learner.network
    assert network.get_submodule("backbone").components.shape == (4, DIM)
    assert network.get_submodule("classifier").weight.shape == (3, 4)
    with pytest.raises(Killed):
        train(tmp_path / "cut", config, KillAt(epoch=1, step=1))
    resume(tmp_path / "cut")
    assert_same_run(tmp_path / "run", tmp_path / "cut")


def test_a_probe_sees_vectors_whole(data: Path) -> None:
    config = config_of(data, "features.components=4")
    run_data = load_data(config)
    cells = run_data.table.cells[run_data.rows("train")]
    learner = build_learner(config, run_data.table.classes, cells, feature_vectors(config, run_data))
    assert probing.probed_part(learner.network)(torch.randn(2, DIM)).shape == (2, DIM, 1, 1)
    assert learner.network.get_submodule("backbone")(torch.randn(2, DIM)).shape == (2, 4, 1, 1)


def test_a_probe_of_some_rows_knows_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(0)
    features = torch.randn(300, 8, generator=draw)
    truth = torch.where(features[:, :2] + 0.5 * torch.randn(300, 2, generator=draw) > 0, 1, -1)
    cells = torch.where(torch.rand(300, 2, generator=draw) < 0.5, truth, 0).to(torch.int8)
    rows = np.arange(20, 300)

    def features_of(some: np.ndarray[Any, np.dtype[np.int64]]) -> torch.Tensor:
        return features[torch.from_numpy(some)]

    whole = ProbeLogits(2)
    assert fit_to_some(features_of, cells, rows, whole, size=16) == 280
    assert torch.equal(whole.logits[:20], torch.zeros(20, 2))  # rows that are not for training
    torch.testing.assert_close(whole.logits[20:], probe_logits(features[20:], cells[20:]))

    monkeypatch.setattr(probing, "LEAST_ROWS", 1)
    some = ProbeLogits(2)
    assert fit_to_some(features_of, cells, rows, some, size=16, most_work=16 * 100) == 100
    right = (some.logits[20:].sign() == truth[20:]).float().mean()
    assert right > 0.8


def test_pictures_that_could_not_be_embedded_are_left_out(data: Path, tmp_path: Path) -> None:
    ids = [f"p/{row}.jpg" for row in range(NUM)]
    writer = FeatureWriter(tmp_path / "features", ids, DIM, 1, {}, part_rows=NUM)
    writer.write_part(
        0, ids[:-2], np.ones((NUM - 2, DIM)), broken=[(name, "is cut off") for name in ids[-2:]]
    )
    writer.finish()
    loaded = load_data(config_of(data, features=str(tmp_path / "features")))
    assert [one.image for one in loaded.left_out] == ids[-2:]
    assert loaded.table.images == tuple(ids[:-2]) == loaded.source.ids  # type: ignore[union-attr]
    assert load_data(config_of(data)).left_out == ()

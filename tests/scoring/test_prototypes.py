"""Prototypes: k-means against its own definition and against scikit-learn, scores against plain loops."""

from __future__ import annotations

import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from torch import Tensor

from reference import scoring as reference
from satl.scoring import CrossImageGenerator, Generator, GeneratorInputs, PrototypeGenerator, Survey
from satl.scoring.functional import kmeans


def everything(points: Tensor) -> Tensor:
    return torch.ones(points.shape[:2], dtype=torch.bool)


def inertia(points: Tensor, centres: Tensor, members: Tensor) -> float:
    return float((points - centres[members]).double().square().sum())


def ragged(seed: int, counts: list[int], size: int = 5) -> tuple[Tensor, Tensor]:
    """Points of classes with different numbers of them, scattered over the slots."""
    noise = torch.Generator().manual_seed(seed)
    slots = max(counts) + 2
    filled = torch.zeros(len(counts), slots, dtype=torch.bool)
    for c, count in enumerate(counts):
        filled[c, torch.randperm(slots, generator=noise)[:count]] = True
    points = 3 + torch.randn(len(counts), slots, size, generator=noise)
    return torch.where(filled.unsqueeze(-1), points, torch.nan).nan_to_num(1e6), filled


# k-means


@pytest.mark.parametrize("seed", range(5))
def test_points_are_nearest_to_their_centre_and_centres_are_means(seed: int) -> None:
    counts = [40, 0, 7, 3, 1, 23]
    points, filled = ragged(seed, counts)
    centres, members = kmeans(points, filled, num_clusters=4, seed=seed)
    assert centres.shape == (6, 4, 5)
    for c, count in enumerate(counts):
        assert torch.equal(members[c] >= 0, filled[c])
        used = sorted(set(members[c][filled[c]].tolist()))
        assert len(used) == min(4, count)
        for k in range(4):
            mine = points[c][members[c] == k]
            mean = mine.mean(0) if len(mine) else torch.zeros(5)
            torch.testing.assert_close(centres[c, k], mean, rtol=1e-5, atol=1e-5)
        for point, k in zip(points[c][filled[c]], members[c][filled[c]].tolist(), strict=True):
            distances = {other: float((point - centres[c, other]).square().sum()) for other in used}
            assert distances[k] <= min(distances.values()) + 1e-5


@pytest.mark.parametrize("seed", range(6))
def test_blobs_are_found_as_well_as_by_scikit_learn(seed: int) -> None:
    drawn = [
        torch.from_numpy(
            make_blobs(300, 8, centers=10, cluster_std=1.5, random_state=10 * seed + c)[0]
        ).float()
        for c in range(3)
    ]
    points = torch.stack(drawn)
    centres, members = kmeans(points, everything(points), 10, seed)
    for c in range(3):
        best = KMeans(10, n_init=10, random_state=0).fit(points[c].numpy()).inertia_
        assert inertia(points[c], centres[c], members[c]) <= 1.05 * best


def test_points_without_structure_are_clustered_as_well_as_by_scikit_learn() -> None:
    points = torch.randn(1, 400, 16, generator=torch.Generator().manual_seed(0))
    centres, members = kmeans(points, everything(points), 10)
    best = KMeans(10, n_init=10, random_state=0).fit(points[0].numpy()).inertia_
    assert inertia(points[0], centres[0], members[0]) <= 1.03 * best


def test_features_far_from_the_origin_lose_nothing() -> None:
    points = torch.randn(1, 60, 4, generator=torch.Generator().manual_seed(1))
    _, near = kmeans(points, everything(points), 5, seed=3)
    _, far = kmeans(points + 1000, everything(points), 5, seed=3)
    assert torch.equal(near, far)


def test_fewer_points_than_clusters_are_clusters_of_one() -> None:
    points, filled = ragged(0, [3, 10, 1])
    centres, members = kmeans(points, filled, num_clusters=10)
    for c in range(3):
        mine = members[c][filled[c]].tolist()
        assert len(set(mine)) == len(mine)
        torch.testing.assert_close(centres[c, mine], points[c][filled[c]])
        unused = [k for k in range(10) if k not in mine]
        assert not centres[c, unused].any()


def test_equal_points_do_not_make_more_clusters_than_there_are_places() -> None:
    places = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 3.0]])
    points = places[torch.arange(30) % 3].unsqueeze(0)
    centres, members = kmeans(points, everything(points), num_clusters=8)
    assert inertia(points[0], centres[0], members[0]) == pytest.approx(0.0, abs=1e-9)
    assert len(set(members[0].tolist())) == 3
    same = torch.full((1, 6, 2), 0.3)
    centres, members = kmeans(same, everything(same), num_clusters=4)
    torch.testing.assert_close(centres[0, members[0]], same[0])


def test_the_seed_decides() -> None:
    points = torch.randn(2, 200, 6, generator=torch.Generator().manual_seed(2))
    state = torch.get_rng_state()
    first, again = (kmeans(points, everything(points), 12, seed=5) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[1], kmeans(points, everything(points), 12, seed=6)[1])
    assert torch.equal(torch.get_rng_state(), state)


def test_half_precision_points_are_clustered_in_float32() -> None:
    points = torch.randn(2, 50, 6, generator=torch.Generator().manual_seed(3)).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        centres, members = kmeans(points, everything(points), 4)
    exact = kmeans(points.float(), everything(points), 4)
    assert centres.dtype == torch.float32
    assert torch.equal(centres, exact[0])
    assert torch.equal(members, exact[1])


def test_double_precision_points_are_clustered_in_float32() -> None:
    points = torch.randn(2, 50, 6, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    centres, members = kmeans(points, everything(points), 4)
    exact = kmeans(points.float(), everything(points), 4)
    assert centres.dtype == torch.float32
    assert torch.equal(centres, exact[0])
    assert torch.equal(members, exact[1])


def test_no_points_no_clusters() -> None:
    centres, members = kmeans(torch.zeros(2, 0, 3), torch.zeros(2, 0, dtype=torch.bool), 4)
    assert centres.shape == (2, 4, 3)
    assert not centres.any()
    assert members.shape == (2, 0)


# The generator


def make_survey(seed: int, counts: list[int], size: int = 6) -> Survey:
    """Features of known positives; image i of class c is 100 c + i."""
    noise = torch.Generator().manual_seed(seed)
    slots = max(counts, default=0)
    images = torch.full((len(counts), slots), -1)
    for c, count in enumerate(counts):
        images[c, :count] = 100 * c + torch.arange(count)
    features = torch.randn(len(counts), slots, size, generator=noise)
    return Survey(torch.where(images.unsqueeze(-1) >= 0, features, 0.0), images)


def plain_clusters(survey: Survey, size: int, seed: int) -> list[list[reference.Cluster]]:
    _, members = kmeans(survey.features, survey.images >= 0, size, seed)
    clusters: list[list[reference.Cluster]] = []
    for c in range(members.shape[0]):
        found: dict[int, reference.Cluster] = {}
        for m, k in enumerate(members[c].tolist()):
            if k >= 0:
                found.setdefault(k, []).append((int(survey.images[c, m]), survey.features[c, m]))
        clusters.append(list(found.values()))
    return clusters


COUNTS = [30, 0, 4, 1, 2, 10]


def evidence_of(seed: int, classes: int = len(COUNTS), size: int = 6) -> GeneratorInputs:
    """Some images of the survey and some others."""
    noise = torch.Generator().manual_seed(seed)
    images = torch.tensor([0, 3, 7, 200, 201, 203, 300, 400, 401, 505, 509, 9999])
    features = torch.randn(len(images), classes, size, generator=noise)
    labels = torch.randint(-1, 2, (len(images), classes), generator=noise)
    return GeneratorInputs(features, None, labels, images)


@pytest.mark.parametrize("leave_one_out", [True, False])
@pytest.mark.parametrize("size", [1, 4, 10])
def test_scores_equal_the_loops(leave_one_out: bool, size: int) -> None:
    survey, evidence = make_survey(0, COUNTS), evidence_of(1)
    generator = PrototypeGenerator(len(COUNTS), 6, size=size, leave_one_out=leave_one_out)
    generator.study(survey, seed=7)
    values, informative = generator(evidence)
    wanted, where = reference.prototype_scores(
        evidence.features, evidence.images, plain_clusters(survey, size, 7), leave_one_out
    )
    torch.testing.assert_close(values.double(), wanted, rtol=0, atol=1e-5)
    assert torch.equal(informative, where)
    assert not informative[:, 1].any()
    assert not values[:, 1].any()
    alone = evidence.images == 300  # the only known positive of its class
    assert bool(informative[alone, 3]) == (not leave_one_out)
    assert bool(informative[~alone, 3].all())
    assert generator.members.sum(1).tolist() == COUNTS
    assert (generator.members > 0).sum(1).tolist() == [min(size, count) for count in COUNTS]


def test_before_a_survey_and_without_known_positives_nothing_is_scored() -> None:
    generator = PrototypeGenerator(3, 6, size=4)
    evidence = evidence_of(0, classes=3)
    for _ in range(2):
        values, informative = generator(evidence)
        assert not informative.any()
        assert not values.any()
        generator.study(make_survey(0, [0, 0, 0]), seed=0)


def test_the_mean_is_over_the_prototypes_there_are() -> None:
    generator = PrototypeGenerator(1, 2, size=10)
    survey = Survey(torch.tensor([[[2.0, 0.0], [0.0, 5.0]]]), torch.tensor([[8, 9]]))
    generator.study(survey, seed=0)
    values, _ = generator(
        GeneratorInputs(torch.tensor([[[1.0, 0.0]]]), None, torch.zeros(1, 1), torch.tensor([1]))
    )
    assert float(values) == pytest.approx(0.5)
    values, _ = generator(
        GeneratorInputs(torch.tensor([[[1.0, 0.0]]]), None, torch.zeros(1, 1), torch.tensor([9]))
    )
    assert float(values) == pytest.approx(1.0)  # image 9 is not compared with itself


def test_a_new_survey_replaces_the_old_one() -> None:
    generator, fresh = PrototypeGenerator(2, 6, size=4), PrototypeGenerator(2, 6, size=4)
    generator.study(make_survey(0, [9, 3]), seed=0)
    generator.study(make_survey(1, [2, 0]), seed=1)
    fresh.study(make_survey(1, [2, 0]), seed=1)
    for name, tensor in generator.state_dict().items():
        assert torch.equal(tensor, fresh.state_dict()[name]), name


def test_no_more_than_the_samples_are_used() -> None:
    survey = make_survey(0, [40, 5])
    few, cut = PrototypeGenerator(2, 6, size=3, samples=8), PrototypeGenerator(2, 6, size=3)
    few.study(survey, seed=0)
    cut.study(Survey(survey.features[:, :8], survey.images[:, :8]), seed=0)
    assert few.members.sum(1).tolist() == [8, 5]
    assert torch.equal(few.rows, cut.rows)


def test_surveys_are_wanted_every_few_epochs() -> None:
    generator = PrototypeGenerator(2, 6, every=5, samples=99)
    assert [epoch for epoch in range(15) if generator.survey_size(epoch)] == [0, 5, 10]
    assert generator.survey_size(0) == 99
    assert CrossImageGenerator(2, 6).survey_size(0) == 0
    with pytest.raises(NotImplementedError):
        Generator().study(make_survey(0, [1]), seed=0)


def test_gradient_flows_into_features_not_into_prototypes() -> None:
    survey, evidence = make_survey(0, COUNTS), evidence_of(2)
    survey.features.requires_grad_()
    generator = PrototypeGenerator(len(COUNTS), 6, size=4)
    generator.study(survey, seed=0)
    features = evidence.features.requires_grad_()
    generator(evidence).values.sum().backward()
    assert not list(generator.parameters())
    assert not generator.rows.requires_grad
    assert survey.features.grad is None
    assert features.grad is not None
    assert bool(features.grad.isfinite().all())
    assert bool((features.grad[:, 0].abs().sum(-1) > 0).all())
    assert not features.grad[:, 1].any()


def test_scores_are_float32_under_autocast() -> None:
    generator = PrototypeGenerator(len(COUNTS), 6, size=4)
    evidence = evidence_of(3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        generator.study(make_survey(0, COUNTS), seed=0)
        values = generator(evidence._replace(features=evidence.features.bfloat16())).values
    assert values.dtype == torch.float32
    exact = generator(evidence._replace(features=evidence.features.bfloat16().float())).values
    torch.testing.assert_close(values, exact)


def test_prototypes_survive_a_checkpoint() -> None:
    first, second = (PrototypeGenerator(len(COUNTS), 6, size=4) for _ in range(2))
    first.study(make_survey(0, COUNTS), seed=0)
    second.load_state_dict(first.state_dict())
    one, other = first(evidence_of(4)), second(evidence_of(4))
    assert torch.equal(one.values, other.values)
    assert torch.equal(one.informative, other.informative)


@pytest.mark.parametrize("option", ["size", "every", "samples"])
def test_impossible_options_are_refused(option: str) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        PrototypeGenerator(2, 3, **{option: 0})

"""The generators against plain loops, and the bank against queues."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from reference import scoring as reference
from satl.errors import ArrayError
from satl.functional import cross_image_scores, intra_image_scores, pseudo_labels
from satl.scoring import CrossImageGenerator, Generator, GeneratorInputs, IntraImageGenerator


def random_pairs(images: int, classes: int) -> Tensor:
    upper = torch.rand(images, classes, classes).triu(1)
    return upper + upper.transpose(1, 2) + torch.eye(classes)


PAIRS = torch.tensor([[1.0, 0.8, 0.2], [0.8, 1.0, 0.4], [0.2, 0.4, 1.0]])
BY_HAND = [
    # labels, without itself: scores and where they mean anything, with itself: scores
    ([1, 0, -1], [0.0, 0.8, 0.2], [False, True, True], [1.0, 0.8, 0.2]),
    ([1, 1, 0], [0.8, 0.8, 0.3], [True, True, True], [0.9, 0.9, 0.3]),
    ([1, 1, 1], [0.5, 0.6, 0.3], [True, True, True], [2.0 / 3, 2.2 / 3, 1.6 / 3]),
    ([0, -1, 0], [0.0, 0.0, 0.0], [False, False, False], [0.0, 0.0, 0.0]),
]


@pytest.mark.parametrize(("labels", "scores", "informative", "published"), BY_HAND)
def test_intra_image_scores_by_hand(
    labels: list[int], scores: list[float], informative: list[bool], published: list[float]
) -> None:
    pairs, marks = PAIRS.unsqueeze(0), torch.tensor([labels])
    values, where = intra_image_scores(pairs, marks)
    torch.testing.assert_close(values, torch.tensor([scores]))
    assert where.tolist() == [informative]
    values, where = intra_image_scores(pairs, marks, leave_one_out=False)
    torch.testing.assert_close(values, torch.tensor([published]))
    assert bool(where.all())


@pytest.mark.parametrize("leave_one_out", [True, False])
@pytest.mark.parametrize("classes", [1, 2, 6])
def test_intra_image_scores_equal_the_loops(leave_one_out: bool, classes: int) -> None:
    torch.manual_seed(classes)
    pairs, labels = random_pairs(9, classes), torch.randint(-1, 2, (9, classes))
    labels[0], labels[1] = 0, 1
    evidence = GeneratorInputs(torch.zeros(9, classes, 1), pairs, labels, torch.arange(9))
    values, informative = IntraImageGenerator(leave_one_out)(evidence)
    wanted, where = reference.intra_image(pairs, labels, leave_one_out)
    torch.testing.assert_close(values.double(), wanted, rtol=0, atol=1e-6)
    assert torch.equal(informative, where)
    assert float(values.min()) >= 0
    assert float(values.max()) <= 1


def test_intra_image_gradient_reaches_the_pairs_of_known_positives_only() -> None:
    pairs = random_pairs(1, 3).requires_grad_()
    values, _ = intra_image_scores(pairs, torch.tensor([[1, 0, -1]]))
    values.sum().backward()
    assert pairs.grad is not None
    assert pairs.grad[0].tolist() == [[0, 0, 0], [1, 0, 0], [1, 0, 0]]


def test_intra_image_needs_pairs() -> None:
    with pytest.raises(ValueError, match="pair branch"):
        IntraImageGenerator()(GeneratorInputs(torch.zeros(1, 2, 3), None, torch.zeros(1, 2), torch.zeros(1)))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8])
def test_intra_image_scores_refuse_labels_without_a_sign(dtype: torch.dtype) -> None:
    # An absent class would be 255 or true, which is present.
    with pytest.raises(ArrayError, match=f"must be of a signed type, got {dtype}"):
        intra_image_scores(random_pairs(1, 3), torch.tensor([[1, -1, 0]]).to(dtype))


@pytest.mark.parametrize("shape", [(4, 3), (4, 1, 1), (1, 3, 3), (4, 3, 1)])
def test_intra_image_scores_refuse_pairs_of_another_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"must be \(B, C, C\) .*symmetric_pairs"):
        intra_image_scores(torch.rand(shape), torch.ones(4, 3))


def test_mean_cosine_identity() -> None:
    torch.manual_seed(0)
    features, stored = torch.randn(5, 3, 8), torch.randn(3, 7, 8)
    bank = F.normalize(stored, dim=-1)
    values, informative = cross_image_scores(features, bank, torch.ones(3, 7, dtype=torch.bool))
    mean_vector = torch.einsum("bcd,cd->bc", F.normalize(features, dim=-1), bank.mean(1))
    torch.testing.assert_close(values, mean_vector, rtol=0, atol=1e-6)
    assert bool(informative.all())
    every = F.cosine_similarity(features.unsqueeze(2), stored.unsqueeze(0), dim=-1)
    torch.testing.assert_close(values, every.mean(-1), rtol=0, atol=1e-6)


def test_cross_image_masks_equal_the_loops() -> None:
    torch.manual_seed(1)
    features, stored = torch.randn(6, 4, 5), torch.randn(4, 3, 5)
    usable, owners, images = torch.rand(4, 3) < 0.6, torch.randint(0, 6, (4, 3)), torch.arange(6)
    usable[2] = False
    bank = reference.Bank(4, 3)
    for c, e in usable.nonzero().tolist():
        bank.queues[c].append((int(owners[c, e]), stored[c, e]))
    wanted, where = bank.scores(features, images)
    values, informative = cross_image_scores(features, F.normalize(stored, dim=-1), usable, owners, images)
    torch.testing.assert_close(values.double(), wanted, rtol=0, atol=1e-6)
    assert torch.equal(informative, where)
    assert not informative[:, 2].any()
    assert not values[:, 2].any()


@pytest.mark.parametrize("leave_one_out", [True, False])
def test_bank_equals_queues_over_many_batches(leave_one_out: bool) -> None:
    torch.manual_seed(2)
    size, classes = 5, 3
    generator = CrossImageGenerator(classes, feature_dim=4, size=size, leave_one_out=leave_one_out)
    bank = reference.Bank(classes, size, leave_one_out)
    shares = (0.0, 0.1, 0.5, 1.0)
    for step in range(40):
        images = torch.randperm(15)[: 1 + step % 9]  # images come back; up to 9 positives for 5 slots
        features = torch.randn(len(images), classes, 4)
        labels = torch.where(torch.rand(len(images), classes) < shares[step % 4], 1, step % 2 - 1)
        labels[:, 2] = labels[:, 2].clamp(max=0)  # a class without known positives
        evidence = GeneratorInputs(features, None, labels, images)
        values, informative = generator(evidence)
        wanted, where = bank.scores(features, images)
        torch.testing.assert_close(values.double(), wanted, rtol=0, atol=1e-5)
        assert torch.equal(informative, where)
        generator.remember(evidence)
        bank.remember(features, labels, images)
        assert_bank_holds(generator, bank)
    assert int(generator.written[:2].min()) > 4 * size
    assert int(generator.written[2]) == 0


def assert_bank_holds(generator: CrossImageGenerator, bank: reference.Bank) -> None:
    rows = generator.rows[:-1].view(len(bank.queues), generator.size, -1)
    owners = generator.owners[:-1].view(len(bank.queues), generator.size)
    for c, queue in enumerate(bank.queues):
        filled = [e for e in range(generator.size) if int(owners[c, e]) >= 0]
        assert len(filled) == len(queue)
        # The oldest entry is where the next one will be written, once the ring is full.
        start = int(generator.written[c]) % generator.size if len(queue) == generator.size else 0
        order = [(start + k) % generator.size for k in range(len(queue))]
        assert [int(owners[c, e]) for e in order] == [owner for owner, _ in queue]
        for e, (_, stored) in zip(order, queue, strict=True):
            torch.testing.assert_close(rows[c, e].double(), F.normalize(stored, dim=0), rtol=0, atol=1e-6)
    assert not generator.rows[-1].any()
    assert int(generator.owners[-1]) == -1


@pytest.mark.parametrize("wild", [torch.nan, torch.inf, -torch.inf])
def test_what_a_masked_slot_holds_has_no_say(wild: float) -> None:
    torch.manual_seed(7)
    features, bank = torch.randn(3, 2, 5), F.normalize(torch.randn(2, 4, 5), dim=-1)
    usable = torch.tensor([[True, False, True, True], [True, True, True, True]])
    owners, images = torch.tensor([[4, 5, 6, 0], [0, 4, 5, 6]]), torch.arange(3)
    wanted = cross_image_scores(features, bank, usable, owners, images)
    bank[0, 1], bank[0, 3, 2], bank[1, 0, 2] = wild, wild, wild  # empty, and what image 0 filled itself
    found = cross_image_scores(features, bank, usable, owners, images)
    assert torch.equal(found[0][0], wanted[0][0])
    assert torch.equal(found[1], wanted[1])


def test_cross_image_gradient_is_that_of_a_plain_mean() -> None:
    torch.manual_seed(8)
    features, bank = torch.randn(4, 2, 5, requires_grad=True), F.normalize(torch.randn(2, 3, 5), dim=-1)
    usable, owners = torch.tensor([[True, False, True], [False] * 3]), torch.tensor([[0, 1, 2], [3, 3, 3]])
    values, _ = cross_image_scores(features, bank, usable, owners, torch.arange(4))
    weights = torch.randn(4, 2)
    (slope,) = torch.autograd.grad((weights * values).sum(), features)
    total = torch.zeros((), dtype=torch.float64)
    for n in range(4):
        slots = [e for e in (0, 2) if int(owners[0, e]) != n]  # the second class has none
        unit = features[n, 0].double() / features[n, 0].double().norm()
        total = total + weights[n, 0] * sum(unit @ bank[0, e].double() for e in slots) / len(slots)
    (wanted,) = torch.autograd.grad(total, features)
    torch.testing.assert_close(slope, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wild", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("light", [False, True])
def test_features_that_are_not_finite_are_not_stored(wild: float, light: bool) -> None:
    torch.manual_seed(9)
    generator, spared = CrossImageGenerator(2, 3, size=4), CrossImageGenerator(2, 3, size=4)
    if light:
        generator.use_bfloat16_memory()
        spared.use_bfloat16_memory()
    for step in range(4):  # more than the ring holds
        features, labels, images = torch.randn(3, 2, 3), torch.ones(3, 2), torch.arange(3) + 3 * step
        without = labels.clone()
        without[1, 0] = 0
        spared.remember(GeneratorInputs(features, None, without, images))
        features[1, 0, 2] = wild
        generator.remember(GeneratorInputs(features, None, labels, images))
        for name, tensor in generator.state_dict().items():
            assert torch.equal(tensor, spared.state_dict()[name]), name
    scores = generator(GeneratorInputs(torch.randn(2, 2, 3), None, torch.zeros(2, 2), torch.tensor([90, 91])))
    assert bool(scores.values.isfinite().all())
    assert bool(scores.informative.all())


def test_a_bank_without_slots_is_refused() -> None:
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        CrossImageGenerator(2, 3, size=0)


def test_an_image_never_meets_itself() -> None:
    generator = CrossImageGenerator(1, feature_dim=2, size=4)
    features, labels = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]), torch.ones(2, 1)
    evidence = GeneratorInputs(features, None, labels, torch.tensor([7, 8]))
    assert not generator(evidence).informative.any()
    generator.remember(evidence)
    generator.remember(evidence)  # the same images in the next epoch
    scores = generator(evidence)
    assert scores.values.tolist() == [[0.0], [0.0]]
    assert bool(scores.informative.all())
    generator.leave_one_out = False
    assert generator(evidence).values.tolist() == [[0.5], [0.5]]


def test_gradient_flows_into_features_not_into_the_bank() -> None:
    torch.manual_seed(3)
    generator = CrossImageGenerator(2, feature_dim=3, size=4)
    labels, images = torch.tensor([[1, 1], [1, 0]]), torch.tensor([0, 1])
    first = torch.randn(2, 2, 3, requires_grad=True)
    generator.remember(GeneratorInputs(first, None, labels, images))
    assert not generator.rows.requires_grad
    features = torch.randn(2, 2, 3, requires_grad=True)
    generator(GeneratorInputs(features, None, labels, torch.tensor([2, 3]))).values.sum().backward()
    assert first.grad is None
    assert features.grad is not None
    assert bool(features.grad.isfinite().all())
    assert bool((features.grad.abs().sum(-1) > 0).all())


def test_equal_features_do_not_pass_a_threshold_of_one() -> None:
    torch.manual_seed(4)
    features = torch.randn(500, 1, 64)
    generator = CrossImageGenerator(1, feature_dim=64, size=1)
    for n in range(0, 500, 50):
        one = features[n : n + 1]
        generator.remember(GeneratorInputs(one, None, torch.ones(1, 1), torch.tensor([n])))
        values = generator(GeneratorInputs(one, None, torch.zeros(1, 1), torch.tensor([n + 1]))).values
        assert float(values) == pytest.approx(1.0, abs=1e-6)
        assert not pseudo_labels(values, torch.zeros(1, 1), torch.ones(1)).any()


@pytest.mark.parametrize("make", [lambda: CrossImageGenerator(3, 8, size=4), IntraImageGenerator])
def test_scores_are_float32_under_autocast(make: type[Generator]) -> None:
    torch.manual_seed(5)
    generator = make()
    features, pairs = torch.randn(4, 3, 8).bfloat16(), random_pairs(4, 3).bfloat16()
    labels = torch.tensor([[1, 1, 0]] * 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        generator.remember(GeneratorInputs(features, pairs, labels, torch.arange(4)))
        evidence = GeneratorInputs(features, pairs, labels, torch.arange(4, 8))
        values = generator(evidence).values
    assert values.dtype == torch.float32
    exact = generator(GeneratorInputs(features.float(), pairs.float(), labels, torch.arange(4, 8))).values
    torch.testing.assert_close(values, exact)


def test_bank_survives_a_checkpoint() -> None:
    torch.manual_seed(6)
    first, second = CrossImageGenerator(2, 3, size=4), CrossImageGenerator(2, 3, size=4)
    evidence = GeneratorInputs(torch.randn(3, 2, 3), None, torch.ones(3, 2), torch.arange(3))
    first.remember(evidence)
    second.load_state_dict(first.state_dict())
    for generator in (first, second):
        generator.remember(evidence)
    assert all(
        torch.equal(a, b)
        for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    )


def test_a_light_bank_takes_half_the_memory_and_scores_the_same_within_rounding() -> None:
    torch.manual_seed(5)
    exact, light = CrossImageGenerator(3, 32, size=4), CrossImageGenerator(3, 32, size=4)
    light.use_bfloat16_memory()
    for batch in range(4):
        features, labels = torch.randn(6, 3, 32), torch.randint(-1, 2, (6, 3))
        evidence = GeneratorInputs(features, None, labels, torch.arange(6) + 6 * batch)
        torch.testing.assert_close(light(evidence), exact(evidence), atol=2**-8, rtol=0)
        exact.remember(evidence)
        light.remember(evidence)
    assert 2 * light.rows.nbytes == exact.rows.nbytes
    torch.testing.assert_close(light.rows.float(), exact.rows, atol=2**-9, rtol=2**-8)
    again = CrossImageGenerator(3, 32, size=4)
    again.load_state_dict(light.state_dict())  # a run in another precision reads it
    torch.testing.assert_close(again(evidence), light(evidence))


def test_a_generator_must_say_how_it_scores() -> None:
    with pytest.raises(NotImplementedError):
        Generator()(GeneratorInputs(torch.zeros(1, 1, 1), None, torch.zeros(1, 1), torch.zeros(1)))


@pytest.mark.parametrize("leave_one_out", [True, False])
def test_one_feature_for_all_classes_is_scored_and_stored_alike(leave_one_out: bool) -> None:
    """The short way for features that all classes share gives the scores, gradients and banks of the long one."""
    draw = torch.Generator().manual_seed(0)
    kinds = [CrossImageGenerator(3, 5, 4, leave_one_out, shared) for shared in (False, True)]
    for step in range(6):
        vectors = torch.randn(6, 5, generator=draw)
        if step == 4:
            vectors[0] = torch.nan  # such a feature is not stored
        labels = torch.randint(-1, 2, (6, 3), generator=draw)
        labels[:, 2] = 0 if step < 2 else labels[:, 2]  # a class with an empty bank at first
        images = torch.randperm(9, generator=draw)[:6]  # most of them stored something before
        found, gradients = [], []
        for generator in kinds:
            leaf = vectors.clone().requires_grad_()
            features = leaf[:, None].expand(-1, 3, -1)
            inputs = GeneratorInputs(features, None, labels, images, None, None)
            scores = generator(inputs)
            found.append(scores)
            (scores.values * torch.arange(1.0, 4.0)).nan_to_num().sum().backward()
            gradients.append(leaf.grad)
            generator.remember(inputs)
        torch.testing.assert_close(found[1].values, found[0].values, atol=2e-6, rtol=0, equal_nan=True)
        assert torch.equal(found[0].informative, found[1].informative)
        torch.testing.assert_close(*gradients, atol=2e-6, rtol=0, equal_nan=True)
        for name, buffer in kinds[0].named_buffers():
            torch.testing.assert_close(kinds[1].get_buffer(name), buffer, msg=name)
    assert int(kinds[0].written.min()) > 4

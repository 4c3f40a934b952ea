"""The zero-shot generator against plain loops, at its edges, and what it keeps."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from reference import scoring as reference
from satl.errors import ArrayError
from satl.functional import text_scores, text_statistics
from satl.scoring import GeneratorInputs, TextGenerator
from satl.scoring.text import text_similarity
from satl.thresholds import SemanticAwareThreshold


def drawn(classes: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Vectors of pictures around a common direction, as those of a tower are, one of them zero, and prompts."""
    noise = torch.Generator().manual_seed(classes)
    pictures = 3.0 + torch.randn(40, 16, generator=noise)
    pictures[7] = 0.0
    return pictures.to(dtype), 1.0 + torch.randn(classes, 16, generator=noise)


def generator_inputs(vectors: Tensor | None, images: int, classes: int) -> GeneratorInputs:
    labels = torch.zeros(images, classes, dtype=torch.int8)
    return GeneratorInputs(
        torch.zeros(images, classes, 1), None, labels, torch.arange(images), vectors=vectors
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("classes", [1, 5])
def test_scores_equal_the_loops(classes: int, dtype: torch.dtype) -> None:
    pictures, prompts = drawn(classes, dtype)
    training = pictures[:30]
    mean, deviation = text_statistics(training.split(7), prompts)
    scores, informative = text_scores(pictures, prompts, mean, deviation)
    wanted, where = reference.text_scores(pictures, training, prompts)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores.double(), wanted, rtol=1e-4, atol=1e-5)
    assert torch.equal(informative, where)
    assert not bool(informative[7].any())
    assert bool(informative[8].all())


def test_length_of_prompts_and_of_pictures_means_nothing() -> None:
    pictures, prompts = drawn(3)
    statistics = text_statistics([pictures], prompts)
    longer = text_statistics([pictures * 100.0], prompts * 0.01)
    torch.testing.assert_close(longer, statistics)
    torch.testing.assert_close(
        text_scores(pictures * 100.0, prompts * 0.01, *longer), text_scores(pictures, prompts, *statistics)
    )


def test_a_class_whose_cosines_do_not_differ_says_nothing() -> None:
    prompts = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    pictures = torch.tensor([[1.0, 2.0]]).expand(5, 2)
    mean, deviation = text_statistics([pictures], prompts)
    scores, informative = text_scores(torch.tensor([[0.3, 0.9]]), prompts, mean, deviation)
    assert not bool(informative.any())
    assert scores.tolist() == [[0.5, 0.5]]
    for nothing in ([], [torch.zeros(4, 2)]):
        mean, deviation = text_statistics(nothing, prompts)
        assert mean.tolist() == deviation.tolist() == [0.0, 0.0]


def test_extreme_pictures_stay_between_0_and_1_and_pass_no_threshold_of_1() -> None:
    pictures = torch.cat([torch.tensor([[0.0, 1.0]]).expand(10_000, 2), torch.tensor([[1.0, 0.0]])])
    prompts = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    generator = TextGenerator(num_classes=2)
    generator.keep(prompts, *text_statistics([pictures], prompts))
    scores, _ = generator(generator_inputs(pictures, len(pictures), 2))
    assert float(scores.min()) >= 0
    assert float(scores.max()) <= 1
    rule = SemanticAwareThreshold(num_classes=2)
    labels = torch.zeros_like(scores, dtype=torch.int8)
    assert not bool(rule.pseudo_labels(scores, labels).any())


def test_thresholds_are_learned_from_its_scores_as_from_any_others() -> None:
    noise = torch.Generator().manual_seed(0)
    prompts = torch.eye(2, 8)
    present = torch.rand(400, 2, generator=noise) < 0.3
    pictures = torch.ones(400, 8) + 2.0 * present @ prompts + 0.2 * torch.randn(400, 8, generator=noise)
    generator = TextGenerator(num_classes=2)
    generator.keep(prompts, *text_statistics([pictures], prompts))
    scores, informative = generator(generator_inputs(pictures, 400, 2))
    assert bool(informative.all())
    known = torch.rand(400, 2, generator=noise) < 0.3
    labels = torch.where(known, torch.where(present, 1, -1), 0)
    rule = SemanticAwareThreshold(num_classes=2, rate=1.0)
    rule.observe(scores, labels)
    rule.update()
    filled = (rule.pseudo_labels(scores, labels) > 0) & ~known
    right = (filled & present).sum() / filled.sum()
    assert float(right) > 0.99
    assert float((filled & present).sum() / (present & ~known).sum()) > 0.8


def test_it_computes_in_full_precision_under_autocast() -> None:
    pictures, prompts = drawn(4)
    with torch.autocast("cpu", torch.bfloat16):
        found = text_similarity(pictures, prompts)
    torch.testing.assert_close(found, text_similarity(pictures, prompts), rtol=0, atol=0)


def test_what_it_keeps_is_loaded_by_a_generator_that_has_seen_nothing() -> None:
    pictures, prompts = drawn(3)
    generator = TextGenerator(num_classes=3)
    assert generator.empty
    generator.keep(prompts, *text_statistics([pictures], prompts))
    other = TextGenerator(num_classes=3)
    other.load_state_dict(generator.state_dict())
    assert not other.empty
    evidence = generator_inputs(pictures, len(pictures), 3)
    assert torch.equal(other(evidence).values, generator(evidence).values)
    with pytest.raises(RuntimeError, match="size mismatch"):
        TextGenerator(num_classes=4).load_state_dict(generator.state_dict())


def test_without_vectors_or_prompts_it_says_what_it_needs() -> None:
    pictures, prompts = drawn(3)
    generator = TextGenerator(num_classes=3)
    with pytest.raises(ValueError, match="needs the vectors of the pictures"):
        generator(generator_inputs(pictures, len(pictures), 3))
    generator.keep(prompts, *text_statistics([pictures], prompts))
    with pytest.raises(ValueError, match="needs the vectors of the pictures"):
        generator(generator_inputs(None, len(pictures), 3))
    with pytest.raises(ArrayError, match=r"vectors of one size, got \(40, 16\) and \(3, 4\)"):
        text_similarity(pictures, torch.ones(3, 4))

"""The layer behind the backbone can start from principal components, which keep what the backbone knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from satl.errors import RunError
from satl.images import Batches
from satl.models.class_network import SemanticNetwork
from satl.models.functional import cooccurrence_graph
from satl.runs.data import load_data
from satl.training import reduction
from satl.training.reduction import (
    MapMoments,
    give_components,
    images_to_begin_with,
    map_moments,
    start_from_components,
)
from training.tiny import KillAt, Killed, assert_same_run, resume, tiny_config, train


class Map(nn.Module):
    """A backbone whose map is what comes in."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, images: Tensor) -> Tensor:
        return images


def network_of(channels: int, feature_dim: int) -> SemanticNetwork:
    graph = cooccurrence_graph(np.ones((2, 3), dtype=np.int8), encoding="signed")
    return SemanticNetwork(3, Map(channels), graph, feature_dim=feature_dim, attention_dim=4).eval()


def moments_of(maps: Tensor) -> tuple[MapMoments, Tensor]:
    """Plainly: mean and covariance of the vectors (n, E) at all places of maps (B, E, h, w)."""
    vectors = maps.double().movedim(1, -1).reshape(-1, maps.shape[1])
    mean = vectors.mean(0)
    return MapMoments(mean, (vectors - mean).T @ (vectors - mean) / len(vectors)), vectors


def skewed_maps(channels: int, rank: int | None = None) -> Tensor:
    """Maps (40, channels, 3, 3), not negative, a few directions of which vary most."""
    generator = torch.Generator().manual_seed(3)
    inner = torch.rand(40, rank or channels, 3, 3, generator=generator)
    weights = torch.rand(channels, rank or channels, generator=generator)
    weights *= torch.logspace(0, -2, rank or channels)
    return torch.einsum("er,brhw->behw", weights, inner)


def test_with_as_many_outputs_as_channels_all_lengths_and_angles_are_kept() -> None:
    maps = skewed_maps(12)
    moments, vectors = moments_of(maps)
    network = network_of(12, 12)
    give_components(network, moments)
    found = network.reduction(maps).movedim(1, -1).reshape(-1, 12)
    torch.testing.assert_close(found @ found.T, (vectors @ vectors.T).float(), rtol=1e-4, atol=1e-4)


def test_fewer_outputs_are_the_projection_onto_the_first_components_and_a_factor() -> None:
    maps = skewed_maps(12)
    moments, vectors = moments_of(maps)
    network = network_of(12, 5)
    give_components(network, moments)
    found = network.reduction(maps).movedim(1, -1).reshape(-1, 5).detach().double()
    variances, basis = np.linalg.eigh(moments.covariance.numpy())
    kept = torch.from_numpy(basis[:, np.argsort(-variances)[:5]].copy())
    projected = vectors @ kept
    factor = (vectors.square().mean() / projected.square().mean()).sqrt()
    torch.testing.assert_close(found @ found.T, factor**2 * projected @ projected.T, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.square().mean(), vectors.square().mean(), rtol=1e-4, atol=0)


def test_while_it_is_trained_batches_like_the_images_give_the_same() -> None:
    maps = skewed_maps(12)
    network = network_of(12, 5)
    give_components(network, moments_of(maps)[0])
    expected = network.reduction(maps)
    torch.testing.assert_close(network.train().reduction(maps), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("channels", "rank", "outputs"), [(12, 4, 9), (6, None, 9)])
def test_outputs_without_a_component_stay_random(channels: int, rank: int | None, outputs: int) -> None:
    maps = skewed_maps(channels, rank)
    network = network_of(channels, outputs)
    useful = channels if rank is None else rank
    before = [value.clone() for value in network.reduction.state_dict().values()]
    give_components(network, moments_of(maps)[0])
    for old, new in zip(before, network.reduction.state_dict().values(), strict=True):
        if old.ndim:
            assert torch.equal(old[useful:], new[useful:])
            assert not torch.equal(old[:useful], new[:useful])
    assert network.reduction(maps).isfinite().all()


def test_without_a_reduction_nothing_happens() -> None:
    graph = torch.eye(3)
    network = SemanticNetwork(3, Map(6), graph, feature_dim=None, attention_dim=4)
    before = [value.clone() for value in network.state_dict().values()]
    give_components(network, moments_of(skewed_maps(6))[0])
    assert all(torch.equal(*pair) for pair in zip(before, network.state_dict().values(), strict=True))


def test_no_image_is_read_where_nothing_is_reduced() -> None:
    network = SemanticNetwork(3, Map(3), torch.eye(3), feature_dim=None, attention_dim=4)
    data = load_data(tiny_config())
    batches = Batches(data.source, data.rows("train"), batch_size=6, workers=0)
    start_from_components([network], batches, lambda images: pytest.fail("an image was read"), None)


class OfApple(Tensor):
    """A tensor of a device that has no double precision; elsewhere it is a plain one."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.cpu:
            return args[0].as_subclass(Tensor)
        wide = any(value is torch.float64 for value in (*args, *(kwargs or {}).values()))
        if func is Tensor.double or wide:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_device_needs_no_double_precision() -> None:
    maps = skewed_maps(12)
    moments, _ = moments_of(maps)
    found, expected = network_of(12, 5), network_of(12, 5)
    for network, values in (
        (expected, [part.float() for part in moments]),
        (found, [part.float().as_subclass(OfApple) for part in moments]),
    ):
        network.load_state_dict(expected.state_dict())
        give_components(network, MapMoments(*values))
    torch.testing.assert_close(found.reduction(maps), expected.reduction(maps))
    assert not torch.equal(network_of(12, 5).reduction(maps), expected.reduction(maps))


def test_a_backbone_whose_numbers_are_not_finite_is_told_in_a_sentence() -> None:
    moments, _ = moments_of(skewed_maps(12) * float("inf"))
    with pytest.raises(RunError, match=r"^model\.reduction: the backbone makes numbers .* not finite"):
        give_components(network_of(12, 5), moments)


def test_all_processes_take_the_components_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    moments, _ = moments_of(skewed_maps(12))
    asked: list[Tensor] = []

    def of_another(tensor: Tensor) -> Tensor:
        asked.append(tensor)
        return -tensor if tensor.ndim == 2 else tensor

    own, others = network_of(12, 5), network_of(12, 5)
    give_components(own, moments)
    monkeypatch.setattr(reduction, "of_first_process", of_another)
    give_components(others, moments)
    torch.testing.assert_close(others.reduction[0].weight, -own.reduction[0].weight)
    assert [tensor.shape for tensor in asked] == [(12, 12), (12,)]


def test_the_moments_are_those_of_the_maps_without_augmentation() -> None:
    config = tiny_config()
    data = load_data(config)
    rows = data.rows("train")[:20]
    batches = Batches(data.source, rows, batch_size=6, workers=0)
    pixels = torch.cat([batch.images for batch in batches.epoch(0)]).float()
    expected, _ = moments_of(pixels)
    found = map_moments(Map(3), batches, lambda images: images.float(), torch.device("cpu"))
    torch.testing.assert_close(found.mean, expected.mean)
    torch.testing.assert_close(found.covariance, expected.covariance, rtol=1e-9, atol=1e-9)


def test_of_many_images_the_same_few_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction, "MOST_IMAGES", 10)
    rows = np.arange(100) * 2
    chosen = images_to_begin_with(rows)
    assert len(set(chosen)) == 10
    assert set(chosen) <= set(rows)
    assert np.array_equal(chosen, images_to_begin_with(rows))
    assert np.array_equal(images_to_begin_with(rows[:7]), rows[:7])


START = "model.reduction=components"


@pytest.mark.parametrize("method", ["sst+satl", "satl+", "ml-gcn"])
def test_a_run_starts_from_components_and_resumes_to_the_same_bits(tmp_path: Path, method: str) -> None:
    config = tiny_config(
        START, f"method.name={method}", "model.feature_dim=12", "training.checkpoint_steps=2"
    )
    whole = train(tmp_path / "whole", config)
    with pytest.raises(Killed):
        train(tmp_path / "killed", config, KillAt(0, 3))
    resume(tmp_path / "killed")
    assert_same_run(tmp_path / "whole", tmp_path / "killed")
    plain = train(tmp_path / "plain", tiny_config(f"method.name={method}", "model.feature_dim=12"))
    differs = any(
        not torch.equal(one, other)
        for one, other in zip(
            whole.learner.network.state_dict().values(),
            plain.learner.network.state_dict().values(),
            strict=True,
        )
    )
    assert differs == (method != "ml-gcn")  # which has no reduction

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as tv

from reference.images import crop_resize_flip, normalise, resize_matrix
from satl.images import IMAGENET_MEAN, IMAGENET_STD, EvalTransform, TrainAugment
from satl.images.augment import (
    Crops,
    default_crop_sizes,
    jitter_colours,
    random_crops,
    resample,
    resize_matrices,
)

GREY_LEVELS = 1.5  # Pillow rounds to whole levels twice, once in each direction
STD = torch.tensor(IMAGENET_STD)[:, None, None]
MEAN = torch.tensor(IMAGENET_MEAN)[:, None, None]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(num: int, size: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (num, 3, size, size), dtype=torch.uint8, generator=generator(seed))


def channels_last(images: torch.Tensor) -> np.ndarray:
    return images.permute(0, 2, 3, 1).contiguous().numpy()


def boxes(crops: Crops, augment: TrainAugment) -> list[list[int]]:
    """Top, left and side of every crop."""
    return torch.stack([crops.top, crops.left, augment.crop_sizes[crops.kind]], dim=1).tolist()


def grey(normalised: torch.Tensor) -> torch.Tensor:
    return (normalised.float() * STD + MEAN) * 255


@settings(max_examples=60, deadline=None)
@given(data=st.data(), input_size=st.integers(1, 24), output_size=st.integers(1, 24))
def test_matrices_equal_the_reference(data: st.DataObject, input_size: int, output_size: int) -> None:
    lengths = data.draw(st.lists(st.integers(1, input_size), min_size=1, max_size=3))
    ours = resize_matrices(torch.tensor(lengths), input_size, output_size)
    assert ours.dtype == torch.float32
    for matrix, length in zip(ours.numpy(), lengths, strict=True):
        expected = resize_matrix(length, input_size, output_size)
        np.testing.assert_allclose(matrix, expected, rtol=0, atol=5e-6)


@pytest.mark.parametrize(("input_size", "output_size"), [(64, 56), (64, 20), (40, 64), (33, 33)])
def test_crops_equal_pillow(input_size: int, output_size: int) -> None:
    images = noise(16, input_size)
    augment = TrainAugment(input_size, output_size)
    crops = random_crops(16, input_size, augment.crop_sizes, generator(1))
    ours = augment.crop(images, crops)
    assert ours.dtype == torch.float32
    for b, image in enumerate(channels_last(images)):
        expected = crop_resize_flip(image, *boxes(crops, augment)[b], output_size, bool(crops.flip[b]))
        difference = np.abs(ours[b].permute(1, 2, 0).numpy() - expected)
        assert difference.max() < GREY_LEVELS
        assert difference.mean() < 0.4


def test_published_size_equals_pillow() -> None:
    images = noise(5, 512)
    augment = TrainAugment(512, 448)
    room = 512 - augment.crop_sizes
    crops = Crops(room // 2, room // 3, torch.arange(5), torch.arange(5) % 2 == 1)
    ours = augment.crop(images, crops)
    for b, image in enumerate(channels_last(images)):
        expected = crop_resize_flip(image, *boxes(crops, augment)[b], 448, bool(crops.flip[b]))
        assert np.abs(ours[b].permute(1, 2, 0).numpy() - expected).max() < GREY_LEVELS


def test_whole_call_equals_the_pipeline_one_image_at_a_time() -> None:
    images = noise(12, 48)
    augment = TrainAugment(48, 40)
    ours = augment(images, generator(5))
    crops = random_crops(12, 48, torch.tensor(default_crop_sizes(48)), generator(5))
    assert 0 < crops.flip.sum() < 12
    for b, image in enumerate(channels_last(images)):
        expected = crop_resize_flip(image, *boxes(crops, augment)[b], 40, bool(crops.flip[b]))
        expected = normalise(expected, IMAGENET_MEAN, IMAGENET_STD)
        assert np.abs(ours[b].numpy() - expected).max() < GREY_LEVELS / 255 / min(IMAGENET_STD)


@pytest.mark.parametrize("output_size", [24, 40, 90])
def test_resize_equals_torchvision(output_size: int) -> None:
    # A gentle picture, because torchvision does not clamp between the two directions.
    images = (noise(3, 60).float() / 2 + 64).to(torch.uint8)
    expected = tv.resize(
        images.float(), [output_size, output_size], interpolation=InterpolationMode.BICUBIC, antialias=True
    )
    ours = grey(EvalTransform(output_size)(images))
    assert (ours - expected).abs().max() < 0.05


def test_flip_is_exact() -> None:
    images = noise(4, 32)
    augment = TrainAugment(32, 24)
    where = [torch.tensor([0, 3, 5, 8]), torch.tensor([0, 4, 2, 16]), torch.tensor([0, 1, 2, 4])]
    plain = augment.crop(images, Crops(*where, torch.zeros(4, dtype=torch.bool)))
    flipped = augment.crop(images, Crops(*where, torch.ones(4, dtype=torch.bool)))
    assert torch.equal(flipped, plain.flip(3))


def test_crop_of_the_output_size_only_copies() -> None:
    images = noise(2, 16)
    augment = TrainAugment(16, 8, [8])
    crops = Crops(torch.tensor([3, 0]), torch.tensor([5, 8]), torch.zeros(2).long(), torch.zeros(2).bool())
    expected = torch.stack([images[0, :, 3:11, 5:13], images[1, :, 0:8, 8:16]]).float()
    assert torch.equal(augment.crop(images, crops), expected)


def test_crops_are_distributed_as_published() -> None:
    num = 50_000
    sizes = torch.tensor([512, 448, 384, 320, 256])
    top, left, kind, flip = random_crops(num, 512, sizes, generator())
    length = sizes[kind]
    for size in sizes.tolist():
        share = (length == size).float().mean().item()
        assert abs(share - 0.2) < 0.01
    assert abs(flip.float().mean().item() - 0.5) < 0.01
    for start in (top, left):
        assert (start >= 0).all()
        assert (start + length <= 512).all()
        small = start[length == 256]
        # Uniform on 0..256: both ends are reached, mean 128, standard deviation 74.2.
        assert small.min() == 0
        assert small.max() == 256
        assert abs(small.float().mean().item() - 128) < 3
        assert abs(small.float().std().item() - 74.2) < 2
    # Positions depend on the size, which limits them, and on nothing else.
    small = length == 256
    together = torch.stack([top[small], left[small], flip[small].long()]).float()
    assert (torch.corrcoef(together) - torch.eye(3)).abs().max() < 0.04
    assert torch.corrcoef(torch.stack([length, flip.long()]).float())[0, 1].abs() < 0.02


def test_default_crop_sizes() -> None:
    assert default_crop_sizes(512) == (512, 448, 384, 320, 256)
    assert default_crop_sizes(640) == (640, 576, 512, 448, 384, 320)
    assert default_crop_sizes(1) == (1, 1, 1, 1, 1)
    assert TrainAugment(64, 56).crop_sizes.tolist() == [64, 56, 48, 40, 32]
    assert TrainAugment(64, 56, [50, 40]).crop_sizes.tolist() == [50, 40]


def test_flip_can_be_switched_off_without_changing_the_crops() -> None:
    sizes = torch.tensor(default_crop_sizes(64))
    without = random_crops(100, 64, sizes, generator(), flip=False)
    with_flip = random_crops(100, 64, sizes, generator())
    assert not without.flip.any()
    for ours, theirs in zip(without[:3], with_flip[:3], strict=True):
        assert torch.equal(ours, theirs)
    images = noise(100, 16)
    crops = random_crops(100, 16, torch.tensor(default_crop_sizes(16)), generator(), flip=False)
    augment = TrainAugment(16, 16, flip=False)
    torch.testing.assert_close(augment(images, generator()), augment.normalise(augment.crop(images, crops)))


@pytest.mark.parametrize("jitter", [0.0, 0.4])
def test_same_seed_same_output_and_no_global_state(jitter: float) -> None:
    images = noise(8, 32)
    augment = TrainAugment(32, 28, jitter=jitter)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = augment(images, generator(3))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    assert torch.equal(first, augment(images, generator(3)))
    assert not torch.equal(first, augment(images, generator(4)))
    running = generator(3)
    assert not torch.equal(augment(images, running), augment(images, running))


@pytest.mark.parametrize("jitter", [0.0, 0.4])
def test_shares_of_a_global_batch_are_augmented_as_the_whole(jitter: float) -> None:
    images = noise(7, 32)
    augment = TrainAugment(32, 28, jitter=jitter)
    whole = augment(images, generator(3))
    parts = [augment(images[a:b], generator(3), first=a, total=7) for a, b in ((0, 2), (2, 4), (4, 7))]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=1e-5)


def test_empty_batch() -> None:
    images = noise(0, 32)
    assert TrainAugment(32, 28)(images, generator()).shape == (0, 3, 28, 28)
    assert EvalTransform(28)(images).shape == (0, 3, 28, 28)


def test_eval_of_equal_size_only_normalises() -> None:
    images = noise(3, 20)
    ours = EvalTransform(20)(images)
    expected = torch.stack(
        [torch.from_numpy(normalise(image, IMAGENET_MEAN, IMAGENET_STD)) for image in channels_last(images)]
    )
    torch.testing.assert_close(ours.double(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("output_size", [28, 70])
def test_eval_equals_pillow(output_size: int) -> None:
    images = noise(3, 50)
    ours = grey(EvalTransform(output_size)(images)).permute(0, 2, 3, 1).numpy()
    for b, image in enumerate(channels_last(images)):
        resized = Image.fromarray(image).resize((output_size, output_size), Image.Resampling.BICUBIC)
        assert np.abs(ours[b] - np.asarray(resized)).max() < GREY_LEVELS


def test_mean_and_std() -> None:
    images = torch.full((1, 3, 4, 4), 51, dtype=torch.uint8)
    result = EvalTransform(4, mean=(0.0, 0.1, 0.2), std=(1.0, 0.5, 0.25))(images)
    torch.testing.assert_close(result[0, :, 0, 0], torch.tensor([0.2, 0.2, 0.0]))


@pytest.mark.parametrize("make", [lambda **o: TrainAugment(48, 40, **o), lambda **o: EvalTransform(40, **o)])
def test_bfloat16_stays_close(make: Callable[..., torch.nn.Module]) -> None:
    images = noise(4, 48)
    arguments = (generator(2),) if isinstance(make(), TrainAugment) else ()
    exact = make()(images, *arguments)
    arguments = (generator(2),) if arguments else ()
    rough = make(dtype=torch.bfloat16)(images, *arguments)
    assert rough.dtype == torch.bfloat16
    difference = (grey(rough) - grey(exact)).abs()
    assert difference.mean() < 1
    assert difference.max() < 6


def test_autocast_does_not_lower_the_precision() -> None:
    images = noise(4, 48)
    augment, evaluate = TrainAugment(48, 40), EvalTransform(40)
    expected = augment(images, generator()), evaluate(images)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours = augment(images, generator()), evaluate(images)
    for one, other in zip(ours, expected, strict=True):
        assert torch.equal(one, other)


class ForbidWaiting(TorchDispatchMode):
    """Fails on every operation for which a host would have to wait for its device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name()
        waits = (
            "_local_scalar_dense",
            "nonzero",
            "masked_select",
            "unique",
            "aten::equal",
            "is_nonzero",
            "item",
        )
        if any(word in name for word in waits):
            raise AssertionError(f"{name} waits for the device")
        if "index" in name and any(isinstance(a, list | tuple) and _has_mask(a) for a in args):
            raise AssertionError(f"{name} with a mask waits for the device")
        return func(*args, **(kwargs or {}))


def _has_mask(indices: Any) -> bool:
    return any(isinstance(index, torch.Tensor) and index.dtype == torch.bool for index in indices)


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.sum().item(),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: float(x[0]),
        lambda x: bool(x.sum() > 0),
    ],
)
def test_the_watch_sees_waiting(wait: Callable[[torch.Tensor], Any]) -> None:
    with ForbidWaiting(), pytest.raises(AssertionError, match="waits for the device"):
        wait(torch.ones(3))


def test_nothing_waits_for_the_device() -> None:
    images = noise(4, 32)
    draws = generator()
    with ForbidWaiting():
        TrainAugment(32, 28, jitter=0.3)(images, draws)
        TrainAugment(32, 28, dtype=torch.bfloat16)(images, draws, first=2, total=9)
        EvalTransform(28)(images)
        EvalTransform(32)(images)


def test_jitter_equals_torchvision() -> None:
    images = noise(5, 12).float()
    brightness, contrast, saturation = torch.rand((3, 5), generator=generator()) * 1.2 + 0.4
    ours = jitter_colours(images, brightness, contrast, saturation)
    for b in range(5):
        expected = tv.adjust_brightness(images[b] / 255, brightness[b].item())
        expected = tv.adjust_contrast(expected, contrast[b].item())
        expected = tv.adjust_saturation(expected, saturation[b].item())
        # torchvision writes the luminance weight of red as 0.2989.
        assert (ours[b] - 255 * expected).abs().max() < 0.1


def test_jitter_of_one_changes_nothing_and_zero_is_off() -> None:
    images = noise(3, 12).float()
    one = torch.ones(3)
    torch.testing.assert_close(jitter_colours(images, one, one, one), images)
    plain, jittered = TrainAugment(16, 16), TrainAugment(16, 16, jitter=0.5)
    pixels = noise(64, 16)
    before, after = grey(plain(pixels, generator())), grey(jittered(pixels, generator()))
    assert after.min() > -0.01
    assert after.max() < 255.01
    ratio = after.mean(dim=(1, 2, 3)) / before.mean(dim=(1, 2, 3))
    assert ratio.min() < 0.75
    assert ratio.max() > 1.25


def test_resample_with_different_height_and_width() -> None:
    # A gentle picture, because Pillow may take the vertical direction first and clamp in between.
    images = (noise(2, 20)[:, :, :12].float() / 2 + 64).to(torch.uint8)
    rows = resize_matrices(torch.tensor([12]), 12, 6)
    columns = resize_matrices(torch.tensor([20]), 20, 30)
    ours = resample(images, rows, columns)
    assert ours.shape == (2, 3, 6, 30)
    for b, image in enumerate(channels_last(images)):
        expected = np.asarray(Image.fromarray(image).resize((30, 6), Image.Resampling.BICUBIC))
        assert np.abs(ours[b].permute(1, 2, 0).numpy() - expected).max() < GREY_LEVELS


def test_pixels_of_a_flat_image_stay_flat() -> None:
    images = torch.arange(0, 256, 5, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 32, 32)
    result = grey(TrainAugment(32, 28)(images, generator()))
    torch.testing.assert_close(result, images[:, :, :28, :28].float(), rtol=0, atol=1e-3)


def test_no_state_is_saved_and_nothing_is_trained() -> None:
    augment = TrainAugment(32, 28)
    assert augment.state_dict() == {}
    assert list(augment.parameters()) == []
    assert not augment(noise(1, 32), generator()).requires_grad


def test_wrong_arguments() -> None:
    for sizes in ([], [0], [65]):
        with pytest.raises(ValueError, match="crop_sizes"):
            TrainAugment(64, 56, sizes)
    with pytest.raises(ValueError, match="jitter"):
        TrainAugment(64, 56, jitter=1.5)
    with pytest.raises(ValueError, match=r"\(B, 3, 64, 64\), not \(2, 3, 32, 32\)"):
        TrainAugment(64, 56)(noise(2, 32), generator())
    with pytest.raises(ValueError, match="of a batch of 3"):
        TrainAugment(32, 28)(noise(2, 32), generator(), first=2, total=3)

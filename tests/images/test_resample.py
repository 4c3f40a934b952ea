from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as tv

from reference.images import (
    boxes,
    channels_last,
    crop_resize_flip,
    generator,
    grey,
    noise,
    pictures,
    resample_in_half,
    resize_matrix,
)
from satl.images import EvalTransform, TrainAugment
from satl.images.augment import (
    Crops,
    default_crop_sizes,
    random_crops,
)
from satl.images.resample import byte_matrix, crop_matrices, resample, resize_matrices, shift_matrices

GREY_LEVELS = 1.5  # Pillow rounds to whole levels twice, once in each direction, and products do not
# torch has weights of 16 bits, Pillow of 22: a level more or less, and in a few pixels of a million once in
# each direction.
TWICE = 2
SMALL, LARGE = (32, 28), (96, 84)  # sizes that a CPU does by products and by bytes


@settings(max_examples=60, deadline=None)
@given(data=st.data(), input_size=st.integers(1, 24), output_size=st.integers(1, 24))
def test_matrices_equal_the_reference(data: st.DataObject, input_size: int, output_size: int) -> None:
    lengths = data.draw(st.lists(st.integers(1, input_size), min_size=1, max_size=3))
    ours = resize_matrices(torch.tensor(lengths), input_size, output_size)
    assert ours.dtype == torch.float32
    for matrix, length in zip(ours.numpy(), lengths, strict=True):
        expected = resize_matrix(length, input_size, output_size)
        np.testing.assert_allclose(matrix, expected, rtol=0, atol=5e-6)


@settings(max_examples=60, deadline=None)
@given(
    input_size=st.integers(1, 150),
    output_size=st.integers(1, 150),
    interpolation=st.sampled_from(("bicubic", "bilinear")),
)
def test_whole_numbers_resize_bytes_as_torch_does(
    input_size: int, output_size: int, interpolation: Any
) -> None:
    images = noise(1, input_size)
    images[0, 0] = (images[0, 0] > 127) * 255  # sharp edges leave the range, and are cut off
    matrix, bits = byte_matrix(input_size, output_size, interpolation)
    assert torch.equal(matrix, matrix.round())
    assert matrix.abs().max() < 2**15

    def levels(sums: torch.Tensor) -> torch.Tensor:
        return ((sums + 2 ** (bits - 1)) / 2**bits).floor().clamp(0, 255)

    ours = levels(matrix @ levels(images.double() @ matrix.T))
    theirs = torch.nn.functional.interpolate(
        images.contiguous(memory_format=torch.channels_last),
        (output_size, output_size),
        mode=interpolation,
        antialias=True,
    )
    assert torch.equal(ours, theirs.double())


@pytest.mark.parametrize(("input_size", "output_size"), [(64, 56), (64, 20), (40, 64), (33, 33)])
def test_products_equal_pillow(input_size: int, output_size: int) -> None:
    images = noise(16, input_size)
    augment = TrainAugment(input_size, output_size)
    crops = random_crops(16, input_size, augment.crop_sizes, generator(1))
    ours = augment.crop(images, crops)
    assert ours.dtype == torch.float32
    for b, image in enumerate(channels_last(images)):
        expected = crop_resize_flip(
            image, *boxes(crops, augment.crop_sizes)[b], output_size, bool(crops.flip[b])
        )
        difference = np.abs(ours[b].permute(1, 2, 0).numpy() - expected)
        assert difference.max() < GREY_LEVELS
        assert difference.mean() < 0.4


@pytest.mark.parametrize(("input_size", "output_size"), [(128, 112), (100, 100), (70, 150), (300, 64)])
@pytest.mark.parametrize("channels_last_input", [False, True])
def test_bytes_equal_pillow(input_size: int, output_size: int, channels_last_input: bool) -> None:
    images = pictures(8, input_size)
    augment = TrainAugment(input_size, output_size)
    crops = random_crops(8, input_size, augment.crop_sizes, generator(1))
    assert 0 < crops.flip.sum() < 8
    layout = torch.channels_last if channels_last_input else torch.contiguous_format
    ours = augment.crop(images.contiguous(memory_format=layout), crops)
    assert torch.equal(ours, ours.round())
    for b, image in enumerate(channels_last(images)):
        expected = crop_resize_flip(
            image, *boxes(crops, augment.crop_sizes)[b], output_size, bool(crops.flip[b])
        )
        difference = np.abs(ours[b].permute(1, 2, 0).numpy() - expected)
        assert difference.max() <= TWICE
        assert (difference > 1).mean() < 1e-4
        assert difference.mean() < 0.02


@pytest.mark.parametrize("make", [pictures, noise])
def test_published_size_equals_pillow(make: Callable[..., torch.Tensor]) -> None:
    images = make(5, 512)
    augment = TrainAugment(512, 448)
    room = 512 - augment.crop_sizes
    crops = Crops(room // 2, room // 3, torch.arange(5), torch.arange(5) % 2 == 1)
    ours = augment.crop(images, crops)
    for b, image in enumerate(channels_last(images)):
        expected = crop_resize_flip(image, *boxes(crops, augment.crop_sizes)[b], 448, bool(crops.flip[b]))
        difference = np.abs(ours[b].permute(1, 2, 0).numpy() - expected)
        assert difference.max() <= TWICE
        assert (difference > 1).mean() < 1e-5
        assert difference.mean() < 0.02


@pytest.mark.parametrize("output_size", [24, 40, 90])
def test_resize_equals_torchvision(output_size: int) -> None:
    # A gentle picture, because torchvision does not clamp between the two directions.
    images = (noise(3, 60).float() / 2 + 64).to(torch.uint8)
    expected = tv.resize(
        images.float(), [output_size, output_size], interpolation=InterpolationMode.BICUBIC, antialias=True
    )
    ours = grey(EvalTransform(output_size)(images))
    assert (ours - expected).abs().max() < 0.05


@pytest.mark.parametrize("sizes", [SMALL, LARGE])
def test_flip_is_exact(sizes: tuple[int, int]) -> None:
    images = noise(4, sizes[0])
    augment = TrainAugment(*sizes)
    where = [torch.tensor([0, 3, 5, 8]), torch.tensor([0, 4, 2, 16]), torch.tensor([0, 1, 2, 4])]
    plain = augment.crop(images, Crops(*where, torch.zeros(4, dtype=torch.bool)))
    flipped = augment.crop(images, Crops(*where, torch.ones(4, dtype=torch.bool)))
    assert torch.equal(flipped, plain.flip(3))


@pytest.mark.parametrize(("input_size", "output_size"), [(16, 8), (108, 100)])
def test_crop_of_the_output_size_only_copies(input_size: int, output_size: int) -> None:
    images = noise(2, input_size)
    augment = TrainAugment(input_size, output_size, [output_size])
    crops = Crops(torch.tensor([3, 0]), torch.tensor([5, 8]), torch.zeros(2).long(), torch.zeros(2).bool())
    expected = [
        images[0, :, 3 : 3 + output_size, 5 : 5 + output_size],
        images[1, :, :output_size, 8 : 8 + output_size],
    ]
    assert torch.equal(augment.crop(images, crops), torch.stack(expected).float())


@pytest.mark.parametrize(
    ("make", "input_size", "output_size"), [(noise, 512, 448), (pictures, 256, 224), (noise, 64, 100)]
)
def test_products_in_half_precision_are_close(
    make: Callable[..., torch.Tensor], input_size: int, output_size: int
) -> None:
    images = make(3, input_size)
    sizes = torch.tensor(default_crop_sizes(input_size))[[0, 2, 4]]
    matrices = crop_matrices(sizes, input_size, output_size)
    kind = torch.arange(3)
    rows = shift_matrices(matrices, kind, (input_size - sizes) // 2)
    columns = shift_matrices(matrices, kind + 3, (input_size - sizes) // 3)
    exact = resample(images.double(), rows.double(), columns.double()).numpy()
    ours = resample(images, rows.half(), columns.half())
    assert ours.dtype == torch.float16
    for b in range(3):
        simulated = resample_in_half(images[b].numpy(), rows[b].numpy(), columns[b].numpy())
        difference = np.abs(simulated - exact[b])
        assert difference.max() < 0.3
        assert np.quantile(difference, 0.999) < 0.2
        assert difference.mean() < 0.04
        # float32 sums in another order, rounded to another neighbour now and then
        assert np.abs(ours[b].float().numpy() - simulated).max() < 0.26


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

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision.transforms.v2 import functional as tv

from reference.images import (
    boxes,
    channels_last,
    crop_resize_flip,
    generator,
    grey,
    noise,
    normalise,
    pictures,
    published_pipeline,
)
from satl.images import IMAGENET_MEAN, IMAGENET_STD, EvalTransform, TrainAugment
from satl.images.augment import (
    Crops,
    default_crop_sizes,
    jitter_colours,
    random_crops,
)

GREY_LEVELS = 1.5  # Pillow rounds to whole levels twice, once in each direction, and products do not
SMALL, LARGE = (32, 28), (96, 84)  # sizes that a CPU does by products and by bytes


@pytest.mark.parametrize(("input_size", "output_size"), [(48, 40), LARGE])
def test_whole_call_equals_the_pipeline_one_image_at_a_time(input_size: int, output_size: int) -> None:
    images = noise(12, input_size)
    augment = TrainAugment(input_size, output_size)
    ours = augment(images, generator(5))
    crops = random_crops(12, input_size, torch.tensor(default_crop_sizes(input_size)), generator(5))
    assert 0 < crops.flip.sum() < 12
    for b, image in enumerate(channels_last(images)):
        expected = crop_resize_flip(
            image, *boxes(crops, augment.crop_sizes)[b], output_size, bool(crops.flip[b])
        )
        expected = normalise(expected, IMAGENET_MEAN, IMAGENET_STD)
        assert np.abs(ours[b].numpy() - expected).max() < GREY_LEVELS / 255 / min(IMAGENET_STD)


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
@pytest.mark.parametrize("sizes", [SMALL, LARGE])
def test_same_seed_same_output_and_no_global_state(sizes: tuple[int, int], jitter: float) -> None:
    images = noise(8, sizes[0])
    augment = TrainAugment(*sizes, jitter=jitter)
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
@pytest.mark.parametrize("sizes", [SMALL, LARGE])
def test_shares_of_a_global_batch_are_augmented_as_the_whole(sizes: tuple[int, int], jitter: float) -> None:
    images = noise(7, sizes[0])
    augment = TrainAugment(*sizes, jitter=jitter)
    whole = augment(images, generator(3))
    parts = [augment(images[a:b], generator(3), first=a, total=7) for a, b in ((0, 2), (2, 4), (4, 7))]
    # A product of another shape may add in another order; bytes are done image by image.
    tolerance = 1e-5 if sizes == SMALL or jitter else 0.0
    torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=tolerance)


@pytest.mark.parametrize("jitter", [0.0, 0.4])
@pytest.mark.parametrize("sizes", [SMALL, LARGE])
def test_drawing_and_performing_are_one_call(sizes: tuple[int, int], jitter: float) -> None:
    images = noise(5, sizes[0])
    augment = TrainAugment(*sizes, jitter=jitter)
    crops, factors = augment.draw(5, generator(3), first=4, total=11)
    assert (factors is None) == (jitter == 0)
    ours = augment.perform(images, crops, factors)
    assert torch.equal(ours, augment(images, generator(3), first=4, total=11))


@pytest.mark.parametrize("sizes", [SMALL, LARGE])
def test_empty_batch(sizes: tuple[int, int]) -> None:
    images = noise(0, sizes[0])
    expected = (0, 3, sizes[1], sizes[1])
    assert TrainAugment(*sizes)(images, generator()).shape == expected
    assert EvalTransform(sizes[1])(images).shape == expected


@pytest.mark.parametrize("sizes", [SMALL, LARGE])
@pytest.mark.parametrize("jitter", [0.0, 0.4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_formats_change_no_value(sizes: tuple[int, int], jitter: float, dtype: torch.dtype) -> None:
    contiguous = noise(4, sizes[0])
    packed = contiguous.contiguous(memory_format=torch.channels_last)
    for last in (False, True):
        augment = TrainAugment(*sizes, jitter=jitter, dtype=dtype, channels_last=last)
        evaluate = EvalTransform(sizes[1], dtype=dtype, channels_last=last)
        layout = torch.channels_last if last else torch.contiguous_format
        for images in (contiguous, packed):
            results = augment(images, generator()), evaluate(images)
            if last is False and images is contiguous:
                expected = results
            for ours, value in zip(results, expected, strict=True):
                assert ours.dtype == dtype
                assert ours.is_contiguous(memory_format=layout)
                torch.testing.assert_close(
                    ours, value, rtol=0, atol=2e-2 if dtype == torch.bfloat16 else 1e-5
                )


@pytest.mark.parametrize("size", [20, 100])
def test_eval_of_equal_size_only_normalises(size: int) -> None:
    images = noise(3, size)
    ours = EvalTransform(size)(images)
    expected = torch.stack(
        [torch.from_numpy(normalise(image, IMAGENET_MEAN, IMAGENET_STD)) for image in channels_last(images)]
    )
    torch.testing.assert_close(ours.double(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("output_size", [28, 70, 150])
def test_eval_equals_pillow(output_size: int, interpolation: Any) -> None:
    images = noise(3, 50)
    transform = EvalTransform(output_size, interpolation=interpolation)
    ours = grey(transform(images)).permute(0, 2, 3, 1).numpy()
    kernel = Image.Resampling[interpolation.upper()]
    for b, image in enumerate(channels_last(images)):
        resized = Image.fromarray(image).resize((output_size, output_size), kernel)
        assert np.abs(ours[b] - np.asarray(resized)).max() < GREY_LEVELS


@pytest.mark.parametrize("sizes", [SMALL, LARGE])
def test_training_crops_are_resized_as_asked(sizes: tuple[int, int]) -> None:
    images = noise(6, sizes[0])
    augment = TrainAugment(*sizes, interpolation="bilinear", flip=False)
    crops, _ = augment.draw(6, generator(3))
    ours = augment.crop(images, crops).permute(0, 2, 3, 1).numpy()
    for b, (top, left, length) in enumerate(boxes(crops, augment.crop_sizes)):
        cut = Image.fromarray(channels_last(images)[b]).crop((left, top, left + length, top + length))
        resized = cut.resize((sizes[1], sizes[1]), Image.Resampling.BILINEAR)
        assert np.abs(ours[b] - np.asarray(resized)).max() <= 2  # bytes are rounded twice here and there


def test_mean_and_std() -> None:
    images = torch.full((1, 3, 4, 4), 51, dtype=torch.uint8)
    result = EvalTransform(4, mean=(0.0, 0.1, 0.2), std=(1.0, 0.5, 0.25))(images)
    torch.testing.assert_close(result[0, :, 0, 0], torch.tensor([0.2, 0.2, 0.0]))


@pytest.mark.parametrize("sizes", [SMALL, LARGE])
def test_bfloat16_rounds_only_the_result(sizes: tuple[int, int]) -> None:
    images = noise(4, sizes[0])
    exact = TrainAugment(*sizes)(images, generator(2)), EvalTransform(sizes[1])(images)
    rough = (
        TrainAugment(*sizes, dtype=torch.bfloat16)(images, generator(2)),
        EvalTransform(sizes[1], dtype=torch.bfloat16)(images),
    )
    for one, other in zip(rough, exact, strict=True):
        assert one.dtype == torch.bfloat16
        assert torch.equal(one, other.bfloat16())


def summaries(views: np.ndarray) -> np.ndarray:
    """What a random view (..., 3, H, W) looks like: mean, power and tilts of every channel, (..., 12)."""
    upper, lower = np.split(views, 2, axis=-2)
    left, right = np.split(views, 2, axis=-1)
    parts = (views, views**2, (upper - lower), (left - right))
    return np.concatenate([part.mean(axis=(-2, -1)) for part in parts], axis=-1)


@pytest.mark.parametrize(("input_size", "output_size"), [(40, 32), LARGE])
def test_views_are_distributed_as_published(input_size: int, output_size: int) -> None:
    num = 800
    image = pictures(1, input_size)
    image[:, 0, : input_size // 3] //= 4  # far from the same everywhere, and in no two channels
    image[:, 1, :, : input_size // 2] //= 3
    ours = TrainAugment(input_size, output_size)(image.expand(num, -1, -1, -1), generator())
    draws = random.Random(0)
    sizes = default_crop_sizes(input_size)
    (pixels,) = channels_last(image)
    theirs = np.stack(
        [
            published_pipeline(pixels, output_size, sizes, IMAGENET_MEAN, IMAGENET_STD, draws)
            for _ in range(num)
        ]
    )
    one, other = summaries(ours.double().numpy()), summaries(theirs)
    error = np.sqrt((one.var(axis=0) + other.var(axis=0)) / num)
    assert (np.abs(one.mean(axis=0) - other.mean(axis=0)) < 4 * error + 1e-6).all()
    assert (error < 0.1).all()  # or the comparison would not notice anything
    ratio = one.std(axis=0) / other.std(axis=0)
    assert ((ratio > 0.85) & (ratio < 1.18)).all()


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


class CountLaunches(TorchDispatchMode):
    """Collects the operations that start a kernel: neither a view nor an allocation."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name()
        if not func.is_view and not name.startswith(("prim::", "aten::empty", "aten::_unsafe_view")):
            self.names.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("channels_last_result", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_gpu_one_batch_is_few_launches(dtype: torch.dtype, channels_last_result: bool) -> None:
    # Tensors without content stand for a GPU; an operation that needs a value of theirs fails.
    options: Any = {"dtype": dtype, "channels_last": channels_last_result}
    layout = torch.channels_last if channels_last_result else torch.contiguous_format
    with FakeTensorMode():
        images = torch.empty(4, 3, 512, 512, dtype=torch.uint8, device="cuda")
        place = torch.zeros(4, dtype=torch.int64, device="cuda")
        crops = Crops(place, place, place, place.bool())
        augment = TrainAugment(512, 448, **options).to("cuda")
        with CountLaunches() as launches:
            result = augment.perform(images, crops)
        jittered = augment.perform(images, crops, torch.ones(3, 4, device="cuda"))
        evaluated = EvalTransform(448, **options)(images)
    assert launches.names.count("aten::bmm") == 2
    assert len(launches.names) <= 13
    for tensor in (result, jittered, evaluated):
        assert tensor.device.type == "cuda"
        assert tensor.dtype == dtype
        assert tensor.shape == (4, 3, 448, 448)
        assert tensor.is_contiguous(memory_format=layout)


@pytest.mark.parametrize(
    ("sizes", "jitter", "last"),
    [(SMALL, 0.0, True), (SMALL, 0.4, False), (LARGE, 0.0, False), (LARGE, 0.4, True)],
)
def test_compiles_without_a_break(sizes: tuple[int, int], jitter: float, last: bool) -> None:
    images = noise(4, sizes[0])
    augment = TrainAugment(*sizes, jitter=jitter, channels_last=last)
    evaluate = EvalTransform(sizes[1], channels_last=last)
    drawn = augment.draw(4, generator())
    torch.compiler.reset()
    perform = torch.compile(augment.perform, fullgraph=True, backend="aot_eager")
    transform = torch.compile(evaluate, fullgraph=True, backend="aot_eager")
    pairs = (perform(images, *drawn), augment.perform(images, *drawn)), (transform(images), evaluate(images))
    layout = torch.channels_last if last else torch.contiguous_format
    for ours, expected in pairs:
        assert ours.is_contiguous(memory_format=layout)
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5)


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
    with pytest.raises(ValueError, match=r"\(B, 3, 64, 64\), not \(2, 1, 64, 64\)"):
        TrainAugment(64, 56).perform(noise(2, 64)[:, :1], TrainAugment(64, 56).draw(2, generator())[0])
    with pytest.raises(ValueError, match="of a batch of 3"):
        TrainAugment(32, 28)(noise(2, 32), generator(), first=2, total=3)

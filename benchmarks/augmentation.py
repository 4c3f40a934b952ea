"""Training augmentation: the whole batch on the device against torchvision on Pillow, image by image.

Both sides take decoded uint8 images and end with a normalised float batch on the device, in one run:

    python benchmarks/augmentation.py --device cpu
    python benchmarks/augmentation.py --device cuda --batch 32
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable

import torch
from PIL import Image
from torchvision.transforms import v2

from satl.images import IMAGENET_MEAN, IMAGENET_STD, TrainAugment
from satl.images.augment import default_crop_sizes


def per_image(
    images: list[Image.Image], output: int, crop_sizes: tuple[int, ...], device: str
) -> torch.Tensor:
    crops = [v2.RandomCrop(size) for size in crop_sizes]
    rest = v2.Compose(
        [
            v2.Resize((output, output), interpolation=v2.InterpolationMode.BICUBIC),
            v2.RandomHorizontalFlip(),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(IMAGENET_MEAN, IMAGENET_STD),
        ]
    )
    return torch.stack([rest(random.choice(crops)(image)) for image in images]).to(device)


def seconds(work: Callable[[], object], repeats: int, device: str) -> float:
    """Median seconds of one call."""
    times = []
    for _ in range(repeats + 2):
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[2:])  # the first two warm up


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="threads of torch on the CPU")
    parser.add_argument(
        "--sizes", default="72:64,256:224,512:448", help="pairs input:output, separated by commas"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    device, batch = arguments.device, arguments.batch
    where = torch.cuda.get_device_name() if device == "cuda" else f"cpu, {arguments.threads} thread(s)"
    print(f"augmentation, batch {batch}, {where}; milliseconds per image")
    print(
        f"{'sizes':>12} {'torchvision on Pillow':>22} {'satl float32':>13} {'ratio':>7} {'bfloat16':>9} {'ratio':>7}"
    )
    for pair in arguments.sizes.split(","):
        size, output = map(int, pair.split(":"))
        pixels = torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8)
        pictures = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in pixels]
        generator = torch.Generator(device).manual_seed(0)
        peer = seconds(
            lambda p=pictures, o=output, s=size: per_image(p, o, default_crop_sizes(s), device),
            arguments.repeats,
            device,
        )
        cells = []
        for dtype in (torch.float32, torch.bfloat16):
            augment = TrainAugment(size, output, dtype=dtype)
            # The copy to the device belongs to the work; the peer copies its floats as well.
            own = seconds(
                lambda a=augment, p=pixels, g=generator: a(p.to(device, non_blocking=True), g),
                arguments.repeats,
                device,
            )
            cells.append((own, peer / own))
        (full, full_ratio), (half, half_ratio) = cells
        milli = 1000 / batch
        print(
            f"{f'{size}->{output}':>12} {peer * milli:>22.3f} {full * milli:>13.3f} {full_ratio:>6.2f}x"
            f" {half * milli:>9.3f} {half_ratio:>6.2f}x"
        )


if __name__ == "__main__":
    main()

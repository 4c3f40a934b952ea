"""``satl embed`` against the bare model: JPEG files to a folder of features, and ready tensors to vectors.

    python benchmarks/embed.py [--backbone resnet50] [--pictures 256] [--threads 2] [--rounds 3] [--json OUT]

Both sides have the same weights, batches and number of threads, in one process and in turns. The bare timm model
gets normalised tensors that are in memory already and averages its ``forward_features`` over the map; satl reads,
decodes, resizes and normalises the files and writes the parts. Prints pictures a second of both, in each round and as
medians, and the ratio of the medians. The bar is 0.9 on two cores with a ResNet-50.

Without ``--images`` the photographs are 640 x 480 noise at several scales, which costs as much to decode as a
photograph of that size.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import timm
import torch
from PIL import Image

from satl.inference.embedder import Embedding
from satl.inference.embedding import embed
from satl.inference.prediction import find_images
from satl.models.timm_models import model_facts

BAR = 0.9


def photographs(folder: Path, count: int) -> list[Path]:
    """Write so many JPEG files of 640 x 480 pixels."""
    rng = np.random.default_rng(0)
    files = []
    for number in range(count):
        picture = np.zeros((480, 640, 3))
        for scale in (1, 4, 16, 64):
            noise = rng.normal(0, 12 * scale**0.4, (480 // scale + 1, 640 // scale + 1, 3))
            picture += np.kron(noise, np.ones((scale, scale, 1)))[:480, :640]
        files.append(folder / f"{number:05d}.jpg")
        Image.fromarray((picture + 128).clip(0, 255).astype(np.uint8)).save(files[-1], quality=90)
    return files


def main(arguments: list[str] | None = None) -> float:
    """Measure; return the ratio of the medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", default="resnet50")
    parser.add_argument("--images", type=Path, help="folder of photographs instead of drawn ones")
    parser.add_argument("--pictures", type=int, default=256)
    parser.add_argument("--size", type=int, help="side of the pictures; by default that of the backbone")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    rates: dict[str, list[float]] = {"bare": [], "satl": []}
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        if options.images is None:
            files = photographs(place, options.pictures)
        else:
            files = find_images([options.images])[: options.pictures]
        model = timm.create_model(options.backbone).eval()
        torch.save(model.state_dict(), place / "weights.pth")
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model.to(device)
        size = options.size or model_facts(options.backbone).trained_size
        batch = torch.randn(options.batch_size, 3, size, size, device=device)
        chosen = Embedding(options.backbone, place / "weights.pth", options.size)
        steps = -(-len(files) // options.batch_size)
        for number in range(
            options.rounds + 1
        ):  # the first is not counted: memory and kernels are prepared in it
            begun = time.perf_counter()
            with torch.inference_mode():
                for _ in range(steps):
                    model.forward_features(batch).mean(
                        dim=(2, 3) if model_is_map(options.backbone) else 1
                    ).cpu()
            bare = steps * options.batch_size / (time.perf_counter() - begun)
            made = embedding_seconds(chosen, files, place / "out", options.batch_size)
            if number:
                rates["bare"].append(bare)
                rates["satl"].append(len(files) / made)
                print(
                    f"round {number}: bare {bare:.1f} pictures/s, satl embed {len(files) / made:.1f}",
                    flush=True,
                )
    bare, ours = (statistics.median(rates[side]) for side in ("bare", "satl"))
    print(
        f"{options.backbone} at {size} px, {options.threads} threads: bare {bare:.1f}, satl embed {ours:.1f} pictures/s"
    )
    print(f"ratio {ours / bare:.3f} (bar {BAR})")
    if options.json is not None:
        options.json.write_text(json.dumps({"rates": rates, "ratio": ours / bare}, indent=1) + "\n")
    return ours / bare


def model_is_map(name: str) -> bool:
    """Whether the features of a model are a map rather than tokens."""
    return not any(kind in name for kind in ("vit", "deit", "eva", "beit"))


def embedding_seconds(chosen: Embedding, files: list[Path], out: Path, batch_size: int) -> float:
    """Embed the files and return the seconds from the first picture to the record, without the start of the program."""
    begun = [0.0]

    def start(done: int, total: int) -> None:
        if done == 0:
            begun[0] = time.perf_counter()

    embed(chosen, [file.name for file in files], files, out, batch_size=batch_size, progress=start)
    seconds = time.perf_counter() - begun[0]
    shutil.rmtree(out)
    return seconds


if __name__ == "__main__":
    sys.exit(0 if main() >= BAR else 1)

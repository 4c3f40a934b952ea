"""``satl embed`` against the bare model: JPEG files to a folder of features, and ready tensors to vectors.

    python benchmarks/embed.py [--backbone resnet50] [--pictures 256] [--threads 2] [--bfloat16] [--json OUT]

Both sides have the same weights, batches and number of threads, in one process and in turns. The bare timm model
gets normalised tensors that are in memory already and averages its ``forward_features`` over the map, once as timm
builds it and once with channels last, the layout in memory that satl uses and that is faster for convolutions; satl
reads, decodes, resizes and normalises the files and writes the parts. Prints pictures a second of all, in each round
and as medians, and the ratio of the medians, to the faster of the bare two as well. The bar is 0.9 of the model as timm
builds it, on two cores with a ResNet-50. With ``--bfloat16`` a further row is satl in bfloat16, which helps processors
that have instructions for it; the ratio is still that of float32.

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
from dataclasses import replace
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
LAYOUTS = {"bare": torch.contiguous_format, "bare, channels last": torch.channels_last}


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
    parser.add_argument("--bfloat16", action="store_true", help="measure satl in bfloat16 as well")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    ways = {"satl": False, **({"satl, bfloat16": True} if options.bfloat16 else {})}
    rates: dict[str, list[float]] = {side: [] for side in (*LAYOUTS, *ways)}
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
            measured = {
                side: steps * options.batch_size / bare_seconds(model, batch, steps, layout)
                for side, layout in LAYOUTS.items()
            }
            for side, bfloat16 in ways.items():
                rounded = replace(chosen, bfloat16=bfloat16)
                measured[side] = len(files) / embedding_seconds(
                    rounded, files, place / "out", options.batch_size
                )
            if number:
                for side, rate in measured.items():
                    rates[side].append(rate)
                shown = ", ".join(f"{side} {rate:.1f}" for side, rate in measured.items())
                print(f"round {number}, pictures/s: {shown}", flush=True)
    medians = {side: statistics.median(found) for side, found in rates.items()}
    bare, ours, best = medians["bare"], medians["satl"], max(medians[side] for side in LAYOUTS)
    shown = ", ".join(f"{side} {rate:.1f}" for side, rate in medians.items())
    print(f"{options.backbone} at {size} px, {options.threads} threads, pictures/s: {shown}")
    print(f"ratio {ours / bare:.3f} (bar {BAR}), to the faster layout {ours / best:.3f}")
    if options.bfloat16:
        print(f"bfloat16 to float32: {medians['satl, bfloat16'] / ours:.2f}")
    if options.json is not None:
        options.json.write_text(json.dumps({"rates": rates, "ratio": ours / bare}, indent=1) + "\n")
    return ours / bare


def bare_seconds(
    model: torch.nn.Module, batch: torch.Tensor, steps: int, layout: torch.memory_format
) -> float:
    """Run a bare model on so many batches and return the seconds."""
    model.to(memory_format=layout)
    batch = batch.contiguous(memory_format=layout)
    begun = time.perf_counter()
    with torch.inference_mode():
        for _ in range(steps):
            features = model.forward_features(batch)
            features.mean(dim=(2, 3) if features.ndim == 4 else 1).cpu()
    return time.perf_counter() - begun


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

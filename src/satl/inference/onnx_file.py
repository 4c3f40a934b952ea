"""Write a trained run as one ONNX file that needs neither satl nor torch: bytes in, probabilities and decisions out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from satl import __version__
from satl.errors import Argument, ConfigError, RunError, Sentence, Task
from satl.files import atomic_path, check_out
from satl.inference.decision_thresholds import DecisionThresholds, ThresholdsOfClasses

if TYPE_CHECKING:
    from onnx import ModelProto

    from satl.inference.recogniser import Recogniser

PACKAGES = ("onnx", "onnxruntime", "onnxscript")
LARGEST_DIFFERENCE = 1e-4
"""Allowed between a probability of the file and one of torch; a file that differs more is not written."""
_BATCHES = (1, 3)
_LARGEST_FILE = 2**31
_MEGABYTE = 1e6


@dataclass(frozen=True, eq=False)
class OnnxFile:
    """An ONNX file that was written.

    Attributes:
        path: the file.
        classes: class names, in the order of the outputs.
        source_size: side of the images that the file takes.
        thresholds: from which probability on a class is present.
        difference: largest difference between a probability of the file and one of torch, on random images.
    """

    path: Path
    classes: tuple[str, ...]
    source_size: int
    thresholds: DecisionThresholds
    difference: float

    @property
    def megabytes(self) -> float:
        """Size of the file."""
        return self.path.stat().st_size / _MEGABYTE


def write_onnx(
    run: str | Path,
    out: str | Path,
    thresholds: ThresholdsOfClasses,
    checkpoint: str = "best",
    *,
    force: bool = False,
) -> OnnxFile:
    """Write the network of a run, with its transform and one threshold per class, to one file.

    Args:
        run: folder of a run.
        out: file to write, ``.onnx``; it takes its name only when it has been run and compared with torch.
        thresholds: gives the thresholds of the run's classes; see :mod:`satl.inference.threshold_files`.
        checkpoint: "best" or "last".
        force: replace a file that exists.

    Raises:
        ConfigError: ``out`` cannot be written or exists already, or a package is missing.
        RunError: the run cannot be loaded, or its network cannot be written so that results are the same.
    """
    target = Path(out)
    check_out(target, ".onnx", overwrite=force)
    require_packages()
    from satl.runs.run_folder import RunFolder

    found = thresholds(RunFolder.open(run).read_classes())  # a wrong file is refused before the work
    import onnx
    import torch

    from satl.inference.onnx_graph import DecisionModel, onnx_graph
    from satl.inference.recogniser import Recogniser

    recogniser = Recogniser.load(run, checkpoint, device="cpu")
    source_size = recogniser.config.source_size
    module = DecisionModel(
        recogniser.learner.network, recogniser.transform, source_size, torch.from_numpy(found.values)
    ).eval()
    images = torch.randint(
        0,
        256,
        (2, 3, source_size, source_size),
        dtype=torch.uint8,
        generator=torch.Generator().manual_seed(0),
    )
    try:
        model = onnx_graph(module, images)
    except Exception as error:  # exporters answer what they do not know with errors of every kind
        raise RunError(
            f"its network (backbone {recogniser.config.model.backbone}) cannot be written as ONNX "
            f"({_one_line(error)})",
            where=run,
            remedy=Sentence("train with another backbone, or use {predict}", predict=Task("predict")),
        ) from error
    _check_size(model, run)
    for key, value in _metadata(recogniser, found, checkpoint).items():
        model.metadata_props.add(key=key, value=value)
    model.producer_name, model.producer_version = "satl", __version__
    try:
        with atomic_path(target) as temporary:
            onnx.save(model, temporary)
            onnx.checker.check_model(temporary, full_check=True)
            difference = _compare(temporary, recogniser, found, run)
    except OSError as error:
        raise ConfigError(
            f"cannot be written ({error.strerror or error})",
            where=Argument("out", target),
            remedy="give another place",
        ) from None
    return OnnxFile(target, recogniser.classes, source_size, found, difference)


def require_packages() -> None:
    """Require the packages that write and check ONNX files.

    Raises:
        ConfigError: one of them is not installed.
    """
    for name in PACKAGES:
        try:
            import_module(name)
        except ImportError:
            raise ConfigError(
                f"ONNX files need the package {name}", remedy="install it with `pip install 'satl[onnx]'`"
            ) from None


def _check_size(model: ModelProto, run: str | Path) -> None:
    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    if size >= _LARGEST_FILE:
        raise RunError(
            f"its network has {size / 1e9:.1f} GB of weights, and one ONNX file holds 2 GB",
            where=run,
            remedy="train with a smaller backbone",
        )


def _metadata(recogniser: Recogniser, thresholds: DecisionThresholds, checkpoint: str) -> dict[str, str]:
    """Return what the file says about itself; lists are JSON."""
    from satl.images import IMAGENET_MEAN, IMAGENET_STD

    config = recogniser.config
    source_size, size = config.source_size, recogniser.transform.output_size
    draft = f"draft(None, ({2 * source_size}, {2 * source_size}))"
    inside = f"resizes it to {size} x {size} and normalises it" if size != source_size else "normalises it"
    return {
        "classes": json.dumps(recogniser.classes, ensure_ascii=False),
        "thresholds": json.dumps(
            [
                # Every digit: a shorter decimal is not the number inside, and a tie would be decided otherwise.
                None if never else float(value)
                for value, never in zip(thresholds.values, thresholds.never, strict=True)
            ]
        ),
        "thresholds_from": thresholds.source,
        "decision": "present where probability >= threshold; null: never present",
        "image_size": str(source_size),
        "network_size": str(size),
        "preprocessing": (
            f"RGB bytes, channels first; the whole image resized to {source_size} x {source_size} with Pillow's "
            f"BICUBIC, its aspect ratio not kept (a JPEG decoded after {draft}), then turned upright by its EXIF "
            f"orientation. The file {inside}."
        ),
        "mean": json.dumps(IMAGENET_MEAN),
        "std": json.dumps(IMAGENET_STD),
        "method": config.method.name,
        "backbone": config.model.backbone,
        "checkpoint": checkpoint,
        "satl_version": __version__,
    }


def _compare(path: Path, recogniser: Recogniser, thresholds: DecisionThresholds, run: str | Path) -> float:
    """Run the file on random images beside torch; return the largest difference of a probability."""
    import onnxruntime
    import torch

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    # Read before it is given its name: a session may keep the file open.
    session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    generator = torch.Generator().manual_seed(1)
    side, worst = recogniser.config.source_size, 0.0
    for count in _BATCHES:
        images = torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, generator=generator)
        with torch.no_grad():
            logits = recogniser.learner.network(recogniser.transform(images)).logits
        expected = logits.float().sigmoid().numpy()
        probabilities, present = session.run(["probabilities", "present"], {"images": images.numpy()})
        worst = float(np.maximum(worst, np.abs(probabilities - expected).max()))  # NaN stays NaN
        wrong = None
        if not worst <= LARGEST_DIFFERENCE:
            wrong = f"a probability differs by {worst:.2g}, and {LARGEST_DIFFERENCE:g} is allowed"
        elif not np.array_equal(present, probabilities >= thresholds.values):
            wrong = "its thresholds are others"
        if wrong is not None:
            raise RunError(
                f"the ONNX file does not decide as the run does ({wrong}), so it was not kept",
                where=run,
                remedy=Sentence(
                    "use {predict}, or other versions of torch and onnxruntime", predict=Task("predict")
                ),
            )
    return worst


def _one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:160].rstrip(".") if lines else type(error).__name__

"""Write a trained run as one ONNX file that needs neither satl nor torch: bytes in, probabilities and decisions out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from satl import __version__
from satl.errors import Argument, ConfigError, RunError, Sentence, Task
from satl.files import atomic_path, check_out
from satl.inference.decision_thresholds import DecisionThresholds, ThresholdsOfClasses

if TYPE_CHECKING:
    import torch
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
        input_name: what the file takes, images or features.
        input_kind: of which type and shape, in words.
        thresholds: from which probability on a class is present.
        difference: largest difference between a probability of the file and one of torch, on random inputs.
    """

    path: Path
    classes: tuple[str, ...]
    input_name: str
    input_kind: str
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

    from satl.inference.onnx_graph import onnx_graph
    from satl.inference.recogniser import Recogniser

    recogniser = Recogniser.load(run, checkpoint, device="cpu")
    module, kind = _module(recogniser, found)
    name = module.input_name
    try:
        model = onnx_graph(module, _random_inputs(recogniser, 2, torch.Generator().manual_seed(0)))
    except Exception as error:  # exporters answer what they do not know with errors of every kind
        raise RunError(
            f"its network (backbone {recogniser.config.input_name}) cannot be written as ONNX ({_one_line(error)})",
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
            difference = _compare(temporary, name, recogniser, found, run)
    except OSError as error:
        raise ConfigError(
            f"cannot be written ({error.strerror or error})",
            where=Argument("out", target),
            remedy="give another place",
        ) from None
    return OnnxFile(target, recogniser.classes, name, kind, found, difference)


def _module(recogniser: Recogniser, thresholds: DecisionThresholds) -> tuple[Any, str]:
    """Return what is exported, and what its input looks like, in words."""
    import torch

    from satl.inference.onnx_graph import DecisionModel, FeatureDecisionModel

    network, limits = recogniser.learner.network, torch.from_numpy(thresholds.values)
    if recogniser.features is not None:
        shape = ", ".join(map(str, _vector_shape(recogniser)))
        return FeatureDecisionModel(network, limits).eval(), f"float32 (N, {shape})"
    side = recogniser.config.source_size
    module = DecisionModel(network, recogniser.image_transform, side, limits).eval()
    return module, f"uint8 (N, 3, {side}, {side})"


def _vector_shape(recogniser: Recogniser) -> tuple[int, ...]:
    """Return the shape of the features of one picture: (D,), or (V, D) where there are several views."""
    assert recogniser.features is not None
    views, dim = recogniser.features["views"], recogniser.features["dim"]
    return (dim,) if views == 1 else (views, dim)


def _random_inputs(recogniser: Recogniser, count: int, generator: torch.Generator) -> torch.Tensor:
    """Return random images, or features that are spread as those of the training were."""
    import torch

    from satl.models.feature_input import FeatureInput

    if recogniser.features is None:
        side = recogniser.config.source_size
        return torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, generator=generator)
    drawn = torch.randn(count, *_vector_shape(recogniser), generator=generator)
    inputs = recogniser.learner.network.backbone
    assert isinstance(inputs, FeatureInput)
    return drawn / inputs.scale + inputs.mean


def _expected(recogniser: Recogniser, inputs: torch.Tensor) -> torch.Tensor:
    """Return what the run itself says about inputs as the file takes them: logits (N, C)."""
    if recogniser.features is not None and inputs.ndim == 2:
        inputs = inputs[:, None]
    logits: torch.Tensor = recogniser.learner.network(recogniser.transform(inputs)).logits
    return logits


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
    config = recogniser.config
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
        **_about_inputs(recogniser),
        "method": config.method.name,
        "backbone": config.input_name,
        "checkpoint": checkpoint,
        "satl_version": __version__,
    }


def _about_inputs(recogniser: Recogniser) -> dict[str, str]:
    """Return what must be done before the file."""
    if recogniser.features is not None:
        facts = recogniser.features
        several = " of each view; the file takes their mean" if facts["views"] > 1 else ""
        return {
            "feature_size": str(facts["dim"]),
            "views": str(facts["views"]),
            "features_made_by": json.dumps(facts.get("made_by", {}), ensure_ascii=False),
            "preprocessing": f"features as they were made for training, not standardised{several}. The file "
            "standardises them.",
        }
    source_size, taken = recogniser.config.source_size, recogniser.config.images.input
    size, kernel = taken.size, taken.interpolation.upper()
    draft = f"draft(None, ({2 * source_size}, {2 * source_size}))"
    inside = f"resizes it to {size} x {size} and normalises it" if size != source_size else "normalises it"
    return {
        "image_size": str(source_size),
        "network_size": str(size),
        "preprocessing": (
            f"RGB bytes, channels first; the whole image resized to {source_size} x {source_size} with Pillow's "
            f"{kernel}, its aspect ratio not kept (a JPEG decoded after {draft}), then turned upright by its EXIF "
            f"orientation. The file {inside}."
        ),
        "mean": json.dumps(taken.mean),
        "std": json.dumps(taken.std),
        "interpolation": taken.interpolation,
    }


def _compare(
    path: Path, name: str, recogniser: Recogniser, thresholds: DecisionThresholds, run: str | Path
) -> float:
    """Run the file on random inputs beside torch; return the largest difference of a probability."""
    import onnxruntime
    import torch

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    # Read before it is given its name: a session may keep the file open.
    session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    generator = torch.Generator().manual_seed(1)
    worst = 0.0
    for count in _BATCHES:
        inputs = _random_inputs(recogniser, count, generator)
        with torch.no_grad():
            expected = _expected(recogniser, inputs).float().sigmoid().numpy()
        probabilities, present = session.run(["probabilities", "present"], {name: inputs.numpy()})
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

"""A trained network from bytes to decisions as one module of plain operators, exported to an ONNX graph."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

import satl.models.kernels.attention  # noqa: F401  (registers the operator that is replaced)
from satl.images import EvalTransform
from satl.images.input_format import Interpolation
from satl.images.resample import by_bytes, byte_matrix, resize_matrices

if TYPE_CHECKING:
    from onnx import ModelProto

OUTPUTS = ("probabilities", "present")
BATCH = "N"
_EXACT = 2**24
"""Whole numbers up to here are exact in float32."""
_AT_ONCE = 2**20
"""Numbers for each image that the attention holds at a time."""
_LOGGERS = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")


class Resize(nn.Module):
    """Resize as :class:`~satl.images.EvalTransform` does on a CPU, by matrix products.

    ``forward``: grey levels (N, 3, S, S) -> (N, 3, s, s). Where the transform resizes bytes, results are the same to
    the bit: the weights are its own whole numbers, and the sums are exact.
    """

    matrix: Tensor

    def __init__(self, input_size: int, output_size: int, interpolation: Interpolation = "bicubic") -> None:
        super().__init__()
        self.bits: int | None = None
        if by_bytes(torch.device("cpu"), input_size, output_size):
            matrix, self.bits = byte_matrix(input_size, output_size, interpolation)
            largest = 255 * matrix.abs().sum(dim=1).max() + 2 ** (self.bits - 1)
            self.register_buffer("matrix", matrix.float() if largest < _EXACT else matrix)
        else:
            length = torch.tensor([input_size])
            matrix = resize_matrices(length, input_size, output_size, interpolation)[0]
            self.register_buffer("matrix", matrix)

    def forward(self, images: Tensor) -> Tensor:
        """Grey levels (N, 3, S, S) -> (N, 3, s, s), first along rows, then along columns."""
        across = self._levels(torch.matmul(images.to(self.matrix.dtype), self.matrix.T))
        return self._levels(torch.matmul(self.matrix, across)).float()

    def _levels(self, sums: Tensor) -> Tensor:
        if self.bits is not None:
            sums = torch.floor((sums + 2.0 ** (self.bits - 1)) * 2.0**-self.bits)
        return sums.clamp(0.0, 255.0)


class DecisionModel(nn.Module):
    """A network with its transform and thresholds: bytes (N, 3, S, S) -> probabilities (N, C), present (N, C).

    Args:
        network: gives an output with ``logits`` (N, C) for normalised images.
        transform: the one of evaluation and prediction.
        source_size: S, the side of the images that come in.
        thresholds: float32 (C,).
    """

    input_name = "images"
    scale: Tensor
    shift: Tensor
    thresholds: Tensor

    def __init__(
        self, network: nn.Module, transform: EvalTransform, source_size: int, thresholds: Tensor
    ) -> None:
        super().__init__()
        size = transform.output_size
        self.network = network
        self.resize: nn.Module = (
            nn.Identity() if size == source_size else Resize(source_size, size, transform.interpolation)
        )
        for name, values in (("scale", transform.factors), ("shift", transform.summands)):
            self.register_buffer(name, torch.tensor(values)[:, None, None])
        self.register_buffer("thresholds", thresholds)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Bytes (N, 3, S, S) -> probabilities, float32 (N, C), and whether a class is present, bool (N, C)."""
        pixels = self.resize(images.float()) * self.scale + self.shift
        probabilities = self.network(pixels).logits.float().sigmoid()
        return probabilities, probabilities >= self.thresholds


class FeatureDecisionModel(nn.Module):
    """A network on features with its thresholds: features (N, D) or (N, V, D) -> probabilities (N, C), present (N, C).

    Args:
        network: gives an output with ``logits`` (N, C) for features (N, D).
        thresholds: float32 (C,).
    """

    input_name = "features"
    thresholds: Tensor

    def __init__(self, network: nn.Module, thresholds: Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("thresholds", thresholds)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Features -> probabilities, float32 (N, C), and whether a class is present; of several views the mean."""
        vectors = features.mean(dim=1) if features.ndim == 3 else features
        probabilities = self.network(vectors).logits.float().sigmoid()
        return probabilities, probabilities >= self.thresholds


def plain_attention(
    projected: Tensor, queries: Tensor, weight: Tensor, max_elements: int | None = None
) -> Tensor:
    """``satl::semantic_attention`` in operators that every exporter knows: (B, L, A), (C, A), (A,) -> (B, C, L).

    >>> from satl.models.functional import semantic_attention
    >>> inputs = torch.randn(2, 9, 4), torch.randn(3, 4), torch.randn(4)
    >>> torch.allclose(plain_attention(*inputs), semantic_attention(*inputs), atol=1e-6)
    True
    """
    locations, dim = projected.shape[1:]
    step = max(1, (max_elements or _AT_ONCE) // max(1, locations * dim))
    # The number of classes is fixed, so the loop is written out in the graph.
    parts = [
        torch.matmul(torch.tanh(projected[:, None] * part[None, :, None]), weight)
        for part in queries.split(step)
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


@torch.no_grad()
def onnx_graph(module: DecisionModel | FeatureDecisionModel, images: Tensor) -> ModelProto:
    """Export a module to an ONNX model with a free batch axis.

    Args:
        module: what to export.
        images: uint8 (N, 3, S, S), or features, two or more of them, to trace it with.
    """
    with _quiet():
        program = torch.export.export(
            module.eval(), (images,), dynamic_shapes=({0: torch.export.Dim(BATCH)},), strict=False
        )
        program = program.run_decompositions({torch.ops.satl.semantic_attention.default: plain_attention})
        written = torch.onnx.export(
            program, input_names=[module.input_name], output_names=list(OUTPUTS), dynamo=True, verbose=False
        )
    assert written is not None
    model: ModelProto = written.model_proto
    _tidy(model)
    return model


def _tidy(model: Any) -> None:
    """Remove the exporter's notes, such as lines of source files, and name the batch axis."""
    graph = model.graph
    del graph.value_info[:]
    for part in (
        model,
        graph,
        *graph.node,
        *graph.input,
        *graph.output,
        *graph.initializer,
        *model.functions,
    ):
        if hasattr(part, "metadata_props"):
            del part.metadata_props[:]
        part.doc_string = ""
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = BATCH


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's warnings and log."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)

"""Checks of tensors: labels, scores and thresholds of losses, generators and rules.

Functions that serve a training step look at shapes and types only, never at values: reading a value would wait for the
device. Modules look at the values where that costs nothing (:class:`LabelReader`).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from satl.checks import LABELS
from satl.checks.array_checks import as_array, shows_signed, signed_array
from satl.checks.label_meanings import ABSENT, PRESENT, find_encoding
from satl.errors import Argument, ArrayError, Sentence


def check_cells(values: Tensor, labels: Tensor, name: str = "logits", labels_name: str = "labels") -> None:
    """Require labels of a signed type with the shape of the values: another shape would be broadcast.

    Args:
        values: ``(B, C)``.
        labels: ``(B, C)``.
        name: of ``values``.
        labels_name: of ``labels``.

    Raises:
        ArrayError: the shapes differ, or the labels are unsigned.

    >>> import torch
    >>> check_cells(torch.zeros(4, 3), torch.ones(4, 1))
    Traceback (most recent call last):
    satl.errors.ArrayError: logits and labels must have the same shape, got (4, 3) and (4, 1).
    """
    check_signed(labels, labels_name)
    if values.shape != labels.shape:
        raise ArrayError(
            f"{name} and {labels_name} must have the same shape, "
            f"got {tuple(values.shape)} and {tuple(labels.shape)}."
        )


def check_signed(labels: Tensor, name: str = "labels") -> None:
    """Require labels of a signed type: in an unsigned or boolean one an absent class is 255 or true, which is present.

    Raises:
        ArrayError: the labels are unsigned or boolean.

    >>> import torch
    >>> check_signed(torch.tensor([[True, False]]))
    Traceback (most recent call last):
    satl.errors.ArrayError: labels must be of a signed type, got torch.bool, which cannot hold -1 (absent); use +1
    present, -1 absent, 0 unknown, or convert them with satl.functional.signed_labels.
    """
    if not labels.dtype.is_signed:
        raise ArrayError(
            f"{name} must be of a signed type, got {labels.dtype}, which cannot hold -1 (absent)",
            remedy=f"{LABELS}, or convert them with satl.functional.signed_labels",
        )


def signed_labels(labels: Tensor, encoding: str) -> Tensor:
    """Convert a batch of labels to +1 present, -1 absent, 0 unknown, without looking at its values.

    Nothing waits for the device, so that a training step may call it. What the encoding does not read becomes unknown;
    :class:`satl.losses.PartialBCELoss` and the other modules refuse it.

    Args:
        labels: ``(B, C)`` numbers or booleans.
        encoding: what they mean, by a name of :data:`satl.labels.ENCODINGS`.

    Returns:
        ``(B, C)`` int8; labels that are ``signed`` already as they are.

    >>> import torch
    >>> signed_labels(torch.tensor([[1.0, 0.0, torch.nan]]), "blank")
    tensor([[ 1, -1,  0]], dtype=torch.int8)
    >>> signed_labels(torch.tensor([[1, 0, -1]]), "csl")
    tensor([[ 1, -1,  0]], dtype=torch.int8)
    """
    reads = find_encoding(encoding).reads
    if encoding == "signed":
        check_signed(labels)
        return labels
    numbers = {
        state: [int(value) for value in ("1", "0", "-1") if reads.get(value) == state] for state in (1, -1)
    }
    present, absent = (
        torch.stack([labels == number for number in numbers[state]]).any(0) for state in (PRESENT, ABSENT)
    )
    return present.to(torch.int8) - absent.to(torch.int8)


def as_signed(labels: Tensor, encoding: str | None = None, name: str = "labels") -> Tensor:
    """Read the labels of a whole table: see :func:`satl.checks.array_checks.signed_array`.

    Without an encoding the values are looked at, for which the device is waited for; with one they are converted and
    not looked at (unless the type is unsigned and would have to hold -1).

    Returns:
        ``(N, C)`` with +1, -1, 0, on the device where they are.

    >>> import torch
    >>> as_signed(torch.tensor([[True, False]]))
    Traceback (most recent call last):
    satl.errors.ArrayError: labels: can be read in 2 ways (1 in 1 cell, 0 in 1 cell); pass encoding='complete' ...
    """
    if encoding is not None and (encoding != "signed" or labels.dtype.is_signed):
        return signed_labels(labels, encoding)
    read = signed_array(as_array(labels), name, encoding)
    return torch.from_numpy(np.array(read)).to(labels.device)


class LabelReader:
    """Reads the labels that a module of a training loop is called with, by one encoding.

    A batch of few images may hold any part of the values of its encoding, so none is guessed from it: the encoding is
    what the module was told. A module that was told nothing takes +1, -1 and 0 for unknown; until a batch with -1 has
    shown that these are meant, 1 beside 0 (or 0 beside NaN) is refused. A value that an encoding does not read is
    refused as well. On the CPU every batch is looked at. On an accelerator only the first one is, since looking waits
    for the device, and none where that is forbidden (while a CUDA graph is captured, in PyTorch's synchronisation debug
    mode). Compiled code looks at none.

    >>> import torch
    >>> LabelReader("csl")(torch.tensor([[1, 0, -1]]))
    tensor([[ 1, -1,  0]], dtype=torch.int8)
    >>> LabelReader()(torch.tensor([[1, 0, 0]]))
    Traceback (most recent call last):
    satl.errors.ArrayError: labels: can be read in 2 ways (0 in 2 cells, 1 in 1 cell); pass encoding='complete' ...
    >>> LabelReader("complete")(torch.tensor([[1, 0, -1]]))
    Traceback (most recent call last):
    satl.errors.ArrayError: labels hold -1 at row 1, class 3, which encoding 'complete' does not read (1 present, 0 ...
    """

    def __init__(self, encoding: str | None = None) -> None:
        self.encoding = find_encoding("signed" if encoding is None else encoding).name
        self._sure = encoding is not None
        self._looked = False

    def __call__(self, labels: Tensor, name: str = "labels") -> Tensor:
        """Return the labels with +1, -1, 0."""
        if self.encoding == "signed" and not labels.dtype.is_signed:
            raise ArrayError(
                f"{name} must be of a signed type, got {labels.dtype}, which cannot hold -1 (absent)",
                remedy=Sentence(
                    f"{LABELS}, or pass {{complete}} where the module is made, if every label is known",
                    complete=Argument("encoding", "complete"),
                ),
            )
        if not torch.compiler.is_compiling() and not torch.jit.is_tracing():  # type: ignore[attr-defined]
            self._look(labels, name)
        return signed_labels(labels, self.encoding)

    def _look(self, labels: Tensor, name: str) -> None:
        if labels.device.type == "cpu":
            found = labels.detach()
            if found.dtype == torch.bfloat16:
                found = found.float()
            # Memory that NumPy shares: this cannot wait for a device, because there it is an error.
            values = np.from_dlpack(found)
        elif self._looked or not _may_wait(labels.device):
            return
        else:
            values = as_array(labels)
        if not self._sure:
            self._sure = shows_signed(values, name)
        self._looked = self._sure
        signed_array(values, name, self.encoding)


def _may_wait(device: torch.device) -> bool:
    """Whether the host may wait for a device now."""
    if device.type == "meta":
        return False
    if device.type != "cuda":
        return True
    return not torch.cuda.is_current_stream_capturing() and torch.cuda.get_sync_debug_mode() == 0


def as_thresholds(scores: Tensor, thresholds: Tensor | float) -> Tensor:
    """Return one threshold for each class of the scores, or one for all; another shape would be broadcast.

    Raises:
        ArrayError: the thresholds have another shape.

    >>> import torch
    >>> as_thresholds(torch.zeros(4, 1), 0.5)
    tensor(0.5000)
    >>> as_thresholds(torch.zeros(4, 1), torch.ones(3))
    Traceback (most recent call last):
    satl.errors.ArrayError: thresholds must be one for each class of the scores or a scalar, got (3,) for scores (4, 1).
    """
    if not isinstance(thresholds, Tensor):
        return scores.new_full(
            (), thresholds, dtype=torch.float32
        )  # by the device itself: nothing is copied to it
    if thresholds.ndim and thresholds.shape != scores.shape[-1:]:
        raise ArrayError(
            f"thresholds must be one for each class of the scores or a scalar, "
            f"got {tuple(thresholds.shape)} for scores {tuple(scores.shape)}."
        )
    return thresholds


def known_cells(labels: Tensor) -> Tensor:
    """Return where labels are +1 or -1; NaN counts as unknown.

    >>> import torch
    >>> known_cells(torch.tensor([1.0, -1.0, 0.0, float("nan")]))
    tensor([ True,  True, False, False])
    """
    return (labels > 0) | (labels < 0)

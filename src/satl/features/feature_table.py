"""One table of features: vectors of pictures by position, in memory or in mapped files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from satl.features.half_arrays import HalfArray, as_half
from satl.labels.cells import ImageIndex

if TYPE_CHECKING:
    import torch

IntArray = npt.NDArray[np.int64]
_BYTES_AT_ONCE = 64 << 20


class FeatureTable:
    """Features of N pictures: V vectors of D numbers each, in half precision, by position.

    Args:
        path: the file that they were read from.
        ids: of the pictures.
        parts: arrays (n, V, D) of any floating type, in memory or mapped.
        rows: (N,) where each picture is in the parts, one after the other; None: in their order.
        digest: SHA-256 of the numbers.
        made_by: what made them, where the file says so.

    >>> table = FeatureTable(Path("f"), ("a", "b", "c"), [np.ones((2, 1, 3)), np.zeros((1, 1, 3))], None, "")
    >>> len(table), table.views, table.dim, table.take(np.array([2, 0]))[:, 0, 0].tolist()
    (3, 1, 3, [0.0, 1.0])
    """

    def __init__(
        self,
        path: Path,
        ids: tuple[str, ...],
        parts: Sequence[npt.NDArray[Any]],
        rows: IntArray | None,
        digest: str,
        made_by: Mapping[str, Any] | None = None,
    ) -> None:
        self.path, self.ids, self.digest, self.made_by = path, ids, digest, dict(made_by or {})
        self._parts, self._rows = tuple(parts), rows
        self._starts = np.cumsum([0, *(len(part) for part in parts)])
        self.views, self.dim = (int(length) for length in parts[0].shape[1:])

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def index(self) -> ImageIndex:
        """Finds rows by id."""
        return ImageIndex(self.ids)

    @property
    def num_bytes(self) -> int:
        """Memory that all of them take in half precision."""
        return len(self) * self.views * self.dim * 2

    @property
    def in_memory(self) -> bool:
        """Whether all features are in memory, in the order of the ids."""
        return self._rows is None and len(self._parts) == 1 and not isinstance(self._parts[0], np.memmap)

    def take(self, rows: IntArray) -> HalfArray:
        """Return the features of pictures by position: float16 (B, V, D)."""
        rows = np.asarray(rows, dtype=np.int64)
        if self.in_memory and self._parts[0].dtype == np.float16:
            return self._parts[0][rows]
        where = rows if self._rows is None else self._rows[rows]
        found = np.empty((len(rows), self.views, self.dim), dtype=np.float16)
        part_of = np.searchsorted(self._starts, where, side="right") - 1
        for number in np.unique(part_of).tolist():
            at = np.flatnonzero(part_of == number)
            at = at[np.argsort(where[at])]  # a disk is read from its beginning to its end
            found[at] = as_half(self._parts[number][where[at] - self._starts[number]])
        return found

    def gather(self, rows: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Features at ``rows`` (int64, B): float16 (B, V, D); ``out`` is the memory to use, of the same shape."""
        import torch

        if self.in_memory and self._parts[0].dtype == np.float16:
            whole = torch.from_numpy(self._parts[0])
            return whole.index_select(0, rows) if out is None else torch.index_select(whole, 0, rows, out=out)
        found = torch.from_numpy(self.take(rows.numpy()))
        return found if out is None else out.copy_(found)

    def on_device(self, device: torch.device | str) -> ResidentFeatures:
        """Return the same features in the memory of a device, copied a piece at a time."""
        import torch

        whole = torch.empty((len(self), self.views, self.dim), dtype=torch.float16, device=device)
        at_once = max(1, _BYTES_AT_ONCE // (self.views * self.dim * 2))
        for begin in range(0, len(self), at_once):
            rows = np.arange(begin, min(begin + at_once, len(self)))
            whole[begin : begin + len(rows)].copy_(torch.from_numpy(self.take(rows)))
        return ResidentFeatures(self, whole)


class ResidentFeatures(FeatureTable):
    """A table of features whose batches come from the memory of a device.

    Args:
        table: the features; it stays what everything but batches is taken from.
        values: the same, float16 (N, V, D) on the device.
    """

    def __init__(self, table: FeatureTable, values: torch.Tensor) -> None:
        super().__init__(table.path, table.ids, table._parts, table._rows, table.digest, table.made_by)
        self._values = values

    @property
    def device(self) -> torch.device:
        """Where the features are."""
        return self._values.device

    def gather(self, rows: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Features at ``rows`` (int64, B) on the device: float16 (B, V, D). Nothing waits for the device."""
        import torch

        rows = rows.to(self.device, non_blocking=True)
        if out is None:
            return self._values.index_select(0, rows)
        return torch.index_select(self._values, 0, rows, out=out)

"""A guard under which a tensor's value must not reach the host: what would stall an accelerator is an error.

On a CPU every value is at hand and nothing would be noticed, so the guard forbids the operations that wait on
an accelerator: the operations themselves (:class:`torch.utils._python_dispatch.TorchDispatchMode` sees those
of C++ and of the backward pass too) and the methods of :class:`torch.Tensor` that read values without one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_READS = frozenset(
    {
        "aten::_local_scalar_dense",  # .item(), float(), int(), bool(), if tensor:
        "aten::is_nonzero",
        "aten::item",
        "aten::equal",
        "aten::nonzero",
        "aten::masked_select",
        "aten::unique_dim",
        "aten::_unique",
        "aten::_unique2",
        "aten::unique_consecutive",
        "aten::bincount",
    }
)
_INDEXING = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"})
_METHODS = (
    *("item", "tolist", "cpu", "numpy", "nonzero", "masked_select", "equal"),
    *("__bool__", "__int__", "__float__", "__index__", "__array__"),
)


class HostSynchronisation(AssertionError):
    """A value of a tensor was asked for inside the guard."""


def _refuse(name: str) -> Callable[..., Any]:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise HostSynchronisation(f"{name} waits for the device.")

    return refused


class _Guard(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        if name in _READS:
            raise HostSynchronisation(f"{name} waits for the device.")
        if name in _INDEXING:
            # The length of what a mask selects is known only on the device. (Filling by a mask with one
            # value is another operation, masked_fill, and waits for nothing.)
            masks = [i for i in args[1] if isinstance(i, Tensor) and i.dtype in (torch.bool, torch.uint8)]
            if masks:
                raise HostSynchronisation(f"{name} with a mask as index waits for the device.")
        if name == "aten::repeat_interleave" and not (kwargs or {}).get("output_size"):
            raise HostSynchronisation(f"{name} without output_size waits for the device.")
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def forbid_host_synchronisation() -> Iterator[None]:
    """Raise :class:`HostSynchronisation` where a value of a tensor is read on the host.

    Forbidden: ``.item()``, ``.cpu()``, ``.tolist()``, ``.numpy()``, a tensor as a condition or a number,
    ``nonzero``, ``masked_select``, ``unique`` and indexing by a mask. On an accelerator PyTorch's own guard
    is on as well.

    >>> with forbid_host_synchronisation():
    ...     total = torch.ones(3).sum()
    >>> with forbid_host_synchronisation():
    ...     total.item()  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    HostSynchronisation: item waits for the device.
    """
    with contextlib.ExitStack() as stack:
        if torch.cuda.is_available():
            before = torch.cuda.get_sync_debug_mode()
            torch.cuda.set_sync_debug_mode("error")
            stack.callback(torch.cuda.set_sync_debug_mode, before)
        for name in _METHODS:
            stack.enter_context(mock.patch.object(Tensor, name, _refuse(name)))
        stack.enter_context(_Guard())
        yield

"""The fused kernels without a GPU: run as a program, so that Triton is imported as an interpreter.

    TRITON_INTERPRET=1 python kernel_worker.py IN OUT

IN holds a list of (name of the function, its tensors, weights of the output); OUT gets a list of the value and the
gradients of its weighted sum, computed through the public functions with every tensor taken for one on CUDA.
"""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from triton.runtime import interpreter

from satl.models import pair_scores, semantic_attention
from satl.models.kernels import attention, pairs


def count_with_numpy_2_4(tensor: Any, scope: Any, patch: Any = interpreter._patch_lang_tensor) -> None:
    """Loops over a run-time number: Triton 3.6 converts an array of one number, which NumPy 2.4 refuses."""
    patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


def value_and_gradients(name: str, tensors: list[Tensor], weights: Tensor) -> list[Tensor]:
    arguments = [tensor.requires_grad_() for tensor in tensors]
    function = {"semantic_attention": semantic_attention, "pair_scores": pair_scores}[name]
    value = function(*arguments)
    return [value.detach(), *torch.autograd.grad((value * weights).sum(), arguments)]


if __name__ == "__main__":
    with (
        mock.patch.object(interpreter, "_patch_lang_tensor", count_with_numpy_2_4),
        mock.patch.object(attention, "fused", return_value=True),
        mock.patch.object(pairs, "fused", return_value=True),
    ):
        results = [value_and_gradients(*case) for case in torch.load(sys.argv[1])]
    # The kernels were at work, and not the chunks.
    assert {"satl.models.kernels.triton_attention", "satl.models.kernels.triton_pairs"} <= set(sys.modules)
    torch.save(results, sys.argv[2])

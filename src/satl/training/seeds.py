"""Seeds: of everything at the start of a run, and of single steps by their position."""

from __future__ import annotations

import hashlib
import random

import numpy as np
import torch


def mix_seed(*numbers: int) -> int:
    """Return a well-spread 63-bit seed for a few small numbers."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seed_everything(seed: int) -> None:
    """Seed the global generators of torch, Python and NumPy."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - for libraries that draw from the global generator

"""What tells the weights of a network from others."""

from __future__ import annotations

import hashlib

import torch
from torch import nn


def weight_digest(network: nn.Module) -> str:
    """Return the SHA-256 of all weights of a network and of their names, whatever file they came from.

    >>> one, other = nn.Linear(2, 1), nn.Linear(2, 1)
    >>> _ = other.load_state_dict(one.state_dict())
    >>> weight_digest(one) == weight_digest(other), weight_digest(one) == weight_digest(nn.Linear(2, 1))
    (True, False)
    """
    digest = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        digest.update(name.encode())
        # As bytes: NumPy does not know every type of torch.
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()

"""One of several processes that share a batch: counts, gradients, statistics; run by ``test_distributed.py``.

Called with rank, number of processes and a folder, which holds the meeting point and takes the results.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn

from satl.distributed import (
    count_per_process,
    gather_across,
    gather_with_gradient,
    leave,
    own_part,
    process_rank,
    sum_across,
    world_size,
)
from satl.models.batch_norm import convert_to_shared_batch_norm

BATCH, CHANNELS, STEPS = 8, 3, 3


def batch(step: int, *shape: int) -> Tensor:
    """The same numbers in every process, far from zero, as a badly scaled layer would send them."""
    numbers = torch.Generator().manual_seed(step)
    scale = torch.arange(1.0, CHANNELS + 1).view(-1, *[1] * len(shape))
    return torch.randn(BATCH, CHANNELS, *shape, generator=numbers) * scale + 5.0


def layers() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    """Return layers with BatchNorm in them, and the shape of what they take for each image and channel."""
    torch.manual_seed(0)
    parts = [
        nn.BatchNorm2d(CHANNELS).eval(),
        nn.Tanh(),
        nn.Conv2d(CHANNELS, CHANNELS, 1, bias=False),
        nn.BatchNorm2d(CHANNELS),
    ]
    found: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
        "2d": (nn.Sequential(nn.BatchNorm2d(CHANNELS)), (4, 5)),
        "1d": (nn.Sequential(nn.BatchNorm1d(CHANNELS)), ()),
        "activated": (nn.Sequential(BatchNormAct2d(CHANNELS)), (4, 5)),
        "cumulative": (nn.Sequential(nn.BatchNorm2d(CHANNELS, momentum=None)), (4, 5)),
        "bare": (nn.Sequential(nn.BatchNorm2d(CHANNELS, affine=False, track_running_stats=False)), (4, 5)),
        "frozen": (nn.Sequential(*parts), (4, 5)),
    }
    for layer, _ in found.values():
        for parameter in layer.parameters():
            parameter.data.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return found


def normalise(
    name: str, half: bool = False, wrap: Callable[[nn.Module], nn.Module] = lambda layer: layer
) -> dict[str, Tensor]:
    """Run a layer forwards and backwards; return what each process holds, put together."""
    layer, shape = layers()[name]
    convert_to_shared_batch_norm(layer)
    model = wrap(layer)
    found: dict[str, Tensor] = {}
    for step in range(STEPS):
        pixels = own_part(batch(step, *shape)).requires_grad_()
        weights = own_part(batch(10 + step, *shape).sin())
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            result = model(pixels.bfloat16() if half else pixels)
        (result * weights).sum().backward()
        found[f"{step}.result"] = gather_across(result.detach())
        found[f"{step}.gradient"] = gather_across(pixels.grad)
        for key, parameter in layer.named_parameters():
            found[f"{step}.{key}"] = sum_across(parameter.grad)
        layer.zero_grad(set_to_none=True)
    layer.eval()
    found["evaluated"] = gather_across(model(own_part(batch(9, *shape))).detach())
    return found | {key: value.clone() for key, value in layer.state_dict().items()}


def compare(features: Tensor) -> Tensor:
    """A loss that looks at all pairs of images, and one that divides by a count."""
    everyone = gather_with_gradient(features)
    pairs = (everyone @ everyone.T).tanh().mean()
    return pairs + features.relu().sum() / count_per_process((features > 0).sum())


def differentiate(function: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """Return the loss and its gradient, both averaged over the processes as training does it."""
    features = own_part(batch(0) - 5.0).requires_grad_()
    loss = function(features)
    loss.backward()
    # The gradient of the mean of all losses, which each process knows for its own images.
    return {
        "loss": sum_across(loss.detach()) / world_size(),
        "gradient": gather_across(features.grad) / world_size(),
    }


def learn() -> dict[str, dict[str, Tensor]]:
    """Do everything, with one process or several."""
    found = {name: normalise(name) for name in layers()}
    found["half"] = normalise("2d", half=True)
    return found | {"compare": differentiate(compare)}


def learn_compiled() -> dict[str, dict[str, Tensor]]:
    """Do some of it compiled, where a graph break is an error."""
    options = {"fullgraph": True, "backend": "aot_eager", "dynamic": False}
    return {
        "2d": normalise("2d", wrap=lambda layer: torch.compile(layer, **options)),
        "compare": differentiate(torch.compile(compare, **options)),
    }


def main() -> None:
    """Meet the other processes and learn together."""
    rank, processes, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    meeting = (folder / "meeting").absolute().as_uri()
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=processes)
    few = {
        "rank": torch.tensor(process_rank()),
        "nothing": count_per_process(torch.tensor(0)),
        "count": count_per_process(torch.tensor(3 * rank)),
        "whole": gather_with_gradient(torch.tensor([float(rank), 0.1])),
    }
    found = learn_compiled() if "compiled" in sys.argv else learn() | {"few": few}
    torch.save(found, folder / f"{rank}.pt")
    leave()


if __name__ == "__main__":
    main()

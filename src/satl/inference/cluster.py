"""Parts of predictions on the machines of a Ray cluster."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Sequence
from typing import Any

from satl.errors import ConfigError, RunError, SatlError
from satl.inference.parts import Part, PartPredictor, PartTask, Share

_CORES = 4
"""Of a machine without a GPU that one network uses: more networks need more memory, more cores help less and less."""
_SECONDS_TO_ANSWER = 10.0
_LIVES = 3
"""How often a worker is started again whose machine or process was lost."""


def predict_on(address: str) -> Share:
    """Return what predicts parts on a Ray cluster.

    Every GPU of the cluster, or every few cores where there is none, gets a network of its own and one part after the
    other. Run, images and the folder to write to must be under the same paths on all machines.

    Args:
        address: "auto" for the cluster that this machine belongs to, "local" for one of this machine alone, or where
            its head is, such as "10.0.0.5:6379".

    Raises:
        ConfigError: ray is not installed.
    """
    try:
        import ray
    except ImportError:
        raise ConfigError("--ray needs the package ray: install it with `pip install 'satl[ray]'`.") from None

    def share(task: PartTask, parts: Sequence[Part]) -> Iterator[int]:
        own: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
        try:
            _require_head(address)
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **own)
        except (OSError, ValueError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0].rstrip(".")
            raise ConfigError(
                f"--ray {address}: no Ray cluster there ({reason}); start one with `ray start --head`, or give 'local'."
            ) from None
        try:
            yield from _shared(ray, task, parts)
        finally:
            ray.shutdown()

    return share


def _require_head(address: str) -> None:
    """Raise if nothing answers where the head of a cluster should be: Ray itself would go on trying for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_SECONDS_TO_ANSWER).close()


def _shared(ray: Any, task: PartTask, parts: Sequence[Part]) -> Iterator[int]:
    from ray.util import ActorPool

    todo: Any = list(parts)
    workers = [
        ray.remote(num_cpus=cores, num_gpus=gpus, max_restarts=_LIVES, max_task_retries=_LIVES)(
            PartPredictor
        ).remote(task, cores)
        for cores, gpus in _workers([node["Resources"] for node in ray.nodes() if node["Alive"]])[
            : len(parts)
        ]
    ]
    if not workers:
        raise RunError("the Ray cluster has no machine with a free core; start one with `ray start`.")
    try:
        yield from ActorPool(workers).map_unordered(lambda worker, part: worker.predict.remote(part), todo)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, SatlError):
            raise error.cause from None
        raise
    except ray.exceptions.RayActorError as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise RunError(
            f"a worker of the Ray cluster was lost again and again ({reason}); mend the machine or use fewer, then run "
            "the command again, it goes on."
        ) from None


def _workers(machines: Sequence[dict[str, float]]) -> list[tuple[int, int]]:
    """Return cores and GPUs of each worker.

    >>> _workers([{"CPU": 16.0, "GPU": 2.0}, {"CPU": 64.0}])  # a machine without a GPU would only slow down the others
    [(8, 1), (8, 1)]
    >>> _workers([{"CPU": 9.0}, {"CPU": 2.0}, {"memory": 1e9}])
    [(4, 0), (4, 0), (2, 0)]
    """
    with_gpus = [one for one in machines if one.get("GPU", 0) >= 1]
    found = []
    for one in with_gpus or machines:
        cores = int(one.get("CPU", 0))
        gpus = int(one.get("GPU", 0))
        if gpus:
            found += [(max(cores // gpus, 1), 1)] * gpus
        elif cores:
            each = min(cores, _CORES)
            found += [(each, 0)] * (cores // each)
    return found

"""Predict parts on the machines of a Ray cluster."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Sequence
from typing import Any

from satl.errors import Argument, ConfigError, RunError, SatlError
from satl.inference.prediction_parts import PartPredictor, PredictionJob, PredictionPart, PredictParts

_CORES_PER_WORKER = 4
"""Where there is no GPU: more workers need more memory, and more cores for each of them help less and less."""
_CONNECT_SECONDS = 10.0
_RESTARTS = 3
"""How often a worker whose machine or process was lost is started again."""


def predict_on_ray(address: str) -> PredictParts:
    """Return a function that predicts parts on a Ray cluster.

    Every GPU of the cluster, or every four cores where there is none, gets a network of its own and one part after the
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
        raise ConfigError(
            "needs the package ray", where=Argument("ray", address), remedy="run `pip install 'satl[ray]'`"
        ) from None

    def predict(job: PredictionJob, parts: Sequence[PredictionPart]) -> Iterator[int]:
        own: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
        try:
            _require_head(address)
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **own)
        except (OSError, ValueError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0].rstrip(".")
            raise ConfigError(
                f"no Ray cluster there ({reason})",
                where=Argument("ray", address),
                remedy="start one with `ray start --head`, or give 'local'",
            ) from None
        try:
            yield from _predict_on_workers(ray, job, parts)
        finally:
            ray.shutdown()

    return predict


def _require_head(address: str) -> None:
    """Raise if nothing answers where the head of a cluster should be: Ray itself would keep trying for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()


def _predict_on_workers(ray: Any, job: PredictionJob, parts: Sequence[PredictionPart]) -> Iterator[int]:
    from ray.util import ActorPool

    missing: Any = list(parts)
    workers = [
        ray.remote(num_cpus=cores, num_gpus=gpus, max_restarts=_RESTARTS, max_task_retries=_RESTARTS)(
            PartPredictor
        ).remote(job, cores)
        for cores, gpus in _workers([node["Resources"] for node in ray.nodes() if node["Alive"]])[
            : len(parts)
        ]
    ]
    if not workers:
        raise RunError("the Ray cluster has no machine with a free core", remedy="start one with `ray start`")
    try:
        yield from ActorPool(workers).map_unordered(lambda worker, part: worker.predict.remote(part), missing)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, SatlError):
            raise error.cause from None
        raise
    except ray.exceptions.RayActorError as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise RunError(
            f"a worker of the Ray cluster was lost {_RESTARTS + 1} times ({reason})",
            remedy="repair the machine or use fewer, then predict the same images again to resume",
        ) from None


def _workers(machines: Sequence[dict[str, float]]) -> list[tuple[int, int]]:
    """Return cores and GPUs of each worker.

    >>> _workers([{"CPU": 16.0, "GPU": 2.0}, {"CPU": 64.0}])  # a machine without a GPU would only slow down the others
    [(8, 1), (8, 1)]
    >>> _workers([{"CPU": 9.0}, {"CPU": 2.0}, {"memory": 1e9}])
    [(4, 0), (4, 0), (2, 0)]
    """
    with_gpus = [machine for machine in machines if machine.get("GPU", 0) >= 1]
    found = []
    for machine in with_gpus or machines:
        cores = int(machine.get("CPU", 0))
        gpus = int(machine.get("GPU", 0))
        if gpus:
            found += [(max(cores // gpus, 1), 1)] * gpus
        elif cores:
            each = min(cores, _CORES_PER_WORKER)
            found += [(each, 0)] * (cores // each)
    return found

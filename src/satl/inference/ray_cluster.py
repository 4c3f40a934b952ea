"""Predict or embed parts on the machines of a Ray cluster."""

from __future__ import annotations

import logging
import os
import socket
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from satl.errors import Argument, ConfigError, RunError, SatlError, SatlWarning, Sentence
from satl.inference.embedding import EmbedParts, PartEmbedder
from satl.inference.prediction_parts import PartPredictor, PredictParts

_CORES_PER_WORKER = 4
"""Where there is no GPU: more workers need more memory, and more cores for each of them help less and less."""
_CONNECT_SECONDS = 10.0
_STARTS = 5
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
    return _on_ray(address, PartPredictor, "predict")


def embed_on_ray(address: str) -> EmbedParts:
    """Return a function that embeds parts on a Ray cluster; see :func:`predict_on_ray`.

    Raises:
        ConfigError: ray is not installed.
    """
    return _on_ray(address, PartEmbedder, "embed")


def _on_ray(address: str, worker: type, method: str) -> Callable[[Any, Sequence[Any]], Iterator[int]]:
    """Return a function that gives parts to a method of workers, which are made of a job and a number of cores."""
    if address == "local":
        # Read while ray is imported: without a cluster it listens on this machine alone, not on every network.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        import ray
    except ImportError:
        raise ConfigError(
            "needs the package ray", where=Argument("ray", address), remedy="run `pip install 'satl[ray]'`"
        ) from None

    def work(job: Any, parts: Sequence[Any]) -> Iterator[int]:
        own: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
        try:
            _require_head(address)
            # What Ray logs of a start that failed is told once, in the error after the last.
            _start(ray, address=address, log_to_driver=False, logging_level=logging.CRITICAL, **own)
        except (OSError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"no Ray cluster there ({_first_line(error)})",
                where=Argument("ray", address),
                remedy="start one with `ray start --head`, or give 'local'",
            ) from None
        if address == "local" and not ray.util.get_node_ip_address().startswith("127."):
            text = "the Ray of this machine can be reached from others: import satl before ray, or use a firewall."
            warnings.warn(SatlWarning(text), stacklevel=2)
        try:
            yield from _work_on_workers(ray, worker, method, job, parts)
        finally:
            ray.shutdown()

    return work


def _start(ray: Any, **options: Any) -> None:
    """Start Ray, or join a cluster, as often as it takes on a busy machine.

    Ray gives each process that it starts half a minute or less. Where that is too short it raises a bare ``Exception``,
    or whatever the process that talks to the late one makes of it. A Ray that is joined has been started by others.
    """
    # With one that this process has begun already, "local" is an error of the caller, and the other Ray stays.
    own = options["address"] == "local" and not ray.is_initialized()
    for _ in range(_STARTS):
        try:
            ray.init(**options)
        except Exception as error:
            late = type(error) is Exception and "timed out" in str(error)
            if not late and not (own and isinstance(error, (OSError, RuntimeError))):
                raise
            reason = _first_line(error)
            ray.shutdown()
        else:
            return
    raise RunError(
        f"Ray did not start on this machine in {_STARTS} attempts, perhaps because too much is running here ({reason})",
        remedy=Sentence("do it again later, or leave out {ray}", ray=Argument("ray")),
    )


def _first_line(error: Exception) -> str:
    """Return what an error of Ray says, without its further lines."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _require_head(address: str) -> None:
    """Raise if nothing answers where the head of a cluster should be: Ray itself would keep trying for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()


def _work_on_workers(ray: Any, worker: type, method: str, job: Any, parts: Sequence[Any]) -> Iterator[int]:
    from ray.util import ActorPool

    missing: Any = list(parts)
    workers = [
        ray.remote(num_cpus=cores, num_gpus=gpus, max_restarts=_RESTARTS, max_task_retries=_RESTARTS)(
            worker
        ).remote(job, cores)
        for cores, gpus in _workers([node["Resources"] for node in ray.nodes() if node["Alive"]])[
            : len(parts)
        ]
    ]
    if not workers:
        raise RunError("the Ray cluster has no machine with a free core", remedy="start one with `ray start`")
    try:
        yield from ActorPool(workers).map_unordered(
            lambda actor, part: getattr(actor, method).remote(part), missing
        )
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, SatlError):
            raise error.cause from None
        raise
    except ray.exceptions.RayActorError as error:
        raise RunError(
            f"a worker of the Ray cluster was lost {_RESTARTS + 1} times ({_first_line(error)})",
            remedy="repair the machine or use fewer, then do the same again to resume",
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

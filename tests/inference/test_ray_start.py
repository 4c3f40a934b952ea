"""Ray has half a minute to start its processes, by its own rule; on a busy machine it is asked again."""

from __future__ import annotations

from typing import Any

import pytest

from satl.errors import RunError
from satl.inference import ray_cluster


class FakeRay:
    """A Ray that fails to start so many times, with an error."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.failures, self.error, self.calls = failures, error, []

    def init(self, **options: Any) -> None:
        self.calls.append(options)
        if len(self.calls) <= self.failures:
            raise self.error

    def shutdown(self) -> None:
        self.calls.append("shutdown")


LATE = Exception("The current node timed out during startup. This could happen because ...")


def test_a_start_that_took_too_long_is_repeated_with_the_same_options() -> None:
    ray = FakeRay(1, LATE)
    ray_cluster._start(ray, address="local")
    assert ray.calls == [{"address": "local"}, "shutdown", {"address": "local"}]


def test_a_machine_that_is_always_too_busy_is_told_in_a_sentence() -> None:
    ray = FakeRay(99, LATE)
    with pytest.raises(
        RunError,
        match=r"did not start on this machine in 5 attempts, .*; do it again later, or leave out ray",
    ):
        ray_cluster._start(ray, address="local")
    assert ray.calls.count("shutdown") == 5


@pytest.mark.parametrize(
    "error", [ConnectionError("nobody answers"), ValueError("timed out"), Exception("a bug")]
)
def test_other_errors_pass(error: Exception) -> None:
    ray = FakeRay(99, error)
    with pytest.raises(type(error)) as raised:
        ray_cluster._start(ray, address="local")
    assert raised.value is error
    assert len(ray.calls) == 1

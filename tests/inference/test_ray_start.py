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
        self.begun = False

    def is_initialized(self) -> bool:
        return self.begun

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
    "error",
    [RuntimeError("Failed to start GCS.  Last 0 lines of error files:\n\n."), TimeoutError("no port file")],
)
def test_a_process_of_its_own_that_comes_late_is_started_again(error: Exception) -> None:
    ray = FakeRay(1, error)
    ray_cluster._start(ray, address="local")
    assert ray.calls == [{"address": "local"}, "shutdown", {"address": "local"}]
    always = FakeRay(99, error)
    with pytest.raises(RunError, match=r"in 5 attempts, .*\((Failed to start GCS|no port file)"):
        ray_cluster._start(always, address="local")
    joined = FakeRay(99, error)
    with pytest.raises(type(error)):
        ray_cluster._start(joined, address="auto")
    assert len(joined.calls) == 1, "nobody here started it"


def test_a_ray_that_was_begun_before_is_not_shut_down() -> None:
    ray = FakeRay(99, RuntimeError("Maybe you called ray.init twice by accident?"))
    ray.begun = True
    with pytest.raises(RuntimeError, match="twice"):
        ray_cluster._start(ray, address="local")
    assert "shutdown" not in ray.calls


@pytest.mark.parametrize("error", [ImportError("no module"), ValueError("timed out"), Exception("a bug")])
def test_other_errors_pass(error: Exception) -> None:
    ray = FakeRay(99, error)
    with pytest.raises(type(error)) as raised:
        ray_cluster._start(ray, address="local")
    assert raised.value is error
    assert len(ray.calls) == 1

"""``satl doctor`` says what there is, and puts what is wrong first."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from satl.cli import add_commands
from satl.runs import machine_facts

ROOT = Path(__file__).parents[2]
NOT_FOR_USERS = {"dev", "fuzz", "lanes"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(machine_facts, "LEAST_FREE", 0)  # whatever the disk of the tests
    return tmp_path


def doctor(*options: str) -> Result:
    app = typer.Typer()
    add_commands(app, "doctor")
    return CliRunner().invoke(app, list(options))


def test_everything_is_said_and_nothing_left_behind(folder: Path) -> None:
    weights = folder / "hub/models--timm--resnet18.a1_in1k/snapshots/1/model.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"")
    (folder / "hub/models--timm--stopped/blobs").mkdir(parents=True)
    before = sorted(folder.iterdir())
    result = doctor()
    assert result.exit_code == 0, result.output
    assert result.output.startswith("No problem found.")
    for word in (
        "python",
        "torch",
        "timm",
        "pyarrow",
        "devices",
        "core",
        "resnet18.a1_in1k",
        "GiB free",
        "locks work",
    ):
        assert word in result.output
    assert "stopped" not in result.output
    assert sorted(folder.iterdir()) == before


def test_as_data() -> None:
    facts = json.loads(doctor("--json").output)
    assert facts["problems"] == []
    assert facts["devices"][0] == "cpu"
    assert facts["cores"] >= 1
    assert facts["folder"]["writable"]
    assert facts["folder"]["locks"]
    assert facts["weights"]["names"] == []


def test_every_extra_is_named() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(machine_facts.EXTRAS) == set(declared) - NOT_FOR_USERS
    for name, extra in machine_facts.EXTRAS.items():
        assert len(extra.modules) == len(declared[name]), name


def test_a_missing_extra_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        machine_facts, "EXTRAS", {"web": machine_facts.Extra(("no_such_module",), "the page of a review")}
    )
    result = doctor()
    assert result.exit_code == 0
    assert "extra web          missing  the page of a review; pip install 'satl[web]'" in result.output


@pytest.mark.parametrize("as_json", [False, True])
def test_problems_come_first_and_end_in_code_1(as_json: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(machine_facts.tempfile, "NamedTemporaryFile", refuse)
    monkeypatch.setattr(machine_facts, "PACKAGES", ("torch", "no-such-package"))
    monkeypatch.setattr(machine_facts, "LEAST_FREE", 1 << 80)
    result = doctor(*(["--json"] if as_json else []))
    assert result.exit_code == 1
    problems = json.loads(result.output)["problems"] if as_json else result.output.splitlines()[:3]
    for problem, word in zip(problems, ("no-such-package", "make room", "cannot be written"), strict=True):
        assert word in problem
        assert as_json or problem.startswith("problem: ")


def test_locks_that_lock_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_facts, "try_lock", lambda handle: True)
    result = doctor()
    assert result.exit_code == 1
    assert result.output.startswith("problem: File locks do not work in")

"""A package beside satl brings a method, as docs/own_method.md says; one that is broken is named."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from reference import losses as plain
from satl.methods import METHODS, base
from satl.methods.base import TERMS
from satl.methods.parts import StepContext
from satl.models.transfer import NetworkOutput
from training.tiny import tiny_config

PAGE = (Path(__file__).parents[2] / "docs" / "own_method.md").read_text(encoding="utf-8")
(CODE,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def install(folder: Path, code: str = CODE) -> Path:
    """What ``pip install`` leaves behind for the package of the page."""
    (entries,) = re.findall(r'\[project.entry-points."satl.methods"\]\n(\w+) = "(\w+)"', PAGE)
    facts = folder / "my_method-0.1.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: my-method\nVersion: 0.1\n")
    (facts / "entry_points.txt").write_text(f"[satl.methods]\n{entries[0]} = {entries[1]}\n")
    (folder / f"{entries[1]}.py").write_text(code)
    return folder


def satl(package: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "satl", *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )


def test_the_method_of_the_page_is_listed_and_trains(tmp_path: Path) -> None:
    package = install(tmp_path / "package")
    shown = satl(package, "methods", "focal+sate")
    assert shown.returncode == 0, shown.stderr
    assert "gamma" in shown.stdout
    assert "negative_quantile" in shown.stdout

    content = tiny_config("training.epochs=3").resolved()
    content["method"] = {"name": "focal+sate", "gamma": 1.0, "rate": 1.0}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(content))
    trained = satl(package, "train", tmp_path / "run.yaml", "--out", tmp_path / "run")
    assert trained.returncode == 0, trained.stderr
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert set(rows[-1]["losses"]) == {"focal", "pseudo", "total"}
    assert json.loads((tmp_path / "run" / "environment.json").read_text())["packages"]["my-method"] == "0.1"

    wrong = satl(
        package, "train", tmp_path / "run.yaml", "--set", "method.gamma=-1", "--out", tmp_path / "no"
    )
    assert wrong.returncode == 2
    assert "gamma" in wrong.stderr
    elsewhere = satl(tmp_path, "evaluate", tmp_path / "run")
    assert elsewhere.returncode == 2
    assert "there is no method 'focal+sate'" in elsewhere.stderr
    assert "Traceback" not in elsewhere.stderr


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'"),
        (CODE.replace('name="focal+sate"', 'name="sst"'), "ValueError: method 'sst' is registered twice"),
        (
            CODE.replace('register("focal"', 'register("mixed"'),
            "ValueError: part 'mixed' is registered twice",
        ),
    ],
)
def test_a_package_that_cannot_be_loaded_is_named(tmp_path: Path, code: str, reason: str) -> None:
    finished = satl(install(tmp_path, code), "methods")
    assert finished.returncode == 2
    assert "Traceback" not in finished.stderr
    said = " ".join(finished.stderr.split())
    assert "the package my-method brings methods for satl (my_method) that cannot be loaded" in said
    assert reason in said
    assert "mend or uninstall it" in said


def test_the_loss_of_the_page_is_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "METHODS", dict(METHODS))
    monkeypatch.setitem(TERMS, "focal", None)  # so that it is gone afterwards
    del TERMS["focal"]
    exec(CODE, {})
    noise = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 4, generator=noise)
    labels = torch.randint(-1, 2, (6, 4), generator=noise)
    output = NetworkOutput(logits, torch.zeros(6, 4, 1), None)
    parameters = base.get_method("focal+sate").parameters()
    loss = TERMS["focal"](StepContext(parameters, output, labels, {}, {}, {}))
    costs = []
    for n, c in labels.nonzero().tolist():
        cost = plain.binary_cross_entropy(logits[n, c], int(labels[n, c]))
        costs.append(cost * (1 - torch.exp(-cost)) ** 2)
    torch.testing.assert_close(loss.double(), sum(costs) / len(costs), rtol=1e-5, atol=1e-6)
    assert "focal+sate" not in METHODS

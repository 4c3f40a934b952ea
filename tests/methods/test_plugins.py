"""A package beside satl brings a method, as docs/own_method.md says; one that is broken is named."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from reference import losses as plain
from satl import methods as methods_folder
from satl.methods import METHODS, StepContext, StepInputs, configure, registry
from satl.methods.method_parts import LOSSES
from satl.models.semantic_transfer import NetworkOutput
from training.tiny import tiny_config

PAGE = (Path(__file__).parents[2] / "docs" / "own_method.md").read_text(encoding="utf-8")
CODE, RULE, *_ = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


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
        timeout=600,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )


def test_the_method_of_the_page_is_listed_and_trains(tmp_path: Path) -> None:
    package = install(tmp_path / "package")
    shown = satl(package, "methods", "focal+sate")
    assert shown.returncode == 0, shown.stderr
    assert "method.losses.focal.gamma = 2.0" in shown.stdout
    assert "method.thresholds.negative_quantile" in shown.stdout

    content = tiny_config("training.epochs=3").resolved()
    content["method"] = {
        "name": "focal+sate",
        "losses": {"focal": {"gamma": 1.0}},
        "thresholds": {"rate": 1.0},
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(content))
    trained = satl(package, "train", tmp_path / "run.yaml", "--out", tmp_path / "run")
    assert trained.returncode == 0, trained.stderr
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert set(rows[-1]["losses"]) == {"focal", "pseudo", "total"}
    assert json.loads((tmp_path / "run" / "environment.json").read_text())["packages"]["my-method"] == "0.1"

    wrong = satl(
        package,
        "train",
        tmp_path / "run.yaml",
        "--set",
        "method.losses.focal.gamma=-1",
        "--out",
        tmp_path / "no",
    )
    assert wrong.returncode == 2
    assert "method.losses.focal.gamma" in wrong.stderr
    elsewhere = satl(tmp_path, "evaluate", tmp_path / "run")
    assert elsewhere.returncode == 2
    assert "there is no method 'focal+sate'" in elsewhere.stderr
    assert "made with my-method 0.1, which is not installed here" in " ".join(elsewhere.stderr.split())
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
    assert "fix or uninstall it" in said


def test_a_reference_needs_no_comma_to_be_listed(tmp_path: Path) -> None:
    shown = satl(install(tmp_path, CODE.replace("Our paper, 2026.", "Ours")), "methods")
    assert shown.returncode == 0, shown.stderr
    assert "Ours." in shown.stdout


def test_a_method_of_unknown_parts_is_named_with_the_nearest(tmp_path: Path) -> None:
    shown = satl(install(tmp_path, CODE.replace('stage1=("focal",)', 'stage1=("focl",)')), "methods")
    assert shown.returncode == 2
    assert "Traceback" not in shown.stderr
    assert "method 'focal+sate': stage1 names the loss term 'focl'" in " ".join(shown.stderr.split())
    assert "did you mean 'focal'?" in " ".join(shown.stderr.split())


CLASSES_TOO = """
from satl.methods import GENERATORS
from satl.scoring import ProbabilityGenerator


@GENERATORS.register("own")
class Own(ProbabilityGenerator):
    def __init__(self, context, parameters):
        super().__init__()
"""
END = """
from satl.methods import METHODS
assert LOSSES["focal"].build is focal
assert METHODS["focal+sate"].rule == "semantic"
print(__name__)
"""


def test_an_installed_file_runs_as_a_script(tmp_path: Path) -> None:
    package = install(tmp_path, CODE + CLASSES_TOO + END)
    for script in (str(package / "my_method.py"), "./my_method.py"):
        done = script_of(package, script)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["__main__"]


@pytest.mark.parametrize(
    ("further", "what"),
    [
        ('@LOSSES.register("focal")\ndef other(context, parameters):\n    return 0\n', "part 'focal'"),
        (CODE[CODE.index("register_method(\n") :], "method 'focal+sate'"),
    ],
)
def test_a_name_that_is_taken_twice_in_one_file_is_refused(tmp_path: Path, further: str, what: str) -> None:
    done = script_of(install(tmp_path, CODE + further), "my_method.py")
    assert done.returncode != 0
    assert f"{what} is registered twice" in done.stderr


def script_of(package: Path, name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, name],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
        cwd=package,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_the_loss_of_the_page_is_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "METHODS", dict(METHODS))
    monkeypatch.setitem(LOSSES, "focal", None)  # so that it is gone afterwards
    del LOSSES["focal"]
    exec(CODE, {})
    noise = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 4, generator=noise)
    labels = torch.randint(-1, 2, (6, 4), generator=noise)
    output = NetworkOutput(logits, torch.zeros(6, 4, 1), None)
    _, parameters = configure(registry.get_method("focal+sate"), {})
    inputs = StepInputs(torch.zeros(0), labels, torch.arange(6), stage=1, observe=False)
    loss = LOSSES["focal"].build(StepContext(inputs, output), parameters.losses["focal"])
    costs = []
    for n, c in labels.nonzero().tolist():
        cost = plain.binary_cross_entropy(logits[n, c], int(labels[n, c]))
        costs.append(cost * (1 - torch.exp(-cost)) ** 2)
    torch.testing.assert_close(loss.double(), sum(costs) / len(costs), rtol=1e-5, atol=1e-6)
    assert "focal+sate" not in METHODS


def test_a_rule_of_another_package_works_in_every_method_and_on_plain_scores(tmp_path: Path) -> None:
    package = install(tmp_path / "package", RULE)
    assert "median  A quantile of the known positives' scores." in satl(package, "methods", "--rules").stdout
    content = tiny_config("training.epochs=3", "method.name=sst").resolved()
    content["method"] = {"name": "sst", "thresholds": {"rule": "median", "share": 0.4}}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(content))
    trained = satl(package, "train", tmp_path / "run.yaml", "--out", tmp_path / "run")
    assert trained.returncode == 0, trained.stderr
    saved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert saved["method"]["thresholds"] == {"rule": "median", "share": 0.4}
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert min(rows[-1]["thresholds"]["cross"]) < 1.0


def test_a_method_and_a_rule_are_one_file_each_inside_satl(tmp_path: Path) -> None:
    """A copy of satl in which nothing but two files is new."""
    copy = tmp_path / "satl"
    shutil.copytree(
        Path(methods_folder.__file__).parents[1], copy, ignore=shutil.ignore_patterns("__pycache__")
    )
    (copy / "methods" / "my_method.py").write_text(CODE)
    (copy / "methods" / "my_rule.py").write_text(RULE)
    shown = satl(tmp_path, "methods", "focal+sate")
    assert "method.losses.focal.gamma = 2.0" in shown.stdout, shown.stderr
    assert "method.thresholds.share = 0.5" in satl(tmp_path, "methods", "--rules", "median").stdout

"""``--json``: every command that prints a table has it; it is one object, with the keys that docs/json.md tells."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.test_complete_cli import answered
from cli.test_demo_cli import TINY as TINY_DEMO
from cli.test_experiment_cli import DONE
from completion.drawn import Drawn
from experiments.grids import FACTS, grid_of
from programs import ROOT
from reports.synthetic import write_run
from satl.cli import _COMMANDS
from satl.experiments.experiment_folder import RESULT, ExperimentFolder, write_json

Satl = Callable[..., tuple[int, str, str]]
PAGE = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
FOLDER = ROOT / "src" / "satl" / "cli"

NO_TABLE = {
    "complete": "sentences: notes, and where the table and its report are; report.json has everything",
    "export": "sentences: the files that were written",
    "import": "sentences: counts of decisions",
    "merge": "sentences: counts of decisions, and how far annotators agree",
}
"""Commands that print in a loop, and why that is no table."""


def functions_of(module: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8"))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def reached(
    function: str, functions: dict[str, ast.FunctionDef], seen: set[str]
) -> Iterator[ast.FunctionDef]:
    """A function of a module and those of the same module that it calls, directly or not."""
    if function in functions and function not in seen:
        seen.add(function)
        yield functions[function]
        for node in ast.walk(functions[function]):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                yield from reached(node.func.id, functions, seen)


def prints(node: ast.AST) -> bool:
    return any(
        isinstance(part, ast.Call)
        and isinstance(part.func, ast.Attribute)
        and part.func.attr in ("echo", "print")
        for part in ast.walk(node)
    )


def prints_a_table(module: str, function: str) -> bool:
    """Whether a command makes a table of rich, or prints line after line in a loop."""
    for part in reached(function, functions_of(module), set()):
        for node in ast.walk(part):
            if isinstance(node, ast.ImportFrom) and node.module == "rich.table":
                return True
            if isinstance(node, ast.For) and prints(node):
                return True
    return False


@pytest.mark.parametrize("command", _COMMANDS)
def test_what_prints_a_table_prints_json(command: str, satl: Satl) -> None:
    module, _, function = _COMMANDS[command].partition(":")
    has_it = "--json" in satl(command, "--help")[1]
    assert has_it or not prints_a_table(module, function) or command in NO_TABLE
    assert has_it == (f"## satl {command}\n" in PAGE), (
        "docs/json.md has a section for each command with --json"
    )


def documented(command: str) -> list[dict[str, Any]]:
    """The objects that the page shows of a command."""
    section = re.search(rf"^## satl {command}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None, command
    return [json.loads(text) for text in re.findall(r"```json\n(.*?)```", section[1], re.DOTALL)]


def agrees(shown: Any, found: Any, place: str = "") -> list[str]:
    """What of the keys of an object is not as shown; ``<name>`` stands for any keys, null for what may be absent."""
    if isinstance(shown, list) and shown and isinstance(found, list):
        return [problem for part in found for problem in agrees(shown[0], part, f"{place}[]")]
    if not isinstance(shown, dict) or not isinstance(found, dict):
        same = (
            found is None
            or shown is None
            or isinstance(found, type(shown))
            or {type(shown), type(found)} <= {int, float}
        )
        return [] if same else [f"{place}: {found!r} is not like {shown!r}"]
    names = [key for key in shown if key.startswith("<")]
    problems = [f"{place}.{key} is not there" for key in shown if key not in found and key not in names]
    for key, value in found.items():
        if key in shown:
            problems += agrees(shown[key], value, f"{place}.{key}")
        elif names:
            problems += agrees(shown[names[0]], value, f"{place}.{names[0]}")
        else:
            problems.append(f"{place}.{key} is not in the page")
    return problems


def check(satl: Satl, command: str, *arguments: object, shown: int = 0, code: int = 0) -> dict[str, Any]:
    """Run a command with ``--json``; its output is one object with the keys of the page."""
    ended, out, _ = satl(command, *arguments, "--json")
    assert ended == code, out
    assert out.isascii()
    found = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert agrees(documented(command)[shown], found) == []
    return dict(found)


def test_lists(satl: Satl) -> None:
    assert "sst+satl" in [method["name"] for method in check(satl, "methods")["methods"]]
    assert check(satl, "methods", "sst+satl", shown=1)["rule"] == "semantic"
    assert "mat" in [rule["name"] for rule in check(satl, "methods", "--rules", shown=2)["rules"]]
    assert len(check(satl, "methods", "--rules", "mat", shown=2)["rules"]) == 1
    assert "coco/sst+satl" in check(satl, "recipes")["recipes"]
    assert check(satl, "recipes", "coco/sst+satl", shown=1)["method"]["name"] == "sst+satl"


def test_of_a_table(satl: Satl, pictures: Path) -> None:
    assert check(satl, "inspect", pictures / "labels.csv", "--images", pictures)["num_images"] == 60


def test_of_runs(satl: Satl, tiny_run: Path, tmp_path: Path) -> None:
    found = check(satl, "evaluate", tiny_run, "-o", tmp_path)
    assert found == json.loads((tmp_path / f"evaluation-{found['split']}.json").read_text())
    pushed = check(satl, "push", tiny_run, "me/first")
    assert pushed["uploaded_to"] is None
    assert "README.md" in [file["name"] for file in pushed["files"]]
    other = Path(shutil.copytree(tiny_run, tmp_path / "other"))
    shutil.copy(tmp_path / f"evaluation-{found['split']}.json", other)
    config = (other / "config.yaml").read_text()
    (other / "config.yaml").write_text(config.replace("lr: 0.003", "lr: 0.5"))
    assert [run["run"] for run in check(satl, "compare", tiny_run, other)["runs"]] == [
        str(tiny_run),
        str(other),
    ]


def test_of_scores_and_completions(satl: Satl, tmp_path: Path) -> None:
    few = Drawn(4000, ("boat", "猫, cat"), known=0.025, prevalence=(0.3, 0.3))
    labels, scores = few.write(tmp_path, labels="few.csv", scores="few.npz")
    given = ("--scores", scores, "--labels", labels)
    found = check(satl, "thresholds", *given, "--rule", "mat")
    assert [row["class"] for row in found["classes"]] == ["boat", "猫, cat"]
    out = tmp_path / "out"
    assert satl("complete", *given, "-o", out)[0] == 0
    plan = check(satl, "plan", out, "-o", tmp_path / "plan.csv", "-n", 300)
    assert plan["file"] == str(tmp_path / "plan.csv")
    assert sum(aim["in_plan"] for aim in plan["aims"]) == plan["cells"] > 0
    audit = check(satl, "audit", out, "draw", "-n", 20, "-o", tmp_path / "audit.csv")
    answered(tmp_path / "audit.csv", few)
    assert check(satl, "audit", out, "read", tmp_path / "audit.csv", shown=1)["cells"] == audit["cells"] > 0


def test_of_figures(satl: Satl, tmp_path: Path) -> None:
    for method in ("sst", "sst+satl"):
        write_run(tmp_path / "runs" / method, method, images=60)
    figures = check(satl, "figures", tmp_path / "runs", "--only", "10,13", "--format", "svg")["figures"]
    missing, drawn = figures
    assert (drawn["number"], len(drawn["files"]), drawn["needs"]) == (13, 1, None)
    assert (missing["number"], missing["files"]) == (10, [])
    assert "method.thresholds.rate" in missing["needs"]


def test_of_an_experiment(satl: Satl, tmp_path: Path) -> None:
    grid = grid_of(dataset="scenes")
    folder = ExperimentFolder(tmp_path / "out")
    folder.write_grid(grid)
    done, failed, *_ = grid.runs()
    write_json(folder.run_path(done) / RESULT, DONE)
    folder.write_failure(failed, "no memory [cuda]", "", FACTS)
    found = check(satl, "experiment", "--out", folder.path, "--list")
    assert [(run["state"], run["mAP"], run["error"]) for run in found["runs"]] == [
        ("done", 0.5, None),
        ("failed", None, "no memory [cuda]"),
        ("new", None, None),
        ("new", None, None),
    ]
    assert found["report"] is None
    reported = check(satl, "experiment", "--out", folder.path, "--report")
    assert reported == {**found, "report": str(folder.report)}


def test_of_this_machine(satl: Satl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("satl.runs.machine_facts.LEAST_FREE", 0)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    check(satl, "doctor")


def test_of_the_demo(tmp_path: Path) -> None:
    settings = [part for setting in TINY_DEMO for part in ("--set", setting)]
    done = subprocess.run(
        [sys.executable, "-m", "satl", "demo", "--out", str(tmp_path / "demo"), "--json", *settings],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert agrees(documented("demo")[0], json.loads(done.stdout)) == []
    assert "stage 2" in done.stderr


def test_a_mistake_prints_nothing_on_the_standard_output(satl: Satl, tmp_path: Path) -> None:
    code, out, err = satl("inspect", tmp_path / "none.csv", "--json")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1

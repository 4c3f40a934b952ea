"""The README's Python runs, what it names exists, and code on the pages is shown as code."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import torch

import satl

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_loop_trains():
    (snippet,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    torch.manual_seed(0)
    at_first: dict[str, object] = {}
    exec(snippet.partition("for epoch")[0], at_first)
    torch.manual_seed(0)
    names: dict[str, object] = {}
    exec(snippet, names)
    model, thresholds, loss = names["model"], names["thresholds"], names["loss"]
    assert torch.isfinite(loss)
    assert (thresholds.value < 1).all()
    assert not torch.equal(model.weight, at_first["model"].weight)


def test_calls_of_the_notebook_fit_their_functions():
    section = README.split("## From Python")[1].split("\n## ")[0]
    lines = [line[4:] for line in section.splitlines() if line.startswith("    ")]
    calls = [
        node
        for node in ast.walk(ast.parse("\n".join(lines)))
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("satl.")
    ]
    assert {call.func.attr for call in calls} == set(satl.__all__)
    for call in calls:
        arguments = {keyword.arg: keyword.value for keyword in call.keywords}
        inspect.signature(getattr(satl, call.func.attr)).bind(*call.args, **arguments)


def test_linked_files_exist():
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if not link.startswith("http")]
    assert len(links) > 5
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_named_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^ {4}make (\w+)", README, flags=re.MULTILINE))
    assert {"demo", "test"} <= targets
    assert [name for name in targets if not re.search(rf"^{name}:", makefile, flags=re.MULTILINE)] == []


def test_prompts_on_the_pages_stand_in_fences():
    bare = []  # Markdown takes a line that begins with >>> for a quotation, and runs such lines together
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        outside = re.sub(
            r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
        )
        bare += [f"{page.name}: {line}" for line in outside.splitlines() if line.startswith(">>>")]
    assert bare == []


def test_no_run_folder_is_trained_twice():
    folders = re.findall(r"satl train (?!--resume).*?--out (\S+)", README)
    assert len(folders) >= 3
    assert len(folders) == len(set(folders))  # a folder that holds a run is refused

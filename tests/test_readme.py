"""The README's Python runs, and what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import torch

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


def test_linked_files_exist():
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if not link.startswith("http")]
    assert len(links) > 5
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_named_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^ {4}make (\w+)", README, flags=re.MULTILINE))
    assert {"demo", "test"} <= targets
    assert [name for name in targets if not re.search(rf"^{name}:", makefile, flags=re.MULTILINE)] == []

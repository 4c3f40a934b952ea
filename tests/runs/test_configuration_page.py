from __future__ import annotations

import pytest
import yaml

from programs import ROOT, load_program
from satl.methods import METHODS, configure
from satl.methods.method import resolved_settings
from satl.runs.config import flat_settings
from satl.runs.reading import make_config

DOCS = ROOT / "docs"


def test_the_pages_of_the_configuration_are_up_to_date() -> None:
    program = "tools/write_configuration_page.py"
    fresh = load_program(program).pages()
    pages = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "configuration").iterdir()}
    assert pages == fresh, f"run `python {program}`"
    start = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert [name for name in pages if f"](configuration/{name})" not in start] == []
    text = pages["method.md"]
    for method in METHODS.values():
        assert f"| `{method.name}` |" in text
        for key in flat_settings(resolved_settings(method, *configure(method, {}))):
            assert key == "thresholds.rule" or f"`method.{key}`" in text


@pytest.mark.parametrize("page", ["configuration.md", "training.md"])
def test_the_configurations_of_the_pages_are_valid(page: str) -> None:
    blocks = (DOCS / page).read_text(encoding="utf-8").split("```yaml\n")[1:]
    for block in blocks:
        content = {"data": {"scenes": {}}, **yaml.safe_load(block.split("```")[0])}
        make_config(content, page)
    assert page != "configuration.md" or len(blocks) == 3

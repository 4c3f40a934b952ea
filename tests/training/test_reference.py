from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import yaml

from satl.methods import METHODS
from satl.training.reading import make_config

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_the_configuration_is_up_to_date() -> None:
    specification = importlib.util.spec_from_file_location("make_reference", DOCS / "make_reference.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert text == module.page(), "run `python docs/make_reference.py`"
    for method in METHODS.values():
        assert f"| `{method.name}` |" in text
        for name in method.parameters.model_fields:
            assert f"| `method.{name}` |" in text


@pytest.mark.parametrize("page", ["configuration.md", "training.md"])
def test_the_configurations_of_the_pages_are_valid(page: str) -> None:
    blocks = (DOCS / page).read_text(encoding="utf-8").split("```yaml\n")[1:]
    for block in blocks:
        content = {"data": {"scenes": {}}, **yaml.safe_load(block.split("```")[0])}
        make_config(content, page)
    assert page != "configuration.md" or len(blocks) == 2

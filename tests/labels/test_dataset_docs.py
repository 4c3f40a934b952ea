"""docs/datasets.md names every data set and option, and its configurations are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from satl.labels import DATASETS
from satl.runs.config import DataConfig
from satl.runs.reading import make_config

PAGE = (Path(__file__).parents[2] / "docs" / "datasets.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_every_data_set_has_a_section_with_its_options_and_files(name: str) -> None:
    title = next(title for title in SECTIONS if f"`{name}`" in title)
    section = SECTIONS[title]
    dataset = DATASETS[name]
    # Options stand beside the other keys of the configuration, so none may have the name of one.
    assert not {option.name for option in dataset.options} & set(DataConfig.model_fields)
    for option in dataset.options:
        row = next(row for row in section.splitlines() if row.startswith("|") and f"`{option.name}`" in row)
        default = option.default
        if isinstance(default, bool | int):
            assert f"`{str(default).lower()}`" in row
        elif isinstance(default, list):
            assert f"`{', '.join(default)}`" in row
        elif isinstance(default, str):
            assert f"`{default}`" in row
        for choice in option.choices if option.kind == "choice" else ():
            assert f"`{choice}`" in row
    if not name.startswith(("coco", "voc2012")):
        for file in dataset.layout:
            for part in file.removeprefix("*").split(" and "):
                assert part.rstrip("/").split("/")[-1] in section


def test_every_configuration_is_valid() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    named = {make_config(yaml.safe_load(block), "docs").data.dataset for block in blocks}
    assert named >= set(DATASETS) - {"coco2017", "voc2012"}

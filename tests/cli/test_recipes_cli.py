"""``satl recipes`` and ``satl train --recipe``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from recipes.test_recipes import small, voc2007
from satl.methods import METHODS

Satl = Callable[..., tuple[int, str, str]]


def test_the_list_names_data_sets_and_methods(satl: Satl) -> None:
    code, out, err = satl("recipes")
    assert (code, err) == (0, "")
    assert "coco, vg200, voc2007" in out
    for name in METHODS:
        assert name in out


def test_a_recipe_is_printed_as_a_configuration(satl: Satl) -> None:
    code, out, err = satl("recipes", "coco/hst+satl")
    assert (code, err) == (0, "")
    content = yaml.safe_load(out)
    assert content["method"]["name"] == "hst+satl"
    assert content["data"] == {"dataset": "coco2014", "validation": 0.05}


def test_a_misspelt_recipe_is_called_as_it_was_given(satl: Satl) -> None:
    code, out, err = satl("recipes", "coco/hst+sat")
    assert (code, out) == (2, "")
    assert err.startswith("error: coco/hst+sat: there is no such recipe (did you mean 'coco/hst+sat"), err
    assert "`satl recipes` lists them" in err


def test_train_from_a_recipe(satl: Satl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SATL_CACHE", str(tmp_path / "cache"))
    root = voc2007(tmp_path / "a folder: with signs #1")
    settings = [word for override in small("voc2007/sst+satl") for word in ("--set", override)]
    code, out, err = satl(
        *("train", "--recipe", "voc2007/sst+satl", "--data", root, "--proportion", "0.7", "--seed", "3"),
        *(*settings, "--set", "data.proportion=0.8", "--out", tmp_path / "run", "--quiet"),
    )
    assert (code, err) == (0, "")
    assert "is finished" in out
    saved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert saved["data"]["root"] == str(root)
    assert saved["data"]["proportion"] == 0.8  # --set has the last word
    assert saved["training"]["seed"] == 3


def test_a_run_of_a_recipe_knows_its_files_from_any_folder(
    satl: Satl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SATL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(voc2007(tmp_path / "voc").parent)
    settings = [word for override in small("voc2007/sst") for word in ("--set", override)]
    code, _, err = satl(
        *("train", "--recipe", "voc2007/sst", "--data", "voc", "--proportion", "0.7", *settings),
        *("--set", "data.images=voc", "--out", "run", "--quiet"),
    )
    assert (code, err) == (0, "")
    assert yaml.safe_load(Path("run", "config.yaml").read_text())["data"]["images"] == str(tmp_path / "voc")


def test_a_folder_without_the_data_set_is_one_sentence(satl: Satl, tmp_path: Path) -> None:
    code, out, err = satl(
        "train", "--recipe", "coco/sst", "--data", tmp_path, "--out", tmp_path / "run", "--quiet"
    )
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert "instances_train2014.json" in err
    assert not (tmp_path / "run").exists()

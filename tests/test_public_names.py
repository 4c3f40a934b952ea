"""What ``import satl`` offers: every public name and module, none of them loaded before it is used."""

from __future__ import annotations

import pydoc
import subprocess
import sys
import tomllib
from pathlib import Path
from pkgutil import iter_modules

import pytest

import satl

ROOT = Path(__file__).parents[1]


def test_every_public_name_is_listed_and_there() -> None:
    listed = dir(satl)
    assert listed == sorted(listed)
    assert {*satl.__all__, "functional", "labels", "LabelTable", "SATLLoss", "ThresholdCompleter"} <= set(
        listed
    )
    assert "__main__" not in listed
    for name in listed:
        assert getattr(satl, name).__name__.rpartition(".")[2] == name
    assert satl.__version__


def test_a_new_room_is_public_or_a_program() -> None:
    rooms = {module.name for module in iter_modules(satl.__path__)}
    assert rooms - set(dir(satl)) == {"__main__", "cli", "demo", "parsing"}


def test_help_is_a_page_with_the_calls_and_the_main_names() -> None:
    page = pydoc.plain(pydoc.render_doc(satl))
    assert page.count("\n") < 220
    for name in satl.__all__:
        assert f"\n    {name}(" in page
    described = satl.__doc__
    assert described is not None
    rooms = {module.name for module in iter_modules(satl.__path__)}
    assert [name for name in dir(satl) if name not in rooms and name not in described] == []


def test_modules_are_loaded_when_they_are_used_and_not_before() -> None:
    code = (
        "import sys, satl; dir(satl)\n"
        "print([name for name in ('numpy', 'torch', 'satl.labels', 'satl.functional') if name in sys.modules])\n"
        "print(satl.functional.partial_bce.__name__, satl.errors.SatlError.__name__, satl.thresholds.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "partial_bce SatlError satl.thresholds"]


@pytest.mark.parametrize("name", ["no_such_name", "_private", "__main__"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(AttributeError, match=f"No satl attribute {name}"):
        satl.__getattr__(name)


def test_the_version_stands_in_one_place_and_is_cited() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "satl.__version__"}
    assert f"\nversion: {satl.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_every_dependency_has_a_lower_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(dependency for extra in extras for dependency in extra)]
    assert [dependency for dependency in wanted if ">=" not in dependency] == []
    bounds: dict[str, set[str]] = {}
    for dependency in wanted:
        bounds.setdefault(dependency.partition(">=")[0], set()).add(dependency)
    assert [each for each in bounds.values() if len(each) > 1] == []  # the same wherever it stands

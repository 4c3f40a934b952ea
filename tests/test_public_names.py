"""What ``import satl`` offers: every public name and module, none of them loaded before it is used."""

from __future__ import annotations

import subprocess
import sys
from pkgutil import iter_modules

import pytest

import satl


def test_every_public_name_is_listed_and_there() -> None:
    listed = dir(satl)
    assert listed == sorted(listed)
    assert {*satl.__all__, "functional", "labels", "thresholds", "training"} <= set(listed)
    assert "__main__" not in listed
    for name in satl.__all__:
        assert getattr(satl, name).__name__.rpartition(".")[2] == name
    assert satl.__version__


def test_a_new_room_is_public_or_a_program() -> None:
    rooms = {module.name for module in iter_modules(satl.__path__)}
    assert rooms - set(satl.__all__) == {"__main__", "cli", "demo"}


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

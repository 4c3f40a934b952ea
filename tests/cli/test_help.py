from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

from satl.methods import METHODS

HEAVY = ("torch", "timm", "numpy", "matplotlib", "pyarrow", "accelerate", "scipy", "PIL")


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['satl', '--help']\n"
        "from satl.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code\n"
        f"print('HEAVY', *(name for name in {HEAVY} if name in sys.modules))"
    )
    seconds = []
    for _ in range(3):  # another program may have had the processor for a while
        begun = time.perf_counter()
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        seconds.append(time.perf_counter() - begun)
        if seconds[-1] < 1.5:
            break
    assert result.stdout.splitlines()[-1] == "HEAVY"
    assert min(seconds) < 1.5
    for command in ("inspect", "mask", "train", "evaluate", "predict", "methods", "demo"):
        assert command in result.stdout


def test_every_command_has_help(satl: Callable[..., tuple[int, str, str]]) -> None:
    for command in ("inspect", "mask", "scenes", "train", "evaluate", "predict", "methods"):
        code, out, err = satl(command, "-h")
        assert (code, err) == (0, "")
        assert f"satl {command}" in out.replace("pytest", "satl")


def test_without_a_command_the_help_is_shown(satl: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = satl()
    assert code in (0, 2)
    assert "train" in out + err


def test_methods_lists_every_method_with_what_can_be_set(satl: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = satl("methods")
    assert code == 0
    for method in METHODS.values():
        assert f"{method.name}  " in out
        for name in method.parameters.model_fields:
            assert f"method.{name} = " in out

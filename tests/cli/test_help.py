from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from satl import __version__
from satl.methods import METHODS, RULES, configure
from satl.methods.method import resolved_settings
from satl.runs.config import flat_settings

COMMANDS = (
    *(
        "inspect",
        "mask",
        "convert",
        "pack",
        "embed",
        "scenes",
        "train",
        "recipes",
        "evaluate",
        "compare",
        "predict",
        "methods",
        "thresholds",
        "zeroshot",
    ),
    *("experiment", "figures", "demo", "onnx"),
)
HEAVY = ("torch", "timm", "numpy", "matplotlib", "pyarrow", "accelerate", "scipy", "PIL", "onnx")


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['satl', '--help']\n"
        "from satl.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code\n"
        f"print('HEAVY', *(name for name in {HEAVY} if name in sys.modules))"
    )
    begun = os.times()
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ended = os.times()
    assert result.stdout.splitlines()[-1] == "HEAVY"
    # Of the processor alone: others may have it for a while. 0.2 s on an idle core, without any compiled module.
    spent = ended.children_user + ended.children_system - begun.children_user - begun.children_system
    assert spent < 1.5
    for command in COMMANDS:
        assert command in result.stdout


def test_the_version_is_that_of_the_package(satl: Callable[..., tuple[int, str, str]]) -> None:
    assert satl("--version") == (0, f"satl {__version__}\n", "")
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert 'version = { attr = "satl.__version__" }' in project  # which stands in one place


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_the_output_cannot_encode_is_escaped(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "t.csv").write_text("image,猫\na.jpg,1\nb.jpg,\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "satl", "inspect", "t.csv"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert r"\u732b" in done.stdout.decode(encoding)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
@pytest.mark.parametrize("arguments", [("methods",), ("--version",)])
def test_no_room_for_the_output_is_said_in_a_sentence(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "satl", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("error: the output cannot be written (No space left on device): make room")


def test_a_message_is_one_line_whatever_a_file_is_called(satl: Callable[..., tuple[int, str, str]]) -> None:
    code, _, err = satl("inspect", "no\nsuch\x1b[31m.csv")
    assert (code, err) == (2, "error: no\\nsuch\\x1b[31m.csv does not exist: check the path of the table.\n")


def test_every_command_has_help(satl: Callable[..., tuple[int, str, str]]) -> None:
    for command in COMMANDS:
        code, out, err = satl(command, "-h")
        assert (code, err) == (0, "")
        assert f"satl {command}" in out.replace("pytest", "satl")


def test_without_a_command_the_help_is_shown(satl: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = satl()
    assert code in (0, 2)
    assert "train" in out + err


def test_methods_lists_every_method_with_its_source(satl: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = satl("methods")
    assert (code, err) == (0, "")
    words = " ".join(out.split())
    for method in METHODS.values():
        assert f"\n{method.name} " in out
        assert (method.summary.split(". ")[0]).split()[0] in words
        assert method.reference.split(",")[0].removesuffix(".") in words
    assert "satl methods NAME" in out
    assert len(out.splitlines()) <= 4 * len(METHODS)


@pytest.mark.parametrize("name", list(METHODS))
def test_methods_shows_one_with_its_parts_and_what_can_be_set(
    satl: Callable[..., tuple[int, str, str]], name: str
) -> None:
    method = METHODS[name]
    code, out, err = satl("methods", name)
    assert (code, err) == (0, "")
    assert out.startswith(f"{name}\n{method.summary}\n{method.reference}\n")
    for part in (method.network, *method.generators, *method.stage1, *method.stage2, method.rule or "-"):
        assert part in out
    for key, value in flat_settings(resolved_settings(method, *configure(method, {}))).items():
        assert f"\nmethod.{key} = {value}  " in out


def test_methods_lists_the_threshold_rules(satl: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = satl("methods", "--rules")
    assert (code, err) == (0, "")
    for name, rule in RULES.items():
        assert f"{name}  {rule.summary}" in out
        one = satl("methods", "--rules", name)[1]
        for key, field in rule.parameters.model_fields.items():
            assert f"    method.thresholds.{key} = {field.default}  {field.description}" in one
            assert f"method.thresholds.{key} = " in out


def test_methods_answers_a_wrong_name_with_the_nearest(satl: Callable[..., tuple[int, str, str]]) -> None:
    for arguments, part in (
        (("sst+stal",), "no method 'sst+stal' (did you mean 'sst+satl'?)"),
        (("zzz",), "no method 'zzz'; known: "),
        (("mat",), "it is a threshold rule: satl methods --rules mat"),
        (("--rules", "flexmach"), "no rule 'flexmach' (did you mean 'flexmatch'?)"),
    ):
        code, out, err = satl("methods", *arguments)
        assert (code, out) == (2, "")
        assert part in err

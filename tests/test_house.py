"""Rules of the house that a reader relies on: import order, one name for one thing, no command-line words.

CONTRIBUTING draws the import order. Every exception below says why it is one, and fails where it is none any more.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "satl"
ORDER = (
    *("errors", "parsing", "files", "remote", "distributed", "checks", "sections"),
    *("evaluation", "labels", "scores", "images", "features", "scenes"),
    *("models", "scoring", "thresholds", "losses", "functional", "methods"),
    *("recipes", "runs", "training", "inference"),
    *("drawing", "completion", "review", "export", "experiments", "reports", "api", "demo", "cli"),
)
"""Rooms from left to right: each imports only from rooms to its left, deferred imports included."""
PARTS_OF_COMPLETION = ("statistics", "outputs", "workflow")
"""The same inside completion."""
FACADES = frozenset({"satl", "satl.__main__"})
"""Stand above all rooms: the public names, and what ``python -m satl`` runs."""
LONGEST_MODULE = 450
"""Lines."""

SAME_MODULES = {
    "readers": "of its room: one file a kind of scores, or of features",
    "registry": "of its room: data sets, readers, exporters",
    "functional": "the pure functions of its room, and of all rooms for users",
    "coco": "one format: the data set, its reader and its exporter",
    "kggr": "one paper: its network and its method",
    "ml_gcn": "one paper: its network and its method",
    "ssgrl": "one paper: its network and its method",
    "large_loss": "one paper: its loss, its rule and its method",
}
"""Names that several modules share because they mean the same."""

FOREIGN_OPTIONS = {"--head": "of `ray start`", "--sans": "a name in a style sheet"}
"""What looks like an option of satl and is none."""

DOCUMENTS = {
    "satl.demo.demo_run": "the mark of its demo.yaml says which command wrote it",
    "satl.experiments.experiment_folder": "the mark of its grid.yaml says which command wrote it",
    "satl.reports.model_card": "its card says how to use the model",
    "satl.review.gate": "its pages are called satl review",
    "satl.review.server": "its page says which command comes next",
}
"""Modules that write documents, which may name commands."""


@cache
def parsed() -> dict[str, ast.Module]:
    """Every module of satl by its name."""
    found = {}
    for file in sorted(SOURCE.rglob("*.py")):
        parts = ("satl", *file.relative_to(SOURCE).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(file.read_text(encoding="utf-8"))
        assert not any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(found[name]))
    return found


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def imported_modules(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Modules of satl that are imported anywhere in a module: at the top, deferred, for types only, by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (
                (alias.name, node.lineno) for alias in node.names if room_of(alias.name) != alias.name
            )
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            if node.module == "satl":  # a room, or a name of the package itself such as __version__
                yield from ((f"satl.{a.name}", node.lineno) for a in node.names if a.name in ORDER)
            else:
                yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Constant) and re.fullmatch(r"satl(\.\w+)+", str(node.value)):
            yield node.value, node.lineno  # import_module("satl.room.module")


def imports_to_the_right(modules: Iterable[str], order: tuple[str, ...], level: int) -> list[str]:
    """Imports that go to the right in an order of the names at a level of the module names."""
    wrong = []
    for module in modules:
        own = order.index(module.split(".")[level])
        for imported, line in imported_modules(parsed()[module]):
            parts = imported.split(".")
            if parts[:level] != module.split(".")[:level] or len(parts) <= level or parts[level] not in order:
                continue
            if order.index(parts[level]) > own:
                wrong.append(f"{module}, line {line}, imports {imported}")
    return wrong


def named_twice(homes: dict[str, list[str]], same: Iterable[str] = ()) -> list[str]:
    return [
        f"{name}: {', '.join(where)}" for name, where in homes.items() if len(where) > 1 and name not in same
    ]


def test_every_room_is_in_the_order():
    assert {room_of(name) for name in parsed()} - {"satl", "__main__"} == set(ORDER)


def test_imports_go_to_the_left_only():
    modules = [module for module in parsed() if module not in FACADES]
    wrong = imports_to_the_right(modules, ORDER, 1)
    assert not wrong, "\n".join(wrong)


def test_imports_inside_completion_go_to_the_left_only():
    modules = [module for module in parsed() if module.startswith("satl.completion.")]
    wrong = imports_to_the_right(modules, PARTS_OF_COMPLETION, 2)
    assert not wrong, "\n".join(wrong)


def test_one_name_is_one_module():
    homes = defaultdict(list)
    for module in parsed():
        if room_of(module) != "cli":  # its modules are called like their command
            homes[module.rpartition(".")[2]].append(module)
    twice = named_twice(homes, SAME_MODULES)
    assert not twice, "\n".join(twice)
    assert all(len(homes[name]) > 1 for name in SAME_MODULES)


def test_one_name_is_one_public_class():
    homes = defaultdict(list)
    for module, tree in parsed().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module)
    twice = named_twice(homes)
    assert not twice, "\n".join(twice)


def commands() -> set[str]:
    """The commands of the command line."""
    return set(import_module("satl.cli")._COMMANDS)


def texts(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """String literals of a module but docstrings and descriptions of settings."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))  # docstrings of modules, classes, functions and attributes
        if isinstance(node, ast.Call):
            described = [keyword.value for keyword in node.keywords if keyword.arg == "description"]
            skipped.update(id(part) for value in described for part in ast.walk(value))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value, node.lineno


def test_only_the_command_line_names_options_and_commands():
    pattern = re.compile(rf"(?<![\w-])--[a-z][\w-]*|\bsatl (?:{'|'.join(sorted(commands()))})\b")
    found = defaultdict(list)
    for module, tree in parsed().items():
        if room_of(module) != "cli":
            for text, line in texts(tree):
                found[module] += [(match, line) for match in pattern.findall(text)]
    named = {match for matches in found.values() for match, _ in matches}
    assert set(FOREIGN_OPTIONS) <= named
    assert all(found[module] for module in DOCUMENTS)
    wrong = [
        f"{module}, line {line}: {match}"
        for module, matches in found.items()
        for match, line in matches
        if module not in DOCUMENTS and match not in FOREIGN_OPTIONS
    ]
    assert not wrong, "\n".join(wrong)


def test_modules_can_be_read_in_one_sitting():
    lines = {file: file.read_text(encoding="utf-8").count("\n") for file in SOURCE.rglob("*.py")}
    long = {str(file.relative_to(SOURCE)): count for file, count in lines.items() if count > LONGEST_MODULE}
    assert not long

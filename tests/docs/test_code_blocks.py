"""Every block of code on the pages is run, or is marked with the reason why not, and is right as far as one can see.

Python with prompts is run as doctests (pyproject.toml; docs/labels.md by tests/labels/test_docs.py, which writes its
files first). Python without prompts is run here, or says in a comment before it which test runs it or why none does.
Configurations are validated, and commands are compared with the command line: every command and option exists.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from export.test_docs import decide
from programs import ROOT, load_program
from review.synthetic import small_folder
from satl.experiments.grid import make_grid
from satl.labels import write_table
from satl.runs.reading import make_config

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
BLOCK = re.compile(
    r"^(?P<margin> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=margin)```$", re.DOTALL | re.MULTILINE
)
MARK = re.compile(r"<!-- (not run: .+|run by (?P<test>\S+)) -->\s*\Z")
SHELL = ("sh", "console")
ELSEWHERE = {"README.md": "tests/test_readme.py"}
"""Pages whose blocks another test runs; a README shows its comments on some sites, so it has none."""
EXAMPLES = sorted(path for path in (ROOT / "examples").rglob("*") if path.is_file())
"""Files to begin with that pages refer to; their commands are compared with the command line too."""


class Block(NamedTuple):
    page: str
    language: str
    text: str
    mark: re.Match[str] | None

    @property
    def name(self) -> str:
        return f"{self.page}: {self.text.strip().splitlines()[0][:50]}"


def blocks(*languages: str) -> list[Block]:
    found = []
    for path in PAGES:
        page = path.relative_to(DOCS if path.is_relative_to(DOCS) else ROOT).as_posix()
        content = path.read_text(encoding="utf-8")
        for match in BLOCK.finditer(content):
            text = re.sub(rf"^{match['margin']}", "", match["text"], flags=re.MULTILINE)
            if match["language"] in languages:
                found.append(
                    Block(page, match["language"], text, MARK.search(content[: match.start()].rstrip()))
                )
    return found


def plain_python() -> list[Block]:
    return [block for block in blocks("python") if not block.text.lstrip().startswith(">>>")]


def to_run() -> dict[str, list[Block]]:
    """Return the blocks without a mark, page by page: a later one may build on an earlier one."""
    pages: dict[str, list[Block]] = {}
    for block in plain_python():
        if block.mark is None and block.page not in ELSEWHERE:
            pages.setdefault(block.page, []).append(block)
    return pages


def test_prompts_stand_where_doctests_are_looked_for() -> None:
    for block in blocks("python", "pycon", "py"):
        assert block.language == "python", block.name
        assert not (">>> " in block.text and not block.text.lstrip().startswith(">>> ")), block.name


def test_blocks_that_another_test_runs_are_known_to_it() -> None:
    for block in plain_python():
        test = ELSEWHERE.get(block.page) or (block.mark and block.mark["test"])
        if test:
            assert block.page in (ROOT / test).read_text(encoding="utf-8"), block.name


@pytest.mark.parametrize("block", plain_python(), ids=lambda block: block.name)
def test_what_python_imports_from_satl_exists(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "satl":
            module = importlib.import_module(node.module or "")
            for name in node.names:
                assert hasattr(module, name.name), f"{node.module}.{name.name}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the names of the pages exist: photos, a completion with a review, its table, a project."""
    from satl.export import export, read_source
    from satl.review.database import DecisionRequest, ReviewStore
    from satl.scenes import write_scenes

    monkeypatch.chdir(tmp_path)
    write_scenes("drawn", 3, size=32, image_format="jpg")
    Path("photos").mkdir()
    for name, file in zip("abc", sorted(Path("drawn").glob("*.jpg")), strict=True):
        shutil.copy(file, f"photos/{name}.jpg")
    done = small_folder(Path("completed"))
    kept = [row for row in done.rows if row[6] != "label-error"]
    lines = Path("completed/changes.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    Path("completed/changes.csv").write_text(
        "".join(line for line in lines if ",label-error," not in line), encoding="utf-8"
    )
    write_table(done.table, "labels.csv")
    shutil.copytree("completed", "out")
    export(read_source("out", suggestions_only=True), "label-studio", "exported.json")
    decide(Path("exported.json"), Path("project-1.json"))
    assert json.loads(Path("project-1.json").read_text(encoding="utf-8"))
    with ReviewStore("completed") as store:
        store.refresh()
        store.decide("tab", "first", [DecisionRequest(kept[0][0], kept[0][1], int(kept[0][2]), None)])
    return tmp_path


@pytest.mark.parametrize("page", sorted(to_run()))
def test_plain_python_runs(page: str, folder: Path) -> None:
    names: dict[str, object] = {"step": 0}
    for block in to_run()[page]:
        exec(compile(block.text, block.name, "exec"), names)


@pytest.mark.parametrize("block", blocks("yaml"), ids=lambda block: block.name)
def test_configurations_are_valid(block: Block) -> None:
    content = yaml.safe_load(block.text)
    if {"methods", "grid", "base"} & set(content):
        make_grid(content, block.page)
    else:
        make_config({"data": {"scenes": {}}, **content}, block.page)


class Command(NamedTuple):
    page: str
    line: str


def calls(page: str, lines: list[str]) -> list[Command]:
    """Return the calls of satl in lines of a shell."""
    parts = (part.strip() for line in lines for part in re.split(r"&&|\|(?= )", line.split(" #")[0]))
    found = (re.search(r"(?:^|-m )(satl .*)", part) for part in parts)
    return [Command(page, call[1]) for call in found if call]


def commands() -> list[Command]:
    """Return the lines of shell blocks and examples that call satl, and calls within sentences."""
    found = []
    for block in blocks(*SHELL):
        joined = block.text.replace("\\\n", " ")
        lines = [line.removeprefix("$ ") for line in joined.splitlines()]
        if block.language == "console":
            lines = [line[2:] for line in joined.splitlines() if line.startswith("$ ")]
        found += calls(block.page, lines)
    for path in EXAMPLES:
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
        found += calls(path.relative_to(ROOT).as_posix(), text.splitlines())
    for path in PAGES:
        page = path.relative_to(DOCS if path.is_relative_to(DOCS) else ROOT).as_posix()
        text = BLOCK.sub("", path.read_text(encoding="utf-8"))
        found += [Command(page, " ".join(line.split())) for line in re.findall(r"`(satl\s[a-z][^`]+)`", text)]
    return sorted(set(found))


CLI = load_program("tools/write_cli_page.py")
KNOWN = {name: CLI.parameters(function) for name, function in CLI.commands().items()}
KEYS = set(
    re.findall(
        r"`((?:data|images|features|model|method|training)\.[\w.]+)`",
        "".join(path.read_text(encoding="utf-8") for path in (DOCS / "configuration").glob("*.md")),
    )
) | {"method.name", "method.thresholds.rule"}

OWN_KEYS = ("own_method.md",)
"""Pages that declare keys of their own."""


def test_there_are_commands_of_every_kind() -> None:
    assert {shlex.split(command.line)[1] for command in commands()} >= set(KNOWN)


def test_every_example_calls_satl_and_is_named_on_a_page() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in PAGES)
    for path in EXAMPLES:
        name = path.relative_to(ROOT).as_posix()
        assert f"`{name}`" in text, name
        assert [command for command in commands() if command.page == name], name


@pytest.mark.parametrize("command", commands(), ids=lambda command: f"{command.page}: {command.line}")
def test_commands_can_be_parsed(command: Command) -> None:
    _, verb, *words = shlex.split(command.line.replace("[", " ").replace("]", " "))
    if verb in ("--version", "--install-completion"):
        return
    assert verb in KNOWN, verb
    arguments = [parameter for parameter in KNOWN[verb] if not parameter.option]
    options = {name: parameter for parameter in KNOWN[verb] if parameter.option for name in parameter.names}
    given = 0
    while words:
        word = words.pop(0)
        if word.startswith("-"):
            name, _, value = word.partition("=")
            assert name in options or name in ("--help", "-h"), name
            if name in options and options[name].kind is not bool and not value and words:
                value = words.pop(0)
            if name == "--set" and verb in ("train", "complete") and "=" in value:
                key = value.partition("=")[0]
                assert key in KEYS or key.isupper() or command.page in OWN_KEYS, value
        elif word not in ("...", "and"):
            given += 1
    several = any(parameter.several for parameter in arguments)
    assert several or given <= len(arguments), f"{given} arguments for {len(arguments)}"

"""Nothing in the source can run code from a file: no pickle, no evaluated text, no shell, found in the syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(file for folder in ("src", "tools", "benchmarks") for file in (ROOT / folder).rglob("*.py"))
MODULES = {
    *("pickle", "cPickle", "_pickle", "dill", "joblib", "cloudpickle", "shelve", "marshal"),
    *("xml.sax", "xml.dom", "lxml", "xmlrpc", "pty", "telnetlib", "ftplib"),
}
"""Modules that nothing imports: they run code from files, or expand what a stranger's XML asks for."""
CALLS = {
    *("eval", "exec", "compile", "__import__", "os.system", "os.popen", "tempfile.mktemp"),
    *("yaml.unsafe_load", "yaml.full_load", "yaml.load_all", "yaml.unsafe_load_all", "yaml.full_load_all"),
    *("pandas.read_pickle", "pd.read_pickle", "torch.jit.load", "torch.hub.load", "shutil.unpack_archive"),
    *("np.fromregex", "numpy.fromregex"),
}
METHODS = {"extractall"}
ESCAPING = "xml.sax.saxutils"
"""It reads nothing."""
SAFE_LOADERS = {"_LOADER", "SafeLoader", "CSafeLoader", "yaml.SafeLoader", "yaml.CSafeLoader"}


def faults(text: str) -> list[str]:
    """What in a module could run code from outside, with its line."""
    return [f"line {node.lineno}: {what}" for node in ast.walk(ast.parse(text)) for what in _faults_of(node)]


def _faults_of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    else:
        names = []
    for name in names:
        if not name.startswith(ESCAPING) and any(
            name == module or name.startswith(f"{module}.") for module in MODULES
        ):
            yield f"imports {name}"
    if not isinstance(node, ast.Call):
        return
    name = ast.unparse(node.func)
    options = {option.arg: ast.unparse(option.value) for option in node.keywords}
    if name in CALLS or (isinstance(node.func, ast.Attribute) and node.func.attr in METHODS):
        yield f"calls {name}"
    if name == "torch.load" and options.get("weights_only") != "True":
        yield "calls torch.load without weights_only=True"
    if options.get("allow_pickle", "False") != "False":
        yield f"calls {name} with allow_pickle"
    if options.get("shell", "False") != "False":
        yield f"calls {name} with a shell"
    if name == "parse_yaml" and not {*map(ast.unparse, node.args[1:]), *options.values()} <= SAFE_LOADERS:
        yield "calls parse_yaml without a safe loader"
    if name == "yaml.load" and [ast.unparse(one) for one in node.args[1:]] == ["loader"]:
        return  # that of parse_yaml, whose calls are looked at
    if name in ("yaml.load", "load") and (
        {*map(ast.unparse, node.args[1:]), *options.values()}.isdisjoint(SAFE_LOADERS) and name == "yaml.load"
    ):
        yield "calls yaml.load without a safe loader"
    if options.get("trust_remote_code", "False") != "False":
        yield f"calls {name} with trust_remote_code"


@pytest.mark.parametrize(
    "text",
    [
        *("import pickle", "from pickle import loads", "from xml.dom import minidom", "import joblib"),
        *("eval('1')", "exec(text)", "os.system(text)", "tempfile.mktemp()", "yaml.unsafe_load(text)"),
        *("torch.load(file)", "torch.load(file, weights_only=False)", "torch.load(file, weights_only=given)"),
        *("np.load(file, allow_pickle=True)", "np.lib.format.read_array(file, allow_pickle=given)"),
        *("yaml.load(text)", "yaml.load(text, yaml.Loader)", "yaml.load(text, Loader=yaml.FullLoader)"),
        *("subprocess.run(text, shell=True)", "archive.extractall(folder)", "f(trust_remote_code=True)"),
    ],
)
def test_the_test_finds_it(text: str) -> None:
    assert len(faults(text)) >= 1


def test_what_is_safe_passes() -> None:
    safe = "torch.load(f, weights_only=True); np.load(f); yaml.load(t, _LOADER); model.eval(); re.compile(x)"
    assert faults(safe) == []


def test_no_source_runs_code_from_a_file() -> None:
    assert len(SOURCES) > 300
    found = {str(file.relative_to(ROOT)): faults(file.read_text()) for file in SOURCES}
    assert {name: what for name, what in found.items() if what} == {}


def test_the_loader_of_yaml_is_the_safe_one() -> None:
    import yaml

    from satl.inference import run_record

    assert issubclass(run_record._LOADER, yaml.SafeLoader | getattr(yaml, "CSafeLoader", yaml.SafeLoader))

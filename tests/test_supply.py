"""The bill of materials names every tested package, and an audit without answers is not called clean."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from audit import exit_code, verdict
from sbom import bill, locked, main

ROOT = Path(__file__).parents[1]
COMPONENT = {"type", "bom-ref", "name", "version", "purl", "scope", "licenses"}


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    return json.loads(json.dumps(bill()))


def test_the_bill_has_every_locked_package_once(content: dict[str, Any]) -> None:
    listed = [(one["name"], one["version"]) for one in content["components"]]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = [tuple(line.split("==")) for line in lines if line and not line.startswith("#")]
    assert all(len(pair) == 2 for pair in pinned)
    assert listed == sorted((re.sub(r"[-_.]+", "-", name).lower(), version) for name, version in pinned)
    assert dict(listed) == locked((ROOT / "constraints.txt").read_text())


def test_the_bill_is_cyclonedx(content: dict[str, Any]) -> None:
    """What the schema of CycloneDX 1.5 asks of the parts that are used here."""
    assert (content["bomFormat"], content["specVersion"], content["version"]) == ("CycloneDX", "1.5", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", content["serialNumber"])
    own = content["metadata"]["component"]
    every = [own, *content["components"]]
    references = [one["bom-ref"] for one in every]
    assert len(references) == len(set(references))
    for one in every:
        assert set(one) <= COMPONENT
        assert one["type"] == "library"
        assert one["purl"] == f"pkg:pypi/{one['name']}@{one['version']}"
        for licence in one.get("licenses", ()):
            (kind,) = licence
            assert licence["expression"] if kind == "expression" else licence["license"]["name"]
    assert [one["ref"] for one in content["dependencies"]] == sorted(references)
    for one in content["dependencies"]:
        assert set(one["dependsOn"]) <= set(references)
        assert len(one["dependsOn"]) == len(set(one["dependsOn"]))


def test_what_satl_needs_is_required_and_tools_are_not(content: dict[str, Any]) -> None:
    scope = {one["name"]: one["scope"] for one in content["components"]}
    assert {
        scope[name] for name in ("torch", "numpy", "pydantic", "pydantic-core", "jinja2", "markupsafe")
    } == {"required"}
    assert {scope[name] for name in ("pytest", "ruff", "mypy", "schemathesis", "ray")} == {"optional"}


def test_the_same_versions_give_the_same_bytes(tmp_path: Path) -> None:
    main([str(tmp_path / "a.json")])
    code = f"import sbom; sbom.main([{str(tmp_path / 'b.json')!r}])"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT / "tools", env={"PYTHONHASHSEED": "7"})
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


CLEAN = {"name": "a", "version": "1", "vulns": []}
SKIPPED = {"name": "b", "skip_reason": "not found"}
FOUND = {"name": "c", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}


@pytest.mark.parametrize(
    ("packages", "code", "says"),
    [
        ([CLEAN], 0, "1 versions asked about, none"),
        ([CLEAN, SKIPPED], 2, "1 not: b"),
        ([SKIPPED], 2, "Nothing was audited"),
        ([], 2, "Nothing was audited"),
        ([CLEAN, FOUND, SKIPPED], 1, "c 2: PYSEC-1, fixed in 3"),
    ],
)
def test_an_audit_without_answers_is_not_clean(packages: list[dict[str, Any]], code: int, says: str) -> None:
    given, lines = verdict({"dependencies": packages})
    assert given == code
    assert says in "\n".join(lines)
    assert verdict(None)[0] == 2


def test_ci_fails_for_an_advisory_and_not_for_a_service_out_of_reach() -> None:
    assert [exit_code(code, where_reachable=True) for code in (0, 1, 2)] == [0, 1, 0]
    assert [exit_code(code, where_reachable=False) for code in (0, 1, 2)] == [0, 1, 2]
    assert "audit-where-reachable" in (ROOT / ".ci" / "run").read_text()

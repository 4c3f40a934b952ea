"""Write the software bill of materials of the tested versions as CycloneDX JSON: python tools/sbom.py FILE

Every package of ``constraints.txt`` is in it, with its licence and what it needs where it is installed here. The same
versions give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tomllib
import uuid
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

import satl

ROOT = Path(__file__).parents[1]
_LONGEST_LICENCE = 100
"""Some packages give the whole text where a name belongs."""


def locked(text: str) -> dict[str, str]:
    """Return the names and versions of a file of constraints.

    >>> locked("# tested\\nPyYAML==6.0.3\\n\\nzope.interface==7 # why\\n")
    {'pyyaml': '6.0.3', 'zope-interface': '7'}
    """
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    pairs = (line.split("==") for line in lines if line)
    return {canonicalize_name(name): version for name, version in pairs}


def needs(requirements: Iterable[str], extras: frozenset[str] = frozenset()) -> set[str]:
    """Return the packages that requirements name on this system.

    >>> sorted(needs(["a>=1", "b; extra == 'fast'", "c; python_version < '3'"], frozenset({"fast"})))
    ['a', 'b']
    """
    found = set()
    for text in requirements:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            found.add(canonicalize_name(requirement.name))
    return found


def _reference(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


def _component(name: str, version: str, required: bool) -> dict[str, Any]:
    reference = _reference(name, version)
    component = {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": version,
        "purl": reference,
        "scope": "required" if required else "optional",
    }
    licence = _licence(name)
    return {**component, "licenses": [licence]} if licence else component


def _licence(name: str) -> dict[str, Any] | None:
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return None
    if expression := about.get("License-Expression"):
        return {"expression": expression}
    stated = (about.get("License") or "").strip()
    if not stated or "\n" in stated or len(stated) > _LONGEST_LICENCE:
        classifiers = about.get_all("Classifier") or []
        names = [text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License :: ")]
        stated = " / ".join(names)
    return {"license": {"name": stated}} if stated else None


def _requirements(name: str) -> set[str]:
    try:
        return needs(metadata.requires(name) or ())
    except metadata.PackageNotFoundError:
        return set()


def bill(root: Path = ROOT) -> dict[str, Any]:
    """Return the bill: satl, every locked package, and which needs which."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = locked((root / "constraints.txt").read_text(encoding="utf-8"))
    edges = {name: _requirements(name) & set(versions) for name in versions}
    direct = needs(project["dependencies"]) & set(versions)
    required, waiting = set(), set(direct)
    while waiting:
        required |= waiting
        waiting = set().union(*(edges[name] for name in waiting)) - required
    own = _reference(project["name"], satl.__version__)
    extras = needs(text for some in project["optional-dependencies"].values() for text in some) & set(
        versions
    )
    graph = {own: direct | extras, **{_reference(name, versions[name]): edges[name] for name in versions}}
    content = {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": project["name"],
                "version": satl.__version__,
                "purl": own,
                "licenses": [{"expression": project["license"]}],
            }
        },
        "components": [_component(name, versions[name], name in required) for name in sorted(versions)],
        "dependencies": [
            {"ref": reference, "dependsOn": sorted(_reference(name, versions[name]) for name in names)}
            for reference, names in sorted(graph.items())
        ],
    }
    # A number of its own for each content, and the same for the same.
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return {**content, "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}"}


def main(arguments: list[str]) -> None:
    """Write the bill to the file that is named, by default ``dist/satl-VERSION.cdx.json``."""
    content = bill()
    version = content["metadata"]["component"]["version"]
    file = Path(arguments[0]) if arguments else ROOT / "dist" / f"satl-{version}.cdx.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    without = sum("licenses" not in one for one in content["components"])
    print(f"{file}: {len(content['components'])} packages, {without} without a licence in their metadata")


if __name__ == "__main__":
    main(sys.argv[1:])

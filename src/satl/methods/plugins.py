"""Methods of other installed packages.

A package names its modules under the entry point ``satl.methods``; importing one of them registers its methods and
parts, as the files of this folder do. So they are known wherever satl runs, also in the processes of an experiment.
A module that is itself run as a script registers them by itself.
"""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

from satl.errors import ConfigError

GROUP = "satl.methods"


def load_plugins() -> None:
    """Import every module that an installed package names."""
    for entry in entry_points(group=GROUP):
        try:
            if _is_running(entry):
                sys.modules.setdefault(entry.module, sys.modules["__main__"])
            else:
                entry.load()
        except Exception as error:
            reason = str(error).strip().splitlines() or ["no message"]
            package = entry.name if entry.dist is None else entry.dist.name
            raise ConfigError(
                f"the package {package} brings methods for satl ({entry.value}) that cannot be loaded "
                f"({type(error).__name__}: {reason[0]}); fix or uninstall it."
            ) from error


def plugin_versions() -> dict[str, str]:
    """Return the version of each package with methods, by its name."""
    found = (entry.dist for entry in entry_points(group=GROUP))
    return {dist.name: dist.version for dist in found if dist is not None}


def _is_running(entry: EntryPoint) -> bool:
    """Whether the module is the script that runs, which would otherwise be read, and register everything, twice."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    module = find_spec(entry.module)
    if script is None or module is None or module.origin is None:
        return False
    return Path(script).resolve() == Path(module.origin).resolve()

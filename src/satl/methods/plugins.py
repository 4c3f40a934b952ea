"""Methods that other packages bring along.

A package names its modules under the entry point ``satl.methods``; importing one of them registers its methods and
parts, as the files of this folder do. So they are known wherever satl runs, also in the processes of an experiment.
A module that is run as a script is imported here a second time, beside itself; what it then registers once more
replaces what was registered.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from satl.errors import ConfigError

GROUP = "satl.methods"


def load_plugins() -> None:
    """Import every module that an installed package names."""
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:
            reason = str(error).strip().splitlines() or ["no message"]
            raise ConfigError(
                f"the package {_package(entry)} brings methods for satl ({entry.value}) that cannot be loaded "
                f"({type(error).__name__}: {reason[0]}); mend or uninstall it."
            ) from error


def plugin_versions() -> dict[str, str]:
    """Return the version of each package that brings methods, by its name."""
    found = (entry.dist for entry in entry_points(group=GROUP))
    return {dist.name: dist.version for dist in found if dist is not None}


def _package(entry: EntryPoint) -> str:
    return entry.name if entry.dist is None else entry.dist.name

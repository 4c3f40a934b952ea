"""Programs beside the package, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]


def load_program(path: str) -> ModuleType:
    """Return a fresh module of a program; ``path`` is relative to the project's root.

    Programs may import what lies beside them, as when they are run.
    """
    file = ROOT / path
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    specification = importlib.util.spec_from_file_location(file.stem, file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module

"""Where satl keeps on this machine what it can make or fetch again."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

VARIABLE = "SATL_CACHE"
"""Environment variable that names the folder, or says ``off``."""


def cache_root() -> Path | None:
    """Return the folder of all caches, or None where there is no such place or ``SATL_CACHE=off``."""
    named = os.environ.get(VARIABLE)
    if named:
        return None if named.lower() == "off" else Path(named).expanduser()
    try:
        return platformdirs.user_cache_path("satl", appauthor=False)
    except RuntimeError:  # a user without a home
        return None

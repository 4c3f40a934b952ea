"""Memory that a loop frees and takes again at every batch stays with the process while the loop runs.

The C library of most Linux systems takes blocks above 32 MB, as the maps of a network are, from the system and returns
them when they are freed. The system fills each with zeros, page by page: a third of the time of a ResNet-50 on two
cores (``benchmarks/kept_memory.py``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
"""Settings of ``mallopt`` of the GNU C library."""
_KEPT = {_MMAP_MAX: 0, _TRIM_THRESHOLD: -1}
_USUAL = {_MMAP_MAX: 65_536, _MMAP_THRESHOLD: 32 << 20, _TRIM_THRESHOLD: 64 << 20}
"""What the library itself arrives at in a process that frees large blocks: it no longer moves what was once set."""


def _library() -> ctypes.CDLL | None:
    """Return the C library of this process, if it is one that takes these settings."""
    try:
        library = ctypes.CDLL(None)
    except (OSError, TypeError):  # a system that names its libraries
        return None
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None


@contextmanager
def memory_is_kept() -> Iterator[None]:
    """Keep memory that is freed, and give it back to the system in the end; elsewhere than on Linux do nothing.

    It holds for the whole process, so what other threads free meanwhile is kept too.
    """
    library = _library()
    if library is None:
        yield
        return
    for setting, value in _KEPT.items():
        library.mallopt(setting, value)
    try:
        yield
    finally:
        for setting, value in _USUAL.items():
            library.mallopt(setting, value)
        library.malloc_trim(0)

"""What was read from a large annotation file, kept so that the next time takes no time.

One small file per source, in the folder ``cache_folder()``. It is used only if the source still has the
size, the time of change and the sampled content it had, and if the cache file itself is whole; a source of
the same size whose time of change differs (a copy, a ``touch``) is compared by its full content. Anything
else is read again from the source. A folder that cannot be written costs time, never a result.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from satl.files import atomic_path
from satl.remote.cache_place import cache_root

_FORMAT = "satl annotation cache 1"
_SAMPLES = 16
_SAMPLE_BYTES = 4096

Arrays = Mapping[str, npt.NDArray[Any]]


def cache_folder() -> Path | None:
    """Return where caches are kept, or None where there is no such place or ``SATL_CACHE=off``."""
    root = cache_root()
    return None if root is None else root / "labels"


def cached_arrays(source: Path, kind: str, build: Callable[[], Arrays]) -> Arrays:
    """Return ``build()``, or what it returned the last time for the same content of ``source``.

    Args:
        kind: names and numbers the way of reading, such as ``"instances 1"``; another kind is another cache.
        build: returns arrays of numbers or text, no objects.
    """
    folder = cache_folder()
    if folder is None:
        return build()
    place = str(source.resolve())
    key = hashlib.blake2b(json.dumps([_FORMAT, kind, place]).encode(), digest_size=16).hexdigest()
    file = folder / f"{source.stem[:40]}-{key}.cache"
    try:
        before = fingerprint(source)
        kept = _load(file, source, before)
    except OSError:
        return build()
    if kept is not None:
        return kept
    arrays = build()
    try:
        # A file that changed while it was read is not worth keeping.
        if fingerprint(source) == before:
            header = {**before, "content": _content_hash(source), "source": place, "kind": kind}
            _store(file, header, _packed(arrays))
    except OSError:
        pass
    return arrays


def fingerprint(source: Path) -> dict[str, Any]:
    """Return size, time of change and a hash of evenly spaced samples: quick at any size."""
    state = source.stat()
    digest = hashlib.blake2b(digest_size=16)
    with source.open("rb") as stream:
        for place in np.linspace(0, max(0, state.st_size - _SAMPLE_BYTES), _SAMPLES).astype(int).tolist():
            stream.seek(place)
            digest.update(stream.read(_SAMPLE_BYTES))
    return {"size": state.st_size, "changed_ns": state.st_mtime_ns, "sample": digest.hexdigest()}


def _load(file: Path, source: Path, now: Mapping[str, Any]) -> Arrays | None:
    """Return the arrays of a cache file that is whole and still true, else None."""
    try:
        line, _, payload = file.read_bytes().partition(b"\n")
        header = json.loads(line)
        if header["format"] != _FORMAT or header["payload"] != _hash(payload):
            return None
        if any(header[key] != now[key] for key in ("size", "sample")):
            return None
        if header["changed_ns"] != now["changed_ns"]:
            if header["content"] != _content_hash(source):
                return None
            _store(file, {**header, "changed_ns": now["changed_ns"]}, payload)
        with np.load(io.BytesIO(payload), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except Exception:
        # Damage takes any form (bytes, JSON, zip, shapes), and the remedy is always to read the source.
        return None


def _store(file: Path, header: Mapping[str, Any], payload: bytes) -> None:
    line = json.dumps({**header, "format": _FORMAT, "payload": _hash(payload)})
    with atomic_path(file) as temporary:
        temporary.write_bytes(line.encode() + b"\n" + payload)


def _packed(arrays: Arrays) -> bytes:
    buffer = io.BytesIO()
    # Without allow_pickle, which NumPy 2.0 takes for one more array.
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _content_hash(source: Path) -> str:
    with source.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()

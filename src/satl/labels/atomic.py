"""Write a file completely or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from satl.errors import ConfigError


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it takes the name ``path``, on error it is removed.

    The folder is created where it is missing. The temporary name keeps the extension, because some
    writers (``numpy.savez``) choose or append one, and begins with a dot, so that a pattern such as
    ``*.csv`` never meets a half-written file.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "numbers.txt"
    >>> with atomic_path(target) as temporary:
    ...     _ = temporary.write_text("1 2 3")
    >>> target.read_text(), [p.name for p in target.parent.iterdir()]
    ('1 2 3', ['numbers.txt'])
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.stem}.{secrets.token_hex(4)}.partial{target.suffix}")
    try:
        yield temporary
        temporary.replace(target)
    except BaseException:
        # BaseException: an interrupt must not leave a partial file behind either.
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)
        raise


def check_out(path: Path, *endings: str) -> None:
    """Refuse a file for ``--out`` that could not be written in the end, before the work begins.

    >>> check_out(Path("scores.txt"), ".csv", ".jsonl")
    Traceback (most recent call last):
    satl.errors.ConfigError: --out scores.txt: cannot be written as '.txt'; end the name in .csv or .jsonl.
    """
    folder = path.absolute().parent
    if path.suffix not in endings:
        raise ConfigError(
            f"--out {path}: cannot be written as '{path.suffix}'; end the name in {' or '.join(endings)}."
        )
    if path.is_dir():
        raise ConfigError(f"--out {path}: is a folder; give the name of a file.")
    if not folder.is_dir():
        raise ConfigError(f"--out {path}: the folder {path.parent} does not exist; make it first.")
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"--out {path}: the folder {path.parent} cannot be written to; give another one.")

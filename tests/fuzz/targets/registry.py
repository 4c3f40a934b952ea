"""The targets by name: what an input is, and how it is read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

CORPUS = Path(__file__).parents[1] / "corpus"


@dataclass(frozen=True)
class Target:
    """Something that reads what others wrote.

    Attributes:
        name: its folder in the corpus, a slash, and the file in that folder that inputs take the place of.
        kind: of the file, which chooses the mutators: text, json, jsonl, yaml, xml, npy, npz, zip, gzip, parquet,
            arrow, bytes.
        check: (work folder, input); reads the input and what belongs to it. Returns whether it was accepted, or
            raises satl's own error; any other error is a fault.
        seeds: further files of the corpus folder that inputs are made from.
        share: of all inputs, against 1 of most targets; less for slow ones.
        refusals: further errors that are an answer, of functions whose caller words them.
        tokens: words of the format, put into inputs now and then.
    """

    name: str
    kind: str
    check: Callable[[Path, bytes], bool]
    seeds: tuple[str, ...] = ()
    share: float = 1.0
    refusals: tuple[type[Exception], ...] = ()
    tokens: tuple[bytes, ...] = ()

    @property
    def folder(self) -> Path:
        """Its folder in the corpus."""
        return CORPUS / self.name.partition("/")[0]

    @property
    def file(self) -> str:
        """The file that inputs take the place of, relative to the folder."""
        return self.name.partition("/")[2]

    @cached_property
    def inputs(self) -> tuple[bytes, ...]:
        """The valid inputs that others are made from."""
        return tuple((self.folder / name).read_bytes() for name in (self.file, *self.seeds))

    def prepare(self, work: Path) -> None:
        """Copy the corpus folder, of which each input then replaces one file."""
        shutil.copytree(self.folder, work, dirs_exist_ok=True)


TARGETS: dict[str, Target] = {}


def register(target: Target) -> Target:
    """Add a target under its name; a name is taken once."""
    if target.name in TARGETS:
        raise ValueError(f"a target called {target.name!r} exists already")
    TARGETS[target.name] = target
    return target


def register_file(
    name: str,
    kind: str,
    read: Callable[[Path], object],
    *,
    seeds: tuple[str, ...] = (),
    share: float = 1.0,
    refusals: tuple[type[Exception], ...] = (),
    tokens: tuple[bytes, ...] = (),
) -> Target:
    """Add a target that is a file; ``read`` gets the work folder, in which the input lies in its place."""
    place = name.partition("/")[2]

    def check(work: Path, data: bytes) -> bool:
        (work / place).write_bytes(data)
        read(work)
        return True

    return register(Target(name, kind, check, seeds, share, refusals, tokens))

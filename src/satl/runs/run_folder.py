"""The folder of a run: the only module that knows the names of its files."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from satl.errors import Argument, ConfigError, RunError, Sentence, Task
from satl.files import atomic_path
from satl.methods.old_keys import with_new_keys
from satl.runs.config import RunConfig
from satl.runs.reading import make_config

_REMOVED = ".removed"
"""Ending of a checkpoint that is being removed."""
_A_RUN = Sentence("give a folder that {train} wrote", train=Task("train", out=None))


class RunFolder:
    """The files of a run.

    ``config.yaml``, ``classes.json``, ``data.json`` (how its labels are recognised), ``metrics.jsonl`` (a line an
    epoch), ``train.log``, ``environment.json``, ``thresholds.csv``, ``checkpoints/last`` (everything needed to resume)
    and ``checkpoints/best`` (weights and thresholds of the epoch with the best validation mAP). With ``data.holdout``
    also ``labels.npz``, everything that was known, and ``held_out.npz``, which of it training did not see. A
    finished run of an experiment has ``result.json``, and perhaps no checkpoints any more.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.metrics = self.path / "metrics.jsonl"
        self.log = self.path / "train.log"
        self.environment = self.path / "environment.json"
        self.thresholds = self.path / "thresholds.csv"
        self.classes = self.path / "classes.json"
        self.data = self.path / "data.json"
        self.checkpoints = self.path / "checkpoints"
        self.labels = self.path / "labels.npz"
        self.held_out = self.path / "held_out.npz"
        self.result = self.path / "result.json"
        self.curves = self.path / "tensorboard"

    @property
    def resume_task(self) -> Task:
        """What resumes the run."""
        return Task("train", resume=self.path)

    @property
    def new_run_task(self) -> Task:
        """What starts a new run with the same configuration."""
        return Task("train", self.config, out="NEW")

    @classmethod
    def create(cls, path: Path | str) -> RunFolder:
        """Make a new run folder; an existing run is never overwritten."""
        folder = cls.check_free(path)
        try:
            folder.checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise folder._refused(f"cannot be made ({error.strerror})") from error
        return folder

    @classmethod
    def check_free(cls, path: Path | str) -> RunFolder:
        """Raise RunError if a new run cannot be put there; nothing is written."""
        folder = cls(path)
        try:
            taken = folder.config.exists()
        except OSError as error:
            raise folder._refused(f"cannot be looked into ({error.strerror})") from error
        if taken:
            resume = Sentence("resume it with {resume}, or choose another folder", resume=folder.resume_task)
            raise folder._refused("already holds a run", resume)
        if folder.path.exists() and not folder.path.is_dir():
            raise folder._refused("is a file, not a folder")
        return folder

    def _refused(self, what: str, remedy: Sentence | str = "choose another folder") -> RunError:
        return RunError(what, where=Argument("out", self.path), remedy=remedy)

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """Open an existing run folder."""
        folder = cls(path)
        if not folder.path.is_dir():
            raise RunError("is not a folder", where=folder.path, remedy=_A_RUN)
        if not folder.config.is_file():
            raise RunError("holds no config.yaml, so it is not a run", where=folder.path, remedy=_A_RUN)
        return folder

    def read_config(self) -> RunConfig:
        """Return the configuration the run was started with."""
        try:
            content = yaml.safe_load(self.config.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise _unreadable(self.config) from error
        if not isinstance(content, dict):
            content = {}
        try:
            if isinstance(content.get("method"), dict):
                content["method"] = with_new_keys(content["method"])
            return make_config(content, str(self.config))
        except ConfigError as error:
            gone = self._packages_gone()
            if not gone:
                raise
            raise RunError(
                f"{error} The run was made with {', '.join(gone)}, which is not installed here; install it first."
            ) from error

    def _packages_gone(self) -> list[str]:
        """Return the packages whose methods the run may need and that are not installed."""
        from satl.runs.environment import missing_packages

        try:
            return missing_packages(json.loads(self.environment.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return []  # only a remark is lost

    def require_inputs(self, config: RunConfig) -> None:
        """Refuse a run whose table or images were moved since, and say where to write their new place."""
        for key in ("table", "truth", "images", "root", "holdout_from"):
            place = getattr(config.data, key)
            try:
                gone = place is not None and not place.exists()
            except OSError:
                gone = False  # not accessible: reading it gives a better error
            if gone:
                raise RunError(
                    f"{place}, its data.{key}, does not exist",
                    where=self.path,
                    remedy=f"put it back, or write its new place into {self.config}",
                )

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the rows of ``metrics.jsonl``; a half-written last line is left out."""
        if not self.metrics.exists():
            return []
        rows = []
        for line in self.metrics.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return rows

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """Add the row of an epoch."""
        line = json.dumps(row, allow_nan=False) + "\n"
        with self._translate_disk_error(self.metrics), self.metrics.open("a", encoding="utf-8") as file:
            file.write(line)

    def keep_metrics_before(self, epoch: int) -> None:
        """Drop the rows of ``epoch`` and later, which a resumed run will write again."""
        rows = [row for row in self.read_metrics() if row["epoch"] < epoch]
        with atomic_path(self.metrics) as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def write_thresholds(self, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Write ``thresholds.csv``."""
        with (
            atomic_path(self.thresholds) as temporary,
            temporary.open("w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)

    def write_facts(self, classes: Sequence[str], fingerprint: str, environment: Mapping[str, Any]) -> None:
        """Write ``classes.json``, ``data.json`` and ``environment.json``.

        Args:
            classes: names of the classes, in the order of the network's outputs.
            fingerprint: digest of the labels and the split.
            environment: versions, device and time.
        """
        for file, content, indent in (
            (self.classes, list(classes), None),
            (self.data, {"fingerprint": fingerprint}, None),
            (self.environment, environment, 2),
        ):
            with atomic_path(file) as temporary:
                text = json.dumps(content, indent=indent, ensure_ascii=False) + "\n"
                temporary.write_text(text, encoding="utf-8")

    def read_classes(self) -> tuple[str, ...]:
        """Return the class names."""
        try:
            classes = json.loads(self.classes.read_text(encoding="utf-8"))
            if not isinstance(classes, list):
                raise ValueError("a list of names is needed")
            return tuple(map(str, classes))
        except (OSError, ValueError) as error:
            raise _unreadable(self.classes) from error

    def read_fingerprint(self) -> str | None:
        """Return the digest of the labels and the split; None for a run of a version that wrote none."""
        try:
            return str(json.loads(self.data.read_text(encoding="utf-8"))["fingerprint"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _unreadable(self.data) from error

    @contextmanager
    def new_checkpoint(self, name: str) -> Iterator[Path]:
        """Yield a folder to write a checkpoint into; it takes the place of the old one only when complete."""
        final = self.checkpoints / name
        fresh, old = final.with_name(f"{name}.new"), final.with_name(f"{name}.old")
        with self._translate_disk_error(final):
            for leftover in (fresh, old):
                if leftover.exists() and (leftover == fresh or final.exists()):
                    shutil.rmtree(leftover)
            fresh.mkdir(parents=True)
            try:
                yield fresh
            except OSError:
                shutil.rmtree(fresh, ignore_errors=True)  # a disk that is full needs the room
                raise
            if final.exists():
                final.replace(old)
            fresh.replace(final)
        shutil.rmtree(old, ignore_errors=True)

    @contextmanager
    def _translate_disk_error(self, place: Path) -> Iterator[None]:
        """Turn an error of the disk into one sentence that says how to resume the run."""
        try:
            yield
        except OSError as error:
            raise RunError(
                f"cannot be written ({error.strerror or error})",
                where=place,
                remedy=Sentence(
                    "make room on the disk or make the folder writable, then resume from the last checkpoint with "
                    "{resume}",
                    resume=self.resume_task,
                ),
            ) from error

    def find_checkpoint(self, name: str) -> Path | None:
        """Return the folder of a checkpoint if there is one."""
        final = self.checkpoints / name
        old = final.with_name(f"{name}.old")  # the process died between two renames
        return next((candidate for candidate in (final, old) if candidate.is_dir()), None)

    def checkpoint(self, name: str) -> Path:
        """Return the folder of a checkpoint; raise RunError if there is none."""
        place = self.find_checkpoint(name)
        if place is not None:
            return place
        remedy = Sentence("the run was stopped before it wrote one, remove the folder and start again")
        if self.result.is_file():
            remedy = Sentence(
                "its experiment did not keep it (`models` of the grid), train it again with {train}",
                train=self.new_run_task,
            )
        elif name != "last" and (self.checkpoints / "last").is_dir():
            remedy = Sentence("no epoch was validated yet, resume with {resume}", resume=self.resume_task)
        raise RunError(f"holds no checkpoint '{name}'", where=self.path, remedy=remedy)

    def keep_checkpoints(self, names: Sequence[str]) -> None:
        """Remove all checkpoints but these, to save space.

        What cannot be removed stays for the next call: a finished run must not fail because of it.
        """
        if not self.checkpoints.is_dir():
            return
        kept = [self.find_checkpoint(name) for name in names]
        with suppress(OSError):
            for leftover in self.checkpoints.glob(f"*{_REMOVED}"):
                shutil.rmtree(leftover)
            for entry in tuple(self.checkpoints.iterdir()):
                if entry.is_dir() and entry not in kept:
                    # Renamed first: one that is half removed must not be taken for a checkpoint.
                    shutil.rmtree(entry.replace(entry.with_name(f"{entry.name}{_REMOVED}")))
            if not names:
                self.checkpoints.rmdir()


def _unreadable(file: Path) -> RunError:
    return RunError("cannot be read", where=file, remedy="restore it from a copy of the run")

"""The folder of a run: the only module that knows the names of its files."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from satl.checks.formulas import warn_of_formulas
from satl.checks.plain_files import refuse_endless_files
from satl.errors import Argument, ConfigError, RunError, Sentence, Task
from satl.files import atomic_path
from satl.images.broken_list import BROKEN, read_broken, write_broken
from satl.images.broken_pictures import BrokenPicture
from satl.methods.old_keys import with_new_keys
from satl.parsing import parse_json, parse_yaml
from satl.runs.checkpoint_folders import (
    Content,
    new_checkpoint,
    places,
    read_first_whole,
    remove_half_written,
    remove_others,
)
from satl.runs.config import RunConfig
from satl.runs.reading import make_config
from satl.runs.run_lock import RunLock
from satl.runs.settling import with_settled_keys

_A_RUN = Sentence("give a folder that {train} wrote", train=Task("train", out=None))
_OF_EPOCH = "epoch-"
_BROKEN_COLUMNS = ("image", "reason", "epoch")


def epoch_checkpoint(epoch: int) -> str:
    """Return the name of the checkpoint of an epoch that ``training.keep_epochs`` keeps, counted from 1."""
    return f"{_OF_EPOCH}{epoch}"


class RunFolder:
    """The files of a run.

    ``config.yaml``, ``classes.json``, ``data.json`` (how its labels are recognised), ``metrics.jsonl`` (a line an
    epoch), ``train.log``, ``environment.json``, ``thresholds.csv``, ``checkpoints/last`` (everything needed to resume;
    ``last.previous`` is the one before it) and ``checkpoints/best`` (weights and thresholds of the epoch with the best
    validation mAP, or of the last one where there are no images to validate on). With ``data.holdout`` also
    ``labels.npz``, everything that was known, and ``held_out.npz``, which of it training did not see. ``pictures.npz``
    says which picture each id stood for (``picture_record.py``), ``broken.csv`` lists images that cannot be read, where
    there are such. A finished run of an experiment has ``result.json``, and perhaps no checkpoints any more.
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
        self.broken = self.path / BROKEN
        self.pictures = self.path / "pictures.npz"
        self.result = self.path / "result.json"
        self.trackers = self.path / "trackers.json"
        self._lock: RunLock | None = None

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

    def lock(self) -> None:
        """Keep other processes from training in this folder until :meth:`unlock`; a second call does nothing.

        Raises:
            RunError: another process is training in it, or it cannot be written to.
        """
        if self._lock is None:
            with self._translate_disk_error(self.path):
                self._lock = RunLock(self.path)

    def unlock(self) -> None:
        """Let other processes train in this folder; without a lock nothing is done."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

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
        refuse_endless_files(folder.path, RunError, "restore it from a copy of the run", levels=3)
        return folder

    def read_config(self) -> RunConfig:
        """Return the configuration the run was started with."""
        try:
            content = parse_yaml(self.config.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise _unreadable(self.config) from error
        if not isinstance(content, dict):
            content = {}
        try:
            if isinstance(content.get("method"), dict):
                content["method"] = with_new_keys(content["method"])
            if isinstance(content.get("data"), dict):
                # A run of a time before this key, when there was no choice.
                content["data"] = {"validation_labels": "complete", **content["data"]}
            return make_config(with_settled_keys(content), str(self.config))
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
            return missing_packages(parse_json(self.environment.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return []  # only a remark is lost

    def require_inputs(self, config: RunConfig) -> None:
        """Refuse a run whose table or images were moved since, and say where to write their new place."""
        for key in ("table", "truth", "images", "features", "root", "holdout_from"):
            place = getattr(config.data, key)
            if key in config.data.remote or (key == "images" and config.on_features):
                continue  # asked for when it is read; only shown to people
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
        """Return the rows of ``metrics.jsonl``; a half-written last line is left out.

        Raises:
            RunError: it holds something else.
        """
        if not self.metrics.exists():
            return []
        rows = []
        try:
            for line in self.metrics.read_bytes().splitlines():
                try:
                    rows.append(parse_json(line))
                except (json.JSONDecodeError, UnicodeDecodeError):
                    break
        except (OSError, ValueError, RecursionError) as error:
            raise _unreadable(self.metrics) from error
        if not all(isinstance(row, dict) and isinstance(row.get("epoch"), int) for row in rows):
            raise _unreadable(self.metrics)
        return rows

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """Add the row of an epoch."""
        line = json.dumps(row, allow_nan=False) + "\n"
        with self._translate_disk_error(self.metrics), self.metrics.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())  # before the checkpoint that the row belongs to

    def keep_metrics_before(self, epoch: int) -> None:
        """Drop the rows of ``epoch`` and later, which a resumed run will write again."""
        rows = [row for row in self.read_metrics() if row["epoch"] < epoch]
        with atomic_path(self.metrics) as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def write_thresholds(self, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Write ``thresholds.csv``; each row begins with the name of its class."""
        lines = list(rows)
        warn_of_formulas(self.thresholds, (str(line[0]) for line in lines))
        with (
            atomic_path(self.thresholds) as temporary,
            temporary.open("w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(lines)

    def write_facts(
        self,
        classes: Sequence[str],
        fingerprint: str,
        environment: Mapping[str, Any],
        features: Mapping[str, Any] | None = None,
        counts: Mapping[str, Any] | None = None,
    ) -> None:
        """Write ``classes.json``, ``data.json`` and ``environment.json``.

        Args:
            classes: names of the classes, in the order of the network's outputs.
            fingerprint: digest of the labels and the split.
            environment: versions, device and time.
            features: size, digest and origin of the features, for a run on features.
            counts: images of each split, and known cells of each class.
        """
        optional = {"features": features, "counts": counts}
        given = {key: dict(value) for key, value in optional.items() if value is not None}
        data = {"fingerprint": fingerprint, **given}
        for file, content, indent in (
            (self.classes, list(classes), None),
            (self.data, data, None),
            (self.environment, environment, 2),
        ):
            with atomic_path(file) as temporary:
                text = json.dumps(content, indent=indent, ensure_ascii=False) + "\n"
                temporary.write_text(text, encoding="utf-8")

    def read_classes(self) -> tuple[str, ...]:
        """Return the class names."""
        try:
            classes = parse_json(self.classes.read_text(encoding="utf-8"))
            if not isinstance(classes, list):
                raise ValueError("a list of names is needed")
            return tuple(map(str, classes))
        except (OSError, ValueError) as error:
            raise _unreadable(self.classes) from error

    def read_fingerprint(self) -> str | None:
        """Return the digest of the labels and the split; None for a run of a version that wrote none."""
        try:
            return str(parse_json(self.data.read_text(encoding="utf-8"))["fingerprint"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _unreadable(self.data) from error

    def read_features(self) -> dict[str, Any] | None:
        """Return what the run keeps about its features, ``dim`` and ``views`` among it; None: it has images."""
        try:
            facts = parse_json(self.data.read_text(encoding="utf-8"))["features"]
            return {**facts, "dim": int(facts["dim"]), "views": int(facts["views"])}
        except (FileNotFoundError, KeyError):
            return None
        except (OSError, ValueError, TypeError, OverflowError) as error:
            raise _unreadable(self.data) from error

    def read_counts(self) -> dict[str, Any] | None:
        """Return what :meth:`RunData.label_counts` said at the start; None for a run of a version that kept none."""
        try:
            counts = parse_json(self.data.read_text(encoding="utf-8"))["counts"]
            images = {str(split): int(number) for split, number in counts["images"].items()}
            known = {side: [int(number) for number in counts[side]] for side in ("positives", "negatives")}
            return {"images": images, **known}
        except (FileNotFoundError, KeyError):
            return None
        except (OSError, ValueError, TypeError, AttributeError, OverflowError) as error:
            raise _unreadable(self.data) from error

    def write_broken(self, broken: Iterable[BrokenPicture]) -> None:
        """Write the images that are left out from the start to ``broken.csv``; without any there is no such file."""
        write_broken(self.broken, [(one.image, one.reason, "") for one in broken], _BROKEN_COLUMNS)

    def add_broken(self, broken: Mapping[str, str], epoch: int) -> None:
        """Add images that could be read at the start and not in an epoch, counted from 0; one is listed once."""
        rows = read_broken(self.broken)
        known = {row["image"] for row in rows}
        listed = [(row["image"], row["reason"], row.get("epoch", "")) for row in rows]
        fresh = [(image, why, str(epoch + 1)) for image, why in broken.items() if image not in known]
        with self._translate_disk_error(self.broken):
            write_broken(self.broken, listed + fresh, _BROKEN_COLUMNS)

    def read_broken(self) -> dict[str, str]:
        """Return the images that the run left out from its start, with the reason; none: all could be read."""
        return {row["image"]: row["reason"] for row in read_broken(self.broken) if not row.get("epoch")}

    def all_broken(self) -> list[str]:
        """Return the images that could not be read at the start or later."""
        return [row["image"] for row in read_broken(self.broken)]

    @property
    def data_words(self) -> str:
        """What the digest of the data is about, for messages."""
        return (
            "the labels or the split"
            if self.read_features() is None
            else "the labels, the split or the features"
        )

    @contextmanager
    def new_checkpoint(self, name: str) -> Iterator[Path]:
        """Yield a folder to write a checkpoint into; it takes the place of the old one only when complete.

        The last checkpoint but one is kept, to resume from where the last one is damaged.
        """
        final = self.checkpoints / name
        with self._translate_disk_error(final), new_checkpoint(final, keep_previous=name == "last") as fresh:
            yield fresh

    def read_checkpoint(
        self, name: str, read: Callable[[Path], Content], *others: str, fallback: bool = True
    ) -> Content:
        """Return what ``read`` makes of a checkpoint, or, aloud, of the next one where that is damaged.

        Args:
            name: of the checkpoint; the one before it comes next.
            read: reads a folder, and raises :class:`DamagedError`; must replace everything that an earlier call did.
            others: names of checkpoints that come after these.
            fallback: whether there is a next one.

        Raises:
            RunError: there is no such checkpoint, or all of them are damaged.
        """

        def candidates() -> list[Path]:
            first = self.checkpoint(name)
            if not fallback:
                return [first]
            return [place for one in (name, *others) for place in places(self.checkpoints / one)]

        return read_first_whole(candidates, read)

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
        return next(iter(places(self.checkpoints / name)), None)

    def checkpoint(self, name: str) -> Path:
        """Return the folder of a checkpoint; raise RunError if there is none."""
        place = self.find_checkpoint(name)
        if place is not None:
            return place
        remedy = Sentence("the run was stopped before it wrote one, remove the folder and start again")
        if name.startswith(_OF_EPOCH):
            number = name.removeprefix(_OF_EPOCH)
            raise RunError(
                f"the model of epoch {number} was not kept",
                where=self.path,
                remedy=f"train it again with training.keep_epochs=[{number}]",
            )
        if self.result.is_file():
            remedy = Sentence(
                "its experiment did not keep it (`models` of the grid), train it again with {train}",
                train=self.new_run_task,
            )
        elif name != "last" and (self.checkpoints / "last").is_dir():
            remedy = Sentence("no model was kept yet, resume with {resume}", resume=self.resume_task)
        raise RunError(f"holds no checkpoint '{name}'", where=self.path, remedy=remedy)

    def can_resume(self, checkpoint_epochs: int) -> bool:
        """Whether there is a checkpoint to go on from; False: the run was stopped before it was to write one.

        Raises RunError where it wrote one after ``checkpoint_epochs`` epochs, and it is gone.
        """
        if self.result.is_file():
            self.checkpoint("last")  # of a grid, which may have kept none
        if self.find_checkpoint("last") is not None:
            return True
        if len(self.read_metrics()) > checkpoint_epochs:  # a row is written before its checkpoint
            remedy = "put checkpoints/last back, or remove the run and start again"
            raise RunError("its checkpoint 'last' is gone", where=self.path, remedy=remedy)
        return False

    def remove_half_written(self) -> None:
        """Remove what a process that was killed left among the checkpoints; call it with the lock.

        Raises:
            RunError: something cannot be removed.
        """
        with self._translate_disk_error(self.checkpoints):
            remove_half_written(self.checkpoints)

    def keep_checkpoints(self, names: Sequence[str] | None) -> None:
        """Remove all checkpoints but these, to save space; None: only those that others have replaced.

        What cannot be removed stays for the next call: a finished run must not fail because of it.
        """
        if not self.checkpoints.is_dir():
            return
        if names is None:
            names = [entry.name for entry in self.checkpoints.iterdir() if not entry.suffix]
        kept = [self.find_checkpoint(name) for name in names]
        with suppress(OSError):
            remove_others(self.checkpoints, [place for place in kept if place is not None])
            if not names:
                self.checkpoints.rmdir()


def _unreadable(file: Path) -> RunError:
    return RunError("cannot be read", where=file, remedy="restore it from a copy of the run")

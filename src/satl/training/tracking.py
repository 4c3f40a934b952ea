"""What follows the metrics of a training: TensorBoard, Weights & Biases, MLflow, or something of one's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from satl.errors import Argument, ConfigError, Stopped, first_line
from satl.files import atomic_path
from satl.parsing import parse_json

if TYPE_CHECKING:
    from satl.training.display import Display

End = Literal["finished", "stopped", "failed"]
"""How a training ended: at its last epoch, because somebody asked, or with an error."""

_CLASSES = {"tensorboard": "TensorBoardTracker", "wandb": "WandbTracker", "mlflow": "MlflowTracker"}
"""Name in ``training.trackers`` (and of the extra, the package and the module) -> its class."""


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker is told at the start of a training.

    Attributes:
        path: folder of the run.
        settings: the whole configuration by dotted keys, such as ``training.lr``.
        classes: names of the classes.
        first_epoch: the epoch that comes first, counted from 1: after a resume the one that it goes on at. Epochs from
            here on that were told before are told again, with the same numbers on a CPU.
        kept: what :meth:`Tracker.start` returned when the run was started; None for a new run.
    """

    path: Path
    settings: Mapping[str, Any]
    classes: tuple[str, ...]
    first_epoch: int
    kept: str | None = None


class Tracker:
    """Is told what a training does, epoch by epoch; this one does nothing.

    Write a class with those of the methods that you need, and pass it to ``satl.train(..., trackers=[...])``. They are
    called in the first process only and never within an epoch, so that no step waits for them. What they raise is told
    in a sentence and ends this tracker, not the training.

    >>> class Best(Tracker):
    ...     mAP = 0.0
    ...     def epoch(self, number, metrics):
    ...         self.mAP = max(self.mAP, metrics.get("validation/mAP", 0.0))
    """

    def start(self, run: TrackedRun) -> str | None:
        """Begin, or go on with a run that was resumed.

        Returns:
            What finds this run again, such as an identifier; it is kept in the run's folder and given to the tracker
            of a resumed run as ``run.kept``. None: nothing has to be found.
        """
        return None

    def epoch(self, number: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of an epoch, counted from 1, by names such as ``loss/total`` and ``validation/mAP``."""

    def end(self, how: End, best: Mapping[str, float]) -> None:
        """End: ``best`` has ``best/epoch``, and ``best/mAP`` where it could be measured."""


def named_trackers(names: Sequence[str]) -> list[Tracker]:
    """Return the trackers of ``training.trackers``; their packages are not loaded before a run starts.

    Raises:
        ConfigError: a package is not installed.
    """
    found: list[Tracker] = []
    for name in names:
        if not _is_installed(name):
            raise ConfigError(
                f"needs the package {name}",
                where=Argument("training.trackers", name),
                remedy=f"run `pip install 'satl[{name}]'`, or leave it out (metrics.jsonl of the run holds the same "
                "numbers)",
            )
        found.append(getattr(import_module(f"satl.training.trackers.{name}"), _CLASSES[name])())
    return found


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:  # it is loaded already and does not say from where
        return True


def require_trackers(trackers: Sequence[Any]) -> None:
    """Refuse what cannot be told of a training."""
    for tracker in trackers:
        if not isinstance(tracker, Tracker):
            raise ConfigError(
                f"{tracker!r} is no satl.Tracker",
                where=Argument("trackers"),
                remedy="make its class a subclass; those of packages are named in training.trackers",
            )


@contextmanager
def tracking(
    trackers: Sequence[Tracker],
    run: TrackedRun,
    kept: Path,
    best: Callable[[], Mapping[str, Any]],
    display: Display,
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Start trackers, yield a function that tells them of an epoch by its row of ``metrics.jsonl``, and end them.

    Args:
        trackers: of this process; none in all but the first.
        run: what they are told; what each has kept is read from ``kept``.
        kept: the file for what they return.
        best: says which epoch is the best so far, counted from 0, and its mAP.
        display: shows that a tracker has failed.
    """
    active = dict(zip(_different_names(trackers), trackers, strict=True))

    def ask(name: str, what: Callable[[], str | None]) -> str | None:
        try:
            return what()
        except Exception as error:
            # Whatever it is (no login, no server, a full disk, a fault of the package), it must not cost a training.
            from satl.training.log import logger

            del active[name]
            reason = first_line(error)
            text = (
                f"the tracker {name} has failed ({type(error).__name__}{': ' if reason else ''}{reason}) and is told "
                "nothing more; the training goes on"
            )
            logger.info(text)
            display.remark(text)
            return None

    found = _read_kept(kept) if active else {}
    for name, tracker in list(active.items()):
        told = replace(run, kept=found.get(name))

        def start(tracker: Tracker = tracker, told: TrackedRun = told, name: str = name) -> None:
            returned = tracker.start(told)
            if returned is not None and returned != told.kept:
                found[name] = returned
                with atomic_path(kept) as temporary:
                    temporary.write_text(json.dumps(found) + "\n", encoding="utf-8")

        ask(name, start)

    def tell(row: Mapping[str, Any]) -> None:
        points = curves(row) if active else {}
        for name, tracker in list(active.items()):
            ask(name, lambda tracker=tracker: tracker.epoch(row["epoch"] + 1, points))  # type: ignore[misc]

    how: End = "failed"
    try:
        yield tell
        how = "finished"
    except Stopped:
        how = "stopped"
        raise
    finally:
        summary = _best(best())
        for name, tracker in list(active.items()):
            ask(name, lambda tracker=tracker: tracker.end(how, summary))  # type: ignore[misc]


def curves(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the points of an epoch, from its row of ``metrics.jsonl``, by the name of their curve.

    >>> row = {"epoch": 0, "stage": 2, "lr": 0.1, "losses": {"total": 2.0}, "thresholds": {"cross": [0.2, 0.6]},
    ...        "pseudo_labels": {"cross": {"emitted": 5, "micro_precision": None}}, "val": {"mAP": 0.5}}
    >>> curves(row)["threshold/cross mean"], curves(row)["pseudo-labels/cross emitted"], len(curves(row))
    (0.4, 5, 7)
    """
    points: dict[str, Any] = {"training/lr": row["lr"]}
    points |= {f"loss/{name}": value for name, value in row["losses"].items()}
    for name, values in row["thresholds"].items():
        points[f"threshold/{name} min"] = min(values)
        points[f"threshold/{name} mean"] = sum(values) / len(values)
        points[f"threshold/{name} max"] = max(values)
    for name, counts in row["pseudo_labels"].items():
        points |= {f"pseudo-labels/{name} {what.replace('_', ' ')}": value for what, value in counts.items()}
    points |= {f"validation/{name}": value for name, value in row.get("val", {}).items()}
    return {name: value for name, value in points.items() if value is not None}


def _best(best: Mapping[str, Any]) -> dict[str, float]:
    """Return the best epoch as trackers are told it.

    >>> _best({"epoch": 2, "mAP": 0.5}), _best({"epoch": 4, "mAP": None}), _best({"epoch": -1, "mAP": -1.0})
    ({'best/epoch': 3, 'best/mAP': 0.5}, {'best/epoch': 5}, {})
    """
    if best["epoch"] < 0:
        return {}
    measured = best["mAP"] is not None and best["mAP"] >= 0
    return {"best/epoch": best["epoch"] + 1} | ({"best/mAP": best["mAP"]} if measured else {})


def _different_names(trackers: Sequence[Tracker]) -> list[str]:
    """Return what trackers are called in messages and in the folder of a run: their class, with a number if needed.

    >>> _different_names([Tracker(), Tracker()])
    ['Tracker', 'Tracker 2']
    """
    of_packages = {kind: name for name, kind in _CLASSES.items()}
    names: list[str] = []
    for tracker in trackers:
        kind = type(tracker).__name__
        name = of_packages.get(kind, kind)
        before = sum(earlier == name or earlier.startswith(f"{name} ") for earlier in names)
        names.append(f"{name} {before + 1}" if before else name)
    return names


def _read_kept(file: Path) -> dict[str, str]:
    """Return what trackers have kept by their names; a file that cannot be read costs only that."""
    try:
        content = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return (
        {name: value for name, value in content.items() if isinstance(value, str)}
        if isinstance(content, dict)
        else {}
    )

"""``satl.evaluate``."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from satl.api.address_arguments import takes_addresses
from satl.api.call_settings import Threshold, thresholds_of
from satl.api.given_data import GivenData, PathLike, given_data
from satl.api.notebook_results import EvaluationResult, TrainedRun
from satl.errors import Argument, ConfigError, SatlWarning, Sentence, first_of, nearest

if TYPE_CHECKING:
    from satl.inference.recogniser import Recogniser
    from satl.runs.data import RunData

_TOLD = 3
"""Classes that a warning names, at most."""
_FROM_THE_CALLER = 5
"""Level of who called :func:`evaluate`, as seen by :func:`_tell_missing`: what looks for addresses is between them."""


@takes_addresses("data", "features", "threshold", pictures="images", here=("run", "out"))
def evaluate(
    run: PathLike,
    data: Any = None,
    *,
    images: PathLike | None = None,
    features: Any = None,
    split: str | None = None,
    threshold: Threshold = None,
    checkpoint: str = "best",
    out: PathLike | None = None,
    encoding: str | None = None,
    ignore_columns: Sequence[str] = (),
    classes: Sequence[str] | None = None,
    quiet: bool = False,
) -> EvaluationResult:
    """Measure a trained run on known cells: of a split of its own data, or of other data.

    Args:
        run: a run, as :func:`satl.train` gives it back, or the path of its folder.
        data: other data to measure it on, all of its rows, as :func:`satl.train` takes it; None: that of the run.
        images, features, encoding, ignore_columns, classes: of ``data``, as in :func:`satl.train`.
        split: of the run's own data: "train", "val" or "test"; None: test where there is one, else val.
        threshold: probability from which on a class is present: one number, one for each class by name, or a file
            that ``satl thresholds`` or a completion wrote; 0.5 by default.
        checkpoint: "best" or "last".
        out: folder to write ``evaluation-SPLIT.json`` and ``.csv`` into; by default that of the run, or nothing is
            written about other data.
        quiet: show no progress.

    Returns:
        The ``summary``, a ``frame`` with a row a class, and a display for notebooks.
    """
    from satl.drawing.progress import loading
    from satl.inference.recogniser import Recogniser
    from satl.inference.run_evaluation import evaluate_run, evaluate_split

    kind = run.kind if isinstance(run, TrainedRun) else None
    choose = thresholds_of(threshold)
    folder = None if out is None else Path(out)
    if data is None:
        with loading("Reading images", quiet) as progress:
            own, used = evaluate_run(Path(run), split, checkpoint, progress, choose, folder)
        return EvaluationResult(own, used, kind)
    if split is not None:
        raise ConfigError(
            "is one of the run's own data, and other data is given",
            where=Argument("split", split),
            remedy=Sentence("leave out {split}", split=Argument("split")),
        )
    recogniser = Recogniser.load(Path(run), checkpoint)
    with tempfile.TemporaryDirectory(prefix="satl-data-") as place:
        found = given_data(
            data,
            Path(place) / "data",
            images=images,
            features=features,
            encoding=encoding,
            ignore_columns=ignore_columns,
            classes=classes,
        )
        rows = _rows_of(recogniser, found)
        with loading("Reading images", quiet) as progress:
            if folder is None:
                decisions = choose(recogniser.classes)
                other = evaluate_split(recogniser, rows, "test", decisions, progress)
            else:
                other, _ = evaluate_run(Path(run), "test", checkpoint, progress, choose, folder, rows)
    return EvaluationResult(other, "given", found.kind or kind)


def _tell_missing(classes: Sequence[str], given: Sequence[str]) -> None:
    """Warn of classes of a run that other data does not have, which may be misspelt there."""
    known, wanted = set(given), set(classes)
    missing = [name for name in classes if name not in known]
    if not missing:
        return
    others = [name for name in given if name not in wanted]
    # Similar names of those that are told alone: with thousands of classes the search takes minutes.
    hints = [f"{name!r}{nearest(name, others)}" for name in missing[:_TOLD]]
    listed = first_of([*hints, *missing[_TOLD:]], _TOLD)
    it = "it" if len(missing) == 1 else "them"
    warnings.warn(
        SatlWarning(f"the data has no class {listed}, so that nothing is measured of {it}."),
        stacklevel=_FROM_THE_CALLER,
    )


def _rows_of(recogniser: Recogniser, found: GivenData) -> RunData:
    """Return other data as that of a run whose split is all test; classes are those of the network."""
    from satl.features import read_features
    from satl.labels import LabelTable, aligned_cells
    from satl.runs.data import RunData, open_images

    table = found.read()
    count, config = table.num_images, recogniser.config
    whole = LabelTable(
        table.images,
        recogniser.classes,
        np.zeros((count, len(recogniser.classes)), dtype=np.int8),
        np.full(count, "test"),
        encoding="signed",
    )
    whole = whole.with_cells(aligned_cells(table, whole, found.table, all_classes=False), "signed")
    _tell_missing(whole.classes, table.classes)
    wanted = "features" if config.on_features else "images"
    place = found.features if config.on_features else found.images
    if place is None:
        raise ConfigError(
            f"the run was trained on {wanted}, and none are given",
            where=str(found.table),
            remedy=Sentence("pass {wanted}", wanted=Argument(wanted)),
        )
    if config.on_features:
        return RunData(whole, read_features(place, whole.images))
    interpolation = config.images.input.interpolation
    source = open_images(place, whole.images, config.source_size, range(1, count + 1), interpolation)
    return RunData(whole, source)

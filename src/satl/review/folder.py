"""Read the folder that ``satl complete`` writes: the proposed cells, the report, the table before completion."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from satl.errors import RunError

CHANGES, REPORT, LABELS, REVIEW = "changes.csv", "report.json", "labels.npz", "review.sqlite"
BANDS = ("accepted", "review", "left")
"""What became of a cell, in the order of ``changes.csv``; positions in it are stored."""
COLUMNS = ("image", "label", "value", "score", "threshold", "band", "source", "precision_lower_bound")
_AGAIN = "write the folder again with `satl complete`"


class Change(NamedTuple):
    """One row of ``changes.csv``: a cell that was filled, proposed or left.

    value: +1 present, -1 absent; what was accepted or is proposed.
    score: of the class being present.
    threshold, bound: None where there is no certificate.
    """

    image: str
    label: str
    value: int
    score: float
    threshold: float | None
    band: str
    source: str
    bound: float | None


def require_completed(out: str | Path) -> Path:
    """Return ``out`` if it is a folder that ``satl complete`` wrote, else say what it lacks."""
    folder = Path(out)
    if not folder.is_dir():
        raise RunError(f"{folder} is not a folder: name the folder that `satl complete -o` wrote.")
    for name in (CHANGES, REPORT, LABELS):
        if not (folder / name).is_file():
            raise RunError(
                f"{folder} has no {name}, so it is no folder of `satl complete`: "
                "name the folder that its -o was given."
            )
    return folder


def read_changes(path: str | Path) -> Iterator[Change]:
    """Yield the rows of ``changes.csv`` one by one, however many there are.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "changes.csv"
    >>> _ = file.write_text(",".join(COLUMNS) + "\\na.jpg,cat,1,0.912000,,review,model,\\n")
    >>> list(read_changes(file))
    [Change(image='a.jpg', label='cat', value=1, score=0.912, threshold=None, band='review', ...)]
    """
    try:
        with Path(path).open(encoding="utf-8", newline="") as stream:
            rows = csv.reader(stream, strict=True)
            header = next(rows, [])
            if tuple(header) != COLUMNS:
                raise RunError(f"{path}: its header is not '{','.join(COLUMNS)}': {_AGAIN}.")
            for number, row in enumerate(rows, start=1):
                yield _change(row, number, path)
    except (csv.Error, UnicodeDecodeError) as error:
        raise RunError(f"{path} cannot be read as CSV ({error}): {_AGAIN}.") from None
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror}): check its permissions.") from None


def _change(row: list[str], number: int, path: str | Path) -> Change:
    if len(row) != len(COLUMNS):
        raise RunError(f"{path}: row {number} has {len(row)} columns, not {len(COLUMNS)}: {_AGAIN}.")
    image, label, value, score, threshold, band, source, bound = row
    try:
        if value not in ("1", "-1"):
            raise ValueError(f"value {value!r} is not 1 or -1")
        if band not in BANDS:
            raise ValueError(f"band {band!r} is none of {', '.join(BANDS)}")
        known_score = float(score)
        if not math.isfinite(known_score):
            raise ValueError(f"score {score!r} is no number")
        return Change(
            image,
            label,
            int(value),
            known_score,
            float(threshold) if threshold else None,
            band,
            source,
            float(bound) if bound else None,
        )
    except ValueError as error:
        raise RunError(
            f"{path}: row {number} (image {image!r}, class {label!r}): {error}: {_AGAIN}."
        ) from None


def read_report(path: str | Path) -> dict[str, Any]:
    """Return ``report.json``; its ``classes`` is a list of objects with a ``name``."""
    try:
        # NaN is no JSON and would stop the page; a number that is not there is null.
        report = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=lambda _: None)
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read as JSON ({error}): {_AGAIN}.") from None
    classes = report.get("classes") if isinstance(report, dict) else None
    if not isinstance(classes, list) or not all(isinstance(c, dict) and "name" in c for c in classes):
        raise RunError(f"{path} lists no classes: {_AGAIN}.")
    return dict(report)


def find_images(out: Path, stated: object, given: Path | None) -> tuple[Path | None, str]:
    """Return the folder or packed store of the images, or None, and a sentence for the person who misses them.

    out: the folder under review.
    stated: ``images`` of the report; a relative path counts from here, else from beside ``out``.
    given: the folder or store passed by the user, which must exist.
    """
    if given is not None:
        if not given.is_dir():
            raise RunError(
                f"image folder '{given}' does not exist: "
                "pass --images with the folder that the image ids are relative to."
            )
        return given, ""
    if not isinstance(stated, str) or not stated:
        return None, "No image folder is known: start satl review with --images DIR to see the images."
    for base in (Path(), out, out.parent):
        if (base / stated).is_dir():
            return base / stated, ""
    return None, (
        f"The image folder '{stated}' is not here: start satl review with --images DIR to see the images."
    )

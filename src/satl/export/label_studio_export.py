"""Read what Label Studio exports as JSON: annotations of persons, skipped tasks, and satl's own predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote

from satl.errors import TableError
from satl.export.collecting import Collector
from satl.export.escaping import entries, mapping
from satl.export.registry import Imported
from satl.labels import ABSENT, PRESENT
from satl.labels.bands import SUGGESTED_BANDS
from satl.labels.io.json_stream import json_elements
from satl.parsing import parse_xml

_ABSENT_CONTROL = "absent"
_AS_JSON = "export from Label Studio as JSON"
Said = dict[str, int]
"""Class -> +1 or -1."""


def read_label_studio(path: Path, encoding: str | None) -> Imported:
    """Read tasks that satl wrote, or that Label Studio exported as JSON.

    A box ticked in a ``Choices`` control called ``absent`` says absent, in any other it says present. Skipped
    annotations (``was_cancelled``) say nothing. If a person's annotation of a task is marked as ground truth, only such
    ones count. Where a person's annotation differs from the known cells that satl wrote into the task, the person's
    word counts.
    """
    collected = Collector(path, _configured(path.with_suffix(".xml")), "task")
    looked_at: list[bool] = []
    skipped = 0
    for number, (_, element) in enumerate(json_elements(path), start=1):
        where = f"{path}: task {number}"
        task = mapping(element, where)
        if "data" not in task:
            raise TableError(
                f"{where} has no 'data': export from Label Studio as JSON, not as JSON-MIN or CSV."
            )
        data = mapping(task["data"], f"{where}: its 'data'")
        row = collected.image(_image_id(data), data.get("split"))
        said, by_person, cancelled = _annotations(task, where)
        skipped += cancelled and not by_person
        looked_at.append(by_person)
        for value in (PRESENT, ABSENT):
            collected.known(row, [label for label, one in said.items() if one == value], value)
        _suggestions(collected, row, task, data, where)
    return collected.finish(looked_at, skipped)


def _annotations(task: dict[str, Any], where: str) -> tuple[Said, bool, bool]:
    """Return what is said of the classes, whether a person said it, and whether somebody skipped the task."""
    annotations = [
        mapping(one, f"{where}: an annotation") for one in entries(task, "annotations", where, _AS_JSON)
    ]
    standing = [one for one in annotations if not one.get("was_cancelled")]
    cancelled = len(standing) < len(annotations)
    own = [one for one in standing if _untouched(one, where)]
    others = [one for one in standing if not _untouched(one, where)]
    others = [one for one in others if one.get("ground_truth")] or others
    known: Said = {}
    for one in own:
        known.update(_choices(one, where))
    person: Said = {}
    for one in others:
        for label, value in _choices(one, where).items():
            if person.setdefault(label, value) != value:
                raise TableError(
                    f"{where}: two annotations contradict each other about {label!r}: delete one of them in "
                    "Label Studio, or mark the right one as ground truth, and export again."
                )
    return {**known, **person}, bool(others), cancelled


def _untouched(annotation: dict[str, Any], where: str) -> bool:
    """Whether satl wrote this annotation and no person has submitted it again, which takes some time."""
    results = entries(annotation, "result", where, _AS_JSON)
    ids = [str(one.get("id", "")) for one in results if isinstance(one, dict)]
    return bool(ids) and all(one.startswith("satl-") for one in ids) and not annotation.get("lead_time")


def _choices(annotation: dict[str, Any], where: str) -> Said:
    said: Said = {}
    for one in entries(annotation, "result", where, _AS_JSON):
        result = mapping(one, f"{where}: a result")
        if result.get("type") != "choices":
            continue
        value = ABSENT if result.get("from_name") == _ABSENT_CONTROL else PRESENT
        for label in entries(mapping(result.get("value"), f"{where}: a value"), "choices", where, _AS_JSON):
            if not isinstance(label, str):
                raise TableError(
                    f"{where}: its choice {label!r} is not text: export from Label Studio as JSON."
                )
            if said.setdefault(label, value) != value:
                raise TableError(
                    f"{where}: {label!r} is ticked as present and as absent: correct it in Label Studio, and "
                    "export again."
                )
    return said


def _suggestions(
    collected: Collector, row: int, task: dict[str, Any], data: dict[str, Any], where: str
) -> None:
    """Note satl's own suggestions; predictions of another model have neither band nor score per class."""
    bands = {
        label: (band, score)
        for band in SUGGESTED_BANDS
        if isinstance(data.get(band), dict)
        for label, score in data[band].items()
    }
    for one in entries(task, "predictions", where, _AS_JSON) if bands else ():
        # Label Studio lists predictions by number where it was not asked for them in full.
        for label, value in _choices(one, where).items() if isinstance(one, dict) else ():
            if label in bands:
                band, score = bands.pop(label)
                collected.suggested(row, label, value, score, band)


def _image_id(data: dict[str, Any]) -> object:
    """Return satl's own id, or the file name in the address of a task that satl did not write."""
    if "image_id" in data:
        return data["image_id"]
    place = data.get("image")
    if not isinstance(place, str):
        texts = [value for value in data.values() if isinstance(value, str)]
        place = texts[0] if len(texts) == 1 else None
    if place is None:
        return None
    if "?d=" in place:
        return unquote(place.partition("?d=")[2])
    return unquote(place) if place.startswith(("http://", "https://", "/data/")) else place


def _configured(path: Path) -> list[str] | None:
    """Return the classes of a labelling config beside the tasks, or None where there is none."""
    if not path.is_file():
        return None
    try:
        root = parse_xml(path)
    except ValueError as error:
        raise TableError(
            f"{path} is not a labelling config ({error}): remove it, or export it again."
        ) from None
    names = [choice.get("value", "") for choices in root.iter("Choices") for choice in choices.iter("Choice")]
    return list(dict.fromkeys(names)) or None

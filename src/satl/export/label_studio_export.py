"""Read what Label Studio exports as JSON: annotations of persons, skipped tasks, and satl's own predictions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from satl.errors import TableError
from satl.export.collecting import Collector
from satl.export.escaping import entries, mapping
from satl.export.registry import Imported
from satl.labels import ABSENT, PRESENT
from satl.labels.bands import SUGGESTED_BANDS
from satl.labels.io.json_stream import json_elements
from satl.parsing import parse_xml
from satl.review.agreement import Vote, settle

_ABSENT_CONTROL = "absent"
_AS_JSON = "export from Label Studio as JSON"
Said = dict[str, int]
"""Class -> +1 or -1."""


class _Person(NamedTuple):
    """What one person says about the classes of one task.

    Attributes:
        final: it is marked as ground truth.
    """

    name: str
    said: Said
    final: bool


class _Answers(NamedTuple):
    """What the annotations of one task say.

    Attributes:
        known: the cells that satl itself wrote there.
        persons: what every person says, the latest last.
        cancelled: whether somebody skipped the task.
    """

    known: Said
    persons: list[_Person]
    cancelled: bool


def read_label_studio(path: Path, encoding: str | None) -> Imported:
    """Read tasks that satl wrote, or that Label Studio exported as JSON: see :func:`read_tasks`."""
    tasks = ((f"task {number}", element) for number, (_, element) in enumerate(json_elements(path), start=1))
    return read_tasks(tasks, path, _configured(path.with_suffix(".xml")))


def read_tasks(
    tasks: Iterable[tuple[str, object]],
    origin: Path | str,
    classes: Sequence[str] | None = None,
    unit: str = "task",
) -> Imported:
    """Return what tasks of Label Studio say.

    A box ticked in a ``Choices`` control called ``absent`` says absent, in any other it says present. Skipped
    annotations (``was_cancelled``) say nothing. If a person's annotation of a task is marked as ground truth, only such
    ones count. Where a person's annotation differs from the known cells that satl wrote into the task, the person's
    word counts. Of cells about which persons disagree, the table says nothing, and ``disagreements`` what each said.

    Args:
        tasks: what to call each in a message, and the task.
        origin: the file or the project, for messages.
        classes: the classes and their order where they are fixed.
        unit: what to call a task that is only known by its place in the order.
    """
    collected = Collector(origin, classes, unit)
    looked_at: list[bool] = []
    votes: list[Vote] = []
    disagreements: list[Vote] = []
    skipped = 0
    for name, element in tasks:
        where = f"{origin}: {name}"
        task = mapping(element, where)
        if "data" not in task:
            raise TableError(
                f"{where} has no 'data': export from Label Studio as JSON, not as JSON-MIN or CSV."
            )
        data = mapping(task["data"], f"{where}: its 'data'")
        image = image_of(data)
        row = collected.image(image, data.get("split"))
        answers = _answers(task, where)
        skipped += answers.cancelled and not answers.persons
        looked_at.append(bool(answers.persons))
        said, disputed = _settled(answers, str(image))
        if len(answers.persons) > 1:
            votes += _votes(answers.persons, str(image))
        collected.mention(row, (vote.label for vote in disputed))
        disagreements += disputed
        for value in (PRESENT, ABSENT):
            collected.known(row, [label for label, one in said.items() if one == value], value)
        _suggestions(collected, row, task, data, where)
    return replace(
        collected.finish(looked_at, skipped), votes=tuple(votes), disagreements=tuple(disagreements)
    )


def _settled(answers: _Answers, image: str) -> tuple[Said, list[Vote]]:
    """Return what is said of the classes of a task, and the votes about those on which persons disagree."""
    counting = [person for person in answers.persons if person.final] or answers.persons
    votes = _votes(counting, image)
    settlement = settle(votes)
    said = dict(answers.known)
    said.update({one.label: one.value for one in settlement.decisions if one.value})
    disputed = {label for _, label in settlement.disagreements}
    return (
        {label: value for label, value in said.items() if label not in disputed},
        [vote for vote in votes if vote.label in disputed],
    )


def _votes(persons: Sequence[_Person], image: str) -> list[Vote]:
    return [
        Vote(image, label, person.name, value, number)
        for number, person in enumerate(persons)
        for label, value in person.said.items()
    ]


def _answers(task: dict[str, Any], where: str) -> _Answers:
    annotations = [
        mapping(one, f"{where}: an annotation") for one in entries(task, "annotations", where, _AS_JSON)
    ]
    standing = [one for one in annotations if not one.get("was_cancelled")]
    known: Said = {}
    persons: dict[str, _Person] = {}
    for number, one in sorted(enumerate(standing), key=lambda pair: (_time(pair[1]), pair[0])):
        said = _choices(one, where)
        if is_untouched(one, where):
            known.update(said)
            continue
        # Who annotated a task twice meant the second; a file that says nobody's name has one person for each.
        name = _annotator(one) or f"annotator {number + 1}"
        persons.pop(name, None)
        persons[name] = _Person(name, said, bool(one.get("ground_truth")))
    return _Answers(known, list(persons.values()), len(standing) < len(annotations))


def _time(annotation: dict[str, Any]) -> str:
    return str(annotation.get("updated_at") or annotation.get("created_at") or "")


def _annotator(annotation: dict[str, Any]) -> str | None:
    """Return the address of who made an annotation where the file has it, or their number."""
    person = annotation.get("completed_by")
    if isinstance(person, dict):
        person = person.get("email") or person.get("id")
    written = annotation.get("created_username")
    if isinstance(person, int) and isinstance(written, str) and written.strip():
        # Such as "Ann Lee ann@example.org, 1".
        words = written.strip().removesuffix(f", {person}").split()
        return next((word for word in words if "@" in word), " ".join(words))
    return None if person is None else str(person) if isinstance(person, str) else f"user {person}"


def is_untouched(annotation: dict[str, Any], where: str) -> bool:
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


def image_of(data: dict[str, Any]) -> object:
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
    return config_classes(root)


def config_classes(root: Element) -> list[str] | None:
    """Return the choices that a labelling config offers, or None where it offers none."""
    names = [choice.get("value", "") for choices in root.iter("Choices") for choice in choices.iter("Choice")]
    return list(dict.fromkeys(names)) or None

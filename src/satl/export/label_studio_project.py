"""Send labels and suggestions to a project of Label Studio, and fetch what people decided there.

What is sent is compared with what is there, task by task: the same is left alone, a prediction that differs is changed,
one that is gone is withdrawn. So a command that was interrupted is run again and goes on, and running it twice
changes nothing.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.etree.ElementTree import Element

from satl.errors import Argument, ConfigError, RunError, Sentence
from satl.export.content import Source
from satl.export.escaping import require_xml
from satl.export.label_studio_export import config_classes, image_of, is_untouched, read_tasks
from satl.export.label_studio_server import LabelStudioServer
from satl.export.label_studio_tasks import CONTROLS, SUGGESTION, labelling_config, tasks_of
from satl.export.registry import NEW, Imported, Sent, ServerProject
from satl.labels.bands import SUGGESTED_BANDS
from satl.parsing import parse_xml

_UNFINISHED = "Made by satl, which is still sending its tasks."
_FINISHED = "Made by satl."
_AT_ONCE = 100
Json = dict[str, Any]


@dataclass(frozen=True)
class _Known:
    """A task that the project has already.

    Attributes:
        number: its id.
        data: of the task.
        predictions: those that satl sent.
        annotations: those that satl sent and nobody touched.
        touched: whether a person annotated or skipped it.
    """

    number: int
    data: Json
    predictions: list[Json]
    annotations: list[Json]
    touched: bool


@dataclass
class _Steps:
    """What has to be done, found before anything is done; (number, content) where something is changed."""

    tasks: list[Json] = field(default_factory=list)
    predictions: list[Json] = field(default_factory=list)
    changed: list[tuple[int, Json]] = field(default_factory=list)
    withdrawn: list[int] = field(default_factory=list)
    new_annotations: list[tuple[int, Json]] = field(default_factory=list)
    changed_annotations: list[tuple[int, Json]] = field(default_factory=list)
    data: list[tuple[int, Json]] = field(default_factory=list)
    unchanged: int = 0
    others: int = 0

    def count(self) -> int:
        """Return how much there is to do."""
        changes = (self.changed, self.new_annotations, self.changed_annotations, self.data)
        parts = (self.tasks, self.predictions, self.withdrawn)
        return sum(len(one) for one in changes) + sum(len(one) for one in parts)


def send_to_label_studio(source: Source, place: ServerProject) -> Sent:
    """Send known cells as annotations and suggestions as predictions; see :class:`satl.export.registry.ToolServer`."""
    require_xml(source.table.classes, "class")
    number = _number(place, new=True)
    server = LabelStudioServer(place)
    project = _project(server, number, place, source)
    _require_controls(server, project, source)
    steps = _compare(source, _known(server, project.id))
    doing = _Doing(server, project.id)
    try:
        doing.all(steps)
        shown = project.model_version or "satl"
        if (steps.predictions or steps.changed) and shown.startswith("satl") and shown != source.model:
            # What annotators see ticked are the predictions of this version.
            server.change_project(project.id, model_version=source.model)
        if project.description == _UNFINISHED:
            server.change_project(project.id, description=_FINISHED)
    except RunError as error:
        far = f"{doing.done:,} of {steps.count():,} changes are in project {project.id}"
        raise RunError(f"{error.what}, and {far}", where=error.where, remedy=error.remedy) from None
    return Sent(
        project.id,
        server.page_of(project.id),
        tasks=len(steps.tasks),
        added=len(steps.predictions) + sum("predictions" in task for task in steps.tasks),
        changed=len(steps.changed),
        withdrawn=len(steps.withdrawn),
        unchanged=steps.unchanged,
        annotations=len(steps.new_annotations) + len(steps.changed_annotations),
        others=steps.others,
    )


def fetch_from_label_studio(place: ServerProject) -> Imported:
    """Return what people decided in a project."""
    number = _number(place)
    assert number is not None
    server = LabelStudioServer(place)
    origin = server.page_of(number)
    classes = config_classes(_config(server, server.project(number)))
    tasks = ((f"task {task.get('id')}", task) for task in server.tasks(number))
    return read_tasks(tasks, origin, classes, "image")


def _number(place: ServerProject, *, new: bool = False) -> int | None:
    """Return the number of a project, or None for one that is to be made."""
    if new and place.project == NEW:
        return None
    if not (place.project.isascii() and place.project.isdigit()):
        raise ConfigError(
            "is not the number of a project" + (f" and not {NEW}" if new else ""),
            where=Argument("project", place.project),
            remedy="take the number in the address of the project in Label Studio, /projects/NUMBER",
        )
    return int(place.project)


def _project(server: LabelStudioServer, number: int | None, place: ServerProject, source: Source) -> Any:
    if number is not None:
        if place.title is not None:
            raise ConfigError(
                f"only a {NEW} project gets a title",
                where=Argument("title", place.title),
                remedy="leave it out",
            )
        return server.project(number)
    title = (place.title or source.name)[:50]  # Label Studio refuses a longer one
    if len(title.strip()) < 3:
        raise ConfigError(
            "is too short for Label Studio",
            where=Argument("title", title),
            remedy="give a title of 3 to 50 characters",
        )
    # One that was made and not filled, because the server or the line broke down, is filled now.
    begun = [one for one in server.projects_called(title) if one.description == _UNFINISHED]
    if begun:
        return begun[-1]
    return server.make_project(title, labelling_config(source.table.classes), _UNFINISHED)


def _config(server: LabelStudioServer, project: Any) -> Element:
    config = project.label_config
    try:
        return parse_xml(io.BytesIO((config or "<View/>").encode()))
    except (ValueError, AttributeError) as error:
        raise RunError(
            f"project {project.id} has a labelling config that is not XML ({error})",
            where=server.address,
            remedy="correct it under Settings, Labeling Interface",
        ) from None


def _require_controls(server: LabelStudioServer, project: Any, source: Source) -> None:
    """Refuse a project whose labelling config cannot hold the labels; one that has none gets satl's."""
    root = _config(server, project)
    wanted = source.table.classes
    if root.find(".//*[@toName]") is None:
        server.change_project(project.id, label_config=labelling_config(wanted))
        return
    fault = None
    image = root.find(".//Image[@name='image']")
    if image is None or image.get("value") != "$image":
        fault = "no image called 'image' with the value $image"
    for name in CONTROLS.values():
        control = root.find(f".//Choices[@name='{name}']")
        if control is None or control.get("toName") != "image" or control.get("choice") != "multiple":
            fault = fault or f"no choices called {name!r} of which several can be ticked"
            continue
        offered = {choice.get("value") for choice in control.iter("Choice")}
        missing = [one for one in wanted if one not in offered]
        if missing:
            fault = fault or f"no choice {missing[0]!r} in {name!r}"
    if fault is not None:
        raise RunError(
            f"the labelling config of project {project.id} has {fault}",
            where=server.address,
            remedy=Sentence(
                "paste under Settings, Labeling Interface, Code what the export to a file writes beside it, or choose "
                "{project}",
                project=Argument("project", NEW),
            ),
        )


def _known(server: LabelStudioServer, project: int) -> dict[str, _Known]:
    """Return the tasks of a project by image."""
    found: dict[str, _Known] = {}
    for task in server.tasks(project):
        where = f"{server.page_of(project)}: task {task.get('id')}"
        annotations = task.get("annotations") or []
        own = [one for one in annotations if is_untouched(one, where) and not one.get("was_cancelled")]
        known = _Known(
            task["id"],
            task.get("data") or {},
            [one for one in task.get("predictions") or () if _is_own(one)],
            own,
            len(own) < len(annotations),
        )
        image = image_of(known.data)
        if not isinstance(image, str):
            continue  # a task about something else
        other = found.setdefault(image, known)
        if other is not known:
            raise RunError(
                f"tasks {other.number} and {known.number} of project {project} are both about image {image!r}",
                where=server.address,
                remedy="delete one of them in Label Studio",
            )
    return found


def _is_own(prediction: Json) -> bool:
    """Whether satl sent a prediction: its results are called so."""
    ids = [str(one.get("id", "")) for one in prediction.get("result") or () if isinstance(one, dict)]
    return bool(ids) and all(one.startswith(f"{SUGGESTION}-") for one in ids)


def _compare(source: Source, known: dict[str, _Known]) -> _Steps:
    """Return what has to be done so that the project says what the source says."""
    steps = _Steps()
    met = 0
    for image, task in zip(source.table.images, map(json.loads, tasks_of(source)), strict=True):
        there = known.get(image)
        if there is None:
            steps.tasks.append(task)
            continue
        met += 1
        _compare_predictions(steps, there, task)
        _compare_annotations(steps, there, task)
        data = _data(there.data, task["data"])
        if data != there.data:
            steps.data.append((there.number, data))
    steps.others = len(known) - met
    return steps


def _compare_predictions(steps: _Steps, there: _Known, task: Json) -> None:
    wanted = next(iter(task.get("predictions", ())), None)
    kept = there.predictions[0] if wanted is not None and there.predictions else None
    steps.withdrawn += [one["id"] for one in there.predictions if one is not kept]
    if wanted is None:
        return
    if kept is None:
        steps.predictions.append({**wanted, "task": there.number})
    elif all(kept.get(key) == wanted.get(key) for key in ("result", "score", "model_version")):
        steps.unchanged += 1
    else:
        steps.changed.append((kept["id"], wanted))


def _compare_annotations(steps: _Steps, there: _Known, task: Json) -> None:
    """Where a person has been, nothing is changed: their word counts."""
    wanted = next(iter(task.get("annotations", ())), None)
    if wanted is None or there.touched:
        return
    if not there.annotations:
        steps.new_annotations.append((there.number, wanted))
    elif there.annotations[0]["result"] != wanted["result"]:
        steps.changed_annotations.append((there.annotations[0]["id"], wanted))


def _data(before: Json, wanted: Json) -> Json:
    """Return the data of a task with the present scores; of a task of another origin only these are satl's."""
    kept = {key: value for key, value in before.items() if key not in SUGGESTED_BANDS}
    own = wanted if "image_id" in before else {key: wanted[key] for key in SUGGESTED_BANDS if key in wanted}
    return kept | own


class _Doing:
    """Does what has to be done, and counts it."""

    def __init__(self, server: LabelStudioServer, project: int) -> None:
        self.server, self.project, self.done = server, project, 0

    def all(self, steps: _Steps) -> None:
        server = self.server
        for tasks in _parts(steps.tasks):
            server.add_tasks(self.project, tasks)
            self.done += len(tasks)
        # The columns of the Data Manager first: a prediction without them would be read as another model's.
        for number, data in steps.data:
            server.change_data(number, data)
            self.done += 1
        for predictions in _parts(steps.predictions):
            server.add_predictions(self.project, predictions)
            self.done += len(predictions)
        for change, entries in (
            (server.change_prediction, steps.changed),
            (server.add_annotation, steps.new_annotations),
            (server.change_annotation, steps.changed_annotations),
        ):
            for number, content in entries:
                change(number, content)
                self.done += 1
        for number in steps.withdrawn:
            server.remove_prediction(number)
            self.done += 1


def _parts(entries: list[Json]) -> Iterator[list[Json]]:
    for first in range(0, len(entries), _AT_ONCE):
        yield entries[first : first + _AT_ONCE]

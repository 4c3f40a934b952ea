"""FiftyOne: ``labels.json`` of its image classification format, several labels to an image.

A file of this format holds one field. So there are up to four: what is known to be present (the file that the user
names), ``NAME.absent.json``, ``NAME.predictions.json`` and ``NAME.predicted-absent.json``. The format calls an image
by its path without extension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from satl.errors import TableError
from satl.export.collecting import Collector
from satl.export.content import ImageRow, Source
from satl.export.escaping import json_list, json_text, mapping, number, open_text
from satl.export.registry import MAIN, Imported, ToolFormat, beside, register_tool
from satl.labels import ABSENT, PRESENT
from satl.labels.bands import SUGGESTED_BANDS
from satl.labels.cells import without_extension
from satl.labels.io.json_stream import load_json

_ABSENT, _PREDICTED = "absent", {PRESENT: "predictions", ABSENT: "predicted-absent"}
_OWN = "satl"


def write_fiftyone(source: Source, files: Mapping[str, Path]) -> None:
    """Write one file for each kind of label, all in one pass."""
    keys = _keys(source)
    kinds = {MAIN: _known(lambda image: image.present), _ABSENT: _known(lambda image: image.absent)}
    kinds |= {role: _suggested(value) for value, role in _PREDICTED.items()}
    with ExitStack() as opened:
        streams = {role: opened.enter_context(open_text(file)) for role, file in files.items()}
        for role, stream in streams.items():
            stream.write(f'{{\n"classes": {json_list(map(json_text, source.table.classes))},\n')
            if role == MAIN:
                stream.write(f'"{_OWN}": {_own(source)},\n')
            stream.write('"labels": {')
        marks = dict.fromkeys(streams, "\n")
        for image in source.images():
            key = json_text(keys[image.row])
            for role, stream in streams.items():
                text = kinds[role](image)
                # The first file lists every image, the others only add a field to some of them.
                if text is not None or role == MAIN:
                    stream.write(f"{marks[role]}{key}: {text or 'null'}")
                    marks[role] = ",\n"
        for stream in streams.values():
            stream.write("\n}\n}\n")


def _keys(source: Source) -> list[str]:
    keys = [without_extension(name) for name in source.files]
    first: dict[str, int] = {}
    for row, key in enumerate(keys):
        other = first.setdefault(key, row)
        if other != row:
            raise TableError(
                f"images {source.files[other]!r} and {source.files[row]!r} differ only by extension, and FiftyOne "
                f"calls both {key!r}: rename one of the files."
            )
    return keys


def _known(columns: Callable[[ImageRow], list[int]]) -> Callable[[ImageRow], str | None]:
    # An image about which nothing is known has no label; one with known cells may have an empty list.
    return lambda image: json_list(map(str, columns(image))) if image.present or image.absent else None


def _suggested(value: int) -> Callable[[ImageRow], str | None]:
    bands = [json_text(band) for band in SUGGESTED_BANDS]

    def labels(image: ImageRow) -> str | None:
        items = [
            f'{{"label": {at}, "confidence": {number(score)}, "attributes": {{"band": {bands[band]}}}}}'
            for at, said, score, band in image.suggested
            if said == value
        ]
        return json_list(items) if items else None

    return labels


def _own(source: Source) -> str:
    """Return what FiftyOne ignores and satl reads back: the ids in their order, and the splits."""
    fields = [f'"images": {json_list(map(json_text, source.table.images))}']
    if source.table.split is not None:
        fields.append(f'"split": {json_list(map(json_text, source.table.split.tolist()))}')
    return f"{{{', '.join(fields)}}}"


def read_fiftyone(path: Path, encoding: str | None) -> Imported:
    """Read ``labels.json`` as satl or FiftyOne wrote it, and satl's files beside it where they are."""
    files = _files(path)
    content = mapping(load_json(path), str(path))
    labels = _labels(content, path)
    own = mapping(content.get(_OWN) or {}, f"{path}: its {_OWN!r}")
    images, splits = own.get("images", list(labels)), own.get("split", [None] * len(labels))
    for name, given in (("images", images), ("splits", splits)):
        if not isinstance(given, list) or len(given) != len(labels):
            raise TableError(f"{path}: its list of {name} does not fit its labels: export it again.")
    classes = content.get("classes")
    collected = Collector(path, classes if isinstance(classes, list) else None, "image")
    row_of = {}
    for key, image, split in zip(labels, images, splits, strict=True):
        row_of[key] = collected.image(image, split)
    for role, value in ((MAIN, PRESENT), (_ABSENT, ABSENT)):
        for row, label, _ in _targets(files[role], row_of, content if role == MAIN else None):
            collected.known(row, (label,), value)
    for value, role in _PREDICTED.items():
        for row, label, target in _targets(files[role], row_of):
            where = f"{files[role]}: image {row + 1}: the attributes of a label"
            attributes = mapping(target.get("attributes") or {}, where)
            collected.suggested(row, label, value, target.get("confidence"), attributes.get("band"))
    return collected.finish()


def _targets(
    path: Path, row_of: dict[str, int], content: dict[str, Any] | None = None
) -> Iterator[tuple[int, object, dict[str, Any]]]:
    """Yield row, class and all that is said of every label of a file; nothing where it does not exist."""
    if content is None:
        if not path.is_file():
            return
        content = mapping(load_json(path), str(path))
    classes = content.get("classes")
    for key, targets in _labels(content, path).items():
        if targets is None:
            continue
        if key not in row_of:
            raise TableError(
                f"{path}: image {key!r} is not in the file beside which it lies: export both again."
            )
        for target in targets if isinstance(targets, list) else [targets]:
            said = target if isinstance(target, dict) else {"label": target}
            label = said.get("label")
            if isinstance(classes, list) and isinstance(label, int):
                if not 0 <= label < len(classes):
                    raise TableError(
                        f"{path}: image {key!r} has label {label}, which 'classes' lacks: correct it."
                    )
                label = classes[label]
            yield row_of[key], label, said


def _labels(content: dict[str, Any], path: Path) -> dict[str, Any]:
    labels = content.get("labels")
    if not isinstance(labels, dict):
        raise TableError(
            f"{path} has no 'labels': export from FiftyOne as FiftyOneImageClassificationDataset."
        )
    return labels


def _files(path: Path) -> dict[str, Path]:
    roles = (_ABSENT, *_PREDICTED.values())
    return {MAIN: path, **{role: beside(path, role) for role in roles}}


def _roles(source: Source) -> tuple[str, ...]:
    absent = (_ABSENT,) if (source.table.cells == ABSENT).any() else ()
    return (MAIN, *absent, *(role for value, role in _PREDICTED.items() if source.has(value)))


register_tool(
    ToolFormat(
        "fiftyone",
        "FiftyOne image classification (.json), one file for each field",
        (".json",),
        _files,
        _roles,
        write_fiftyone,
        read_fiftyone,
    )
)

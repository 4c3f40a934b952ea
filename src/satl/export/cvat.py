"""CVAT for images 1.1: one tag per image and class, and the labels to create the task with.

CVAT has neither absent tags nor predictions, and it forgets the source of a tag when it reads a file: a suggestion
called ``cat`` would become a confirmed cat. So each class has up to four labels: ``cat`` and ``not cat`` are known,
``maybe cat`` and ``maybe not cat`` are suggestions, with score and band as attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from satl.errors import TableError
from satl.export.collecting import Collector
from satl.export.content import ImageRow, Source
from satl.export.escaping import attribute, json_list, json_text, number, open_text, require_xml
from satl.export.registry import MAIN, Imported, ToolFormat, beside, register_tool
from satl.labels import ABSENT, PRESENT
from satl.labels.bands import SUGGESTED_BANDS
from satl.labels.io.text_files import check_start
from satl.parsing import xml_events

LABELS = "labels"
KNOWN = {PRESENT: "", ABSENT: "not "}
SUGGESTED = {PRESENT: "maybe ", ABSENT: "maybe not "}
LONGEST = 64
"""CVAT cuts longer label names off."""
_ATTRIBUTES = ("score", "band")
_SHAPES = ("tag", "box", "ellipse", "polygon", "polyline", "points", "cuboid", "skeleton", "mask")


def write_cvat(source: Source, files: Mapping[str, Path]) -> None:
    """Write the annotations, and the labels as CVAT's raw editor takes them."""
    require_xml(source.table.classes, "class")
    require_xml(source.files, "image")
    labels = _labels(source)
    with open_text(files[LABELS]) as stream:
        items = (
            f'{{"name": {json_text(label)}, "type": "tag", "attributes": {_attribute_list(suggested)}}}'
            for label, suggested in labels
        )
        stream.write("[\n" + ",\n".join(items) + "\n]\n")
    with open_text(files[MAIN]) as stream:
        stream.write('<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n  <version>1.1</version>\n')
        stream.write(
            f"  <meta>\n    <task>\n      <name>satl</name>\n      <size>{source.table.num_images}</size>\n"
        )
        stream.write("      <mode>annotation</mode>\n      <labels>\n")
        for label, suggested in labels:
            stream.write(
                f"        <label><name>{attribute(label)[1:-1]}</name><type>tag</type>"
                f"<attributes>{_attribute_elements(suggested)}</attributes></label>\n"
            )
        stream.write("      </labels>\n    </task>\n  </meta>\n")
        names = [[attribute(prefix + name) for name in source.table.classes] for prefix in _prefixes()]
        stream.writelines(_image(source, image, names) for image in source.images())
        stream.write("</annotations>\n")


def _labels(source: Source) -> list[tuple[str, bool]]:
    """Return (label, whether it is a suggestion) of all that is needed."""
    kinds = [(value, prefix, False) for value, prefix in KNOWN.items()]
    kinds += [(value, prefix, True) for value, prefix in SUGGESTED.items() if source.has(value)]
    needed = [
        (prefix + name, (name, value, suggested))
        for name in source.table.classes
        for value, prefix, suggested in kinds
    ]
    understood = _meanings([label for label, _ in needed])
    for label, meant in needed:
        if understood[label] != meant:
            raise TableError(
                f"class {understood[label][0]!r} and another one differ by 'not' or 'maybe' in front, which CVAT "
                "labels need to tell known from suggested: rename one."
            )
    labels = {label: suggested for label, (_, _, suggested) in needed}
    longest = max(labels, key=len)
    if len(longest) > LONGEST:
        raise TableError(
            f"the label {longest!r} has {len(longest)} characters, and CVAT cuts names off after {LONGEST}: "
            "shorten the name of the class."
        )
    return list(labels.items())


def _prefixes() -> tuple[str, ...]:
    return (*KNOWN.values(), *SUGGESTED.values())


def _attribute_list(suggested: bool) -> str:
    fields = '"mutable": false, "input_type": "text", "default_value": "", "values": [""]'
    return json_list(f'{{"name": "{name}", {fields}}}' for name in _ATTRIBUTES) if suggested else "[]"


def _attribute_elements(suggested: bool) -> str:
    rest = "<mutable>False</mutable><input_type>text</input_type><default_value></default_value><values></values>"
    names = _ATTRIBUTES if suggested else ()
    return "".join(f"<attribute><name>{name}</name>{rest}</attribute>" for name in names)


def _image(source: Source, image: ImageRow, names: list[list[str]]) -> str:
    present, absent, maybe, maybe_not = names
    size = source.size(image.row)
    parts = [f'  <image id="{image.row}" name={attribute(image.file)}']
    if image.split is not None:
        parts.append(f" subset={attribute(image.split)}")
    parts.append(">\n" if size is None else f' width="{size[0]}" height="{size[1]}">\n')
    parts += [f'    <tag label={present[at]} source="manual"></tag>\n' for at in image.present]
    parts += [f'    <tag label={absent[at]} source="manual"></tag>\n' for at in image.absent]
    parts += [
        f'    <tag label={(maybe if value == PRESENT else maybe_not)[at]} source="auto">'
        f'<attribute name="score">{number(score)}</attribute>'
        f'<attribute name="band">{SUGGESTED_BANDS[band]}</attribute></tag>\n'
        for at, value, score, band in image.suggested
    ]
    parts.append("  </image>\n")
    return "".join(parts)


def read_cvat(path: Path, encoding: str | None) -> Imported:
    """Read annotations that satl wrote or CVAT exported (CVAT for images 1.1).

    Any shape of a class makes it present, ``not`` in front makes it absent, ``maybe`` is a suggestion and
    decides nothing. In front of a name that is not a label itself, these words are part of a name.
    """
    with path.open("rb") as stream:
        check_start(stream.read(64), path, "XML")
    labels: list[str] = []
    meaning: dict[str, tuple[str, int, bool]] = {}
    collected: Collector | None = None
    for element in _elements(path):
        if element.tag == "meta":
            labels = [label.findtext("name") or "" for label in element.iter("label")]
            meaning = _meanings(labels)
            collected = Collector(path, (label for label in labels if meaning[label][0] == label), "image")
        elif element.tag == "track":
            raise TableError(
                f"{path} holds tracks: export from CVAT as 'CVAT for images 1.1', not for video."
            )
        elif element.tag == "image":
            if collected is None:
                raise TableError(
                    f"{path} declares no labels in 'meta': export from CVAT as 'CVAT for images 1.1'."
                )
            _read_image(collected, element, meaning)
    if collected is None:
        raise TableError(f"{path} is not a CVAT file: export from CVAT as 'CVAT for images 1.1'.")
    return collected.finish()


def _elements(path: Path) -> Iterator[ElementTree.Element]:
    """Yield ``meta``, images and tracks one by one; what was read is forgotten."""
    root: ElementTree.Element | None = None
    try:
        for event, element in xml_events(path):
            if root is None:
                root = element
            if event == "end" and element.tag in ("meta", "image", "track"):
                yield element
                root.clear()
    except ValueError as error:
        raise TableError(f"{path} is not a complete XML file ({error}): export it again.") from None


def _meanings(labels: list[str]) -> dict[str, tuple[str, int, bool]]:
    """Return label -> (class, value, whether it is only suggested).

    >>> _meanings(["cat", "not cat", "maybe not cat", "not a boat"])["maybe not cat"]
    ('cat', -1, True)
    >>> _meanings(["cat", "not a boat"])["not a boat"]
    ('not a boat', 1, False)
    """
    declared = set(labels)
    found: dict[str, tuple[str, int, bool]] = {}
    for label in labels:
        found[label] = (label, PRESENT, False)
        for prefixes, suggested in ((KNOWN, False), (SUGGESTED, True)):
            for value, prefix in prefixes.items():
                if prefix and label.startswith(prefix) and label[len(prefix) :] in declared:
                    found[label] = (label[len(prefix) :], value, suggested)
    return found


def _read_image(
    collected: Collector, element: ElementTree.Element, meaning: dict[str, tuple[str, int, bool]]
) -> None:
    row = collected.image(element.get("name"), element.get("subset"))
    for shape in element:
        if shape.tag not in _SHAPES:
            continue
        label, value, suggested = meaning.get(shape.get("label", ""), (shape.get("label"), PRESENT, False))
        if not suggested:
            collected.known(row, (label,), value)
            continue
        said: dict[str, Any] = {one.get("name", ""): one.text for one in shape.iter("attribute")}
        try:
            score = float(said.get("score") or "nan")
        except ValueError:
            score = float("nan")
        collected.suggested(row, label, value, score, said.get("band"))


register_tool(
    ToolFormat(
        "cvat",
        "CVAT for images 1.1 (.xml), tags, and the labels of the task (.labels.json)",
        (".xml",),
        lambda path: {MAIN: path, LABELS: beside(path, LABELS, ".json")},
        lambda source: (MAIN, LABELS),
        write_cvat,
        read_cvat,
    )
)

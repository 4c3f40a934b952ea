"""COCO-style json: labels of whole images as annotations without a box, suggestions as a list of results.

The file that the user names holds the known cells as satl reads and writes LVIS json: an annotation says present,
``neg_category_ids`` of an image says absent, everything else is unknown. Suggestions lie apart in
``predictions.NAME.json``, a list of results as COCO's evaluation takes them (``image_id``, ``category_id``, ``score``)
with ``value`` and ``band``; a reader that knows only COCO sees scores and never an annotation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

import numpy as np

from satl.errors import TableError
from satl.export.collecting import Collector
from satl.export.content import ImageRow, Source
from satl.export.escaping import json_list, json_text, mapping, number, open_text, write_json_lines
from satl.export.registry import MAIN, Imported, ToolFormat, register_tool
from satl.export.suggestions import Suggestions
from satl.labels import PRESENT, read_table
from satl.labels.bands import SUGGESTED_BANDS
from satl.labels.io.json_stream import json_elements

PREDICTIONS = "predictions"
_AT_ONCE = 1 << 16


def write_coco(source: Source, files: Mapping[str, Path]) -> None:
    """Write the known cells, and the suggestions where there are any."""
    with open_text(files[MAIN]) as stream:
        stream.write('{\n"images": ')
        write_json_lines(stream, (_image(source, image) for image in source.images()))
        stream.write(',\n"annotations": ')
        write_json_lines(stream, _annotations(source))
        stream.write(',\n"categories": ')
        names = enumerate(source.table.classes, start=1)
        write_json_lines(stream, (f'{{"id": {id}, "name": {json_text(name)}}}' for id, name in names))
        stream.write("\n}\n")
    if PREDICTIONS in files:
        with open_text(files[PREDICTIONS]) as stream:
            write_json_lines(stream, _results(source))
            stream.write("\n")


def _image(source: Source, image: ImageRow) -> str:
    size = source.size(image.row)
    fields = [f'"id": {image.row + 1}', f'"file_name": {json_text(image.file)}']
    if size is not None:
        fields.append(f'"width": {size[0]}, "height": {size[1]}')
    if image.split is not None:
        fields.append(f'"split": {json_text(image.split)}')
    fields.append(f'"neg_category_ids": {json_list(str(at + 1) for at in image.absent)}')
    fields.append('"not_exhaustive_category_ids": []')
    return f"{{{', '.join(fields)}}}"


def _annotations(source: Source) -> Iterator[str]:
    cells, numbers = source.table.cells, count(1)
    for first in range(0, len(cells), _AT_ONCE):
        rows, columns = np.nonzero(cells[first : first + _AT_ONCE] == PRESENT)
        for row, column in zip((rows + first + 1).tolist(), (columns + 1).tolist(), strict=True):
            yield f'{{"id": {next(numbers)}, "image_id": {row}, "category_id": {column}, "iscrowd": 0}}'


def _results(source: Source) -> Iterator[str]:
    bands = [json_text(band) for band in SUGGESTED_BANDS]
    proposed = source.suggestions
    for first in range(0, 0 if proposed is None else len(proposed), _AT_ONCE):
        assert proposed is not None
        part = proposed.select(np.arange(first, min(first + _AT_ONCE, len(proposed))))
        for row, column, value, score, band in part.entries():
            yield (
                f'{{"image_id": {row + 1}, "category_id": {column + 1}, "score": {number(score)}, '
                f'"value": {value}, "band": {bands[band]}}}'
            )


def read_coco(path: Path, encoding: str | None) -> Imported:
    """Read COCO or LVIS json, and satl's list of results beside it where it is."""
    table = read_table(path)
    results = _files(path)[PREDICTIONS]
    if not results.is_file():
        return Imported(table, Suggestions.of(()))
    # satl numbers images and categories from 1 in the order of the file.
    collected = Collector(results, table.classes, "image")
    for image in table.images:
        collected.image(image)
    for entry, (_, element) in enumerate(json_elements(results), start=1):
        said = mapping(element, f"{results}: entry {entry}")
        image_id, category = said.get("image_id"), said.get("category_id")
        if not (_within(image_id, table.num_images) and _within(category, table.num_classes)):
            raise TableError(
                f"{results}: entry {entry} is about image {image_id!r} and category {category!r}, which {path} lacks: "
                "export both again."
            )
        assert isinstance(image_id, int)
        assert isinstance(category, int)
        label = table.classes[category - 1]
        collected.suggested(image_id - 1, label, *(said.get(key) for key in ("value", "score", "band")))
    return Imported(table, collected.finish().suggestions)


def _within(number: object, count: int) -> bool:
    return isinstance(number, int) and 1 <= number <= count


def _files(path: Path) -> dict[str, Path]:
    # In front: a name that begins like the main file's would be taken for another set of annotations.
    return {MAIN: path, PREDICTIONS: path.with_name(f"{PREDICTIONS}.{path.name}")}


register_tool(
    ToolFormat(
        "coco",
        "COCO-style json with labels of whole images, and a list of results (predictions.*.json)",
        (".json",),
        _files,
        lambda source: (MAIN, PREDICTIONS) if source.suggestions else (MAIN,),
        write_coco,
        read_coco,
    )
)

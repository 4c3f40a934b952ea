"""Hugging Face: ``metadata.jsonl`` of an image folder, for ``datasets.load_dataset("imagefolder", ...)``.

One line per image: ``file_name``, ``split`` where there is one, and the lists ``positive``, ``negative`` (known) and
``predictions`` (suggested). The classes and their order lie beside it, in ``metadata.classes.json``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from satl.errors import TableError
from satl.export.collecting import Collector
from satl.export.content import Source
from satl.export.escaping import entries, json_list, json_text, mapping, number, open_text
from satl.export.registry import MAIN, Imported, ToolFormat, beside, register_tool
from satl.labels import ABSENT, PRESENT
from satl.labels.bands import SUGGESTED_BANDS
from satl.labels.io.json_stream import load_json
from satl.parsing import parse_json

CLASSES = "classes"
_NAMES = "write the names of classes in brackets"


def write_huggingface(source: Source, files: Mapping[str, Path]) -> None:
    """Write one line per image, and the classes."""
    names = [json_text(name) for name in source.table.classes]
    files[CLASSES].write_text(f'{{"classes": {json_list(names)}}}\n', encoding="utf-8", newline="\n")
    bands = [json_text(band) for band in SUGGESTED_BANDS]
    with open_text(files[MAIN]) as stream:
        for image in source.images():
            split = "" if image.split is None else f', "split": {json_text(image.split)}'
            proposed = json_list(
                f'{{"label": {names[at]}, "value": {value}, "score": {number(score)}, "band": {bands[band]}}}'
                for at, value, score, band in image.suggested
            )
            predictions = "" if source.suggestions is None else f', "predictions": {proposed}'
            stream.write(
                f'{{"file_name": {json_text(image.file)}{split}, '
                f'"positive": {json_list(names[at] for at in image.present)}, '
                f'"negative": {json_list(names[at] for at in image.absent)}{predictions}}}\n'
            )


def read_huggingface(path: Path, encoding: str | None) -> Imported:
    """Read ``metadata.jsonl``; without ``metadata.classes.json`` beside it, the classes are the names met."""
    classes = None
    beside_it = _files(path)[CLASSES]
    if beside_it.is_file():
        classes = mapping(load_json(beside_it), str(beside_it)).get("classes")
        if not isinstance(classes, list):
            raise TableError(f"{beside_it} lists no 'classes': export it again, or remove it.")
    collected = Collector(path, classes, "line")
    for line, row in _rows(path):
        where = f"{path}: line {line}"
        at = collected.image(row.get("file_name"), row.get("split"))
        for key, value in (("positive", PRESENT), ("negative", ABSENT)):
            collected.known(at, entries(row, key, where, _NAMES), value)
        for one in entries(row, "predictions", where, _NAMES):
            said = mapping(one, f"{where}: a prediction")
            collected.suggested(at, *(said.get(key) for key in ("label", "value", "score", "band")))
    return collected.finish()


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open("rb") as stream:
        # Only a line feed ends a line: JSON text may contain the other Unicode line ends.
        for line, raw in enumerate(stream, start=1):
            if not raw.strip():
                continue
            try:
                yield line, mapping(parse_json(raw.decode("utf-8-sig")), f"{path}: line {line}")
            except ValueError:
                raise TableError(f"{path}: line {line} is not JSON: write one object per line.") from None


def _files(path: Path) -> dict[str, Path]:
    return {MAIN: path, CLASSES: beside(path, CLASSES, ".json")}


register_tool(
    ToolFormat(
        "huggingface",
        "Hugging Face image folder (metadata.jsonl) with lists of positive, negative and predictions",
        (".jsonl",),
        _files,
        lambda source: (MAIN, CLASSES),
        write_huggingface,
        read_huggingface,
    )
)

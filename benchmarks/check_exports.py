"""Let the real importers of other tools read what ``satl export`` writes, and compare what they understood.

Run: ``python benchmarks/check_exports.py`` in any environment that has satl's source on ``PYTHONPATH`` and one or
several of ``datasets``, ``label-studio-sdk``, ``datumaro`` and ``fiftyone``; what is not installed is named and passed
over. FiftyOne's importer runs without its database. ``--label-studio ADDRESS --token TOKEN`` also imports into a
running Label Studio, decides as a person does, and reads its export. With ``--time N`` no importer runs: N images of
80 classes are written and read back in every format, with seconds, size and peak memory.

Exit code 1: an importer understood something else than was written.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from satl.export import TOOLS, Imported, Source, Suggestions, export, read_export
from satl.labels import LabelTable

IMAGES = ("a.jpg", "sub/b, c.jpg", "ü 猫's.png", "d & <e>.jpg", "plain.jpg")
CLASSES = ("cat", 'a "dog": #1', "猫, cat", "x < y & z")
CELLS = [[1, 0, 0, 0], [0, 1, -1, 0], [-1, 0, 1, 1], [0, 0, 0, 0], [1, -1, 0, 0]]
SUGGESTED = [(0, 1, 1, 0.93, 0), (0, 2, -1, 0.02, 0), (3, 0, 1, 0.51, 1), (4, 0, -1, 0.3, 1)]
FILES = {
    "label-studio": "tasks.json",
    "fiftyone": "labels.json",
    "cvat": "annotations.xml",
    "huggingface": "metadata.jsonl",
    "coco": "annotations/labels_default.json",
    "wide": "table.csv",
    "long": "table.parquet",
}


def sample() -> Source:
    """Names with everything that needs care, known cells of both signs, suggestions of both kinds and bands."""
    table = LabelTable(IMAGES, CLASSES, np.array(CELLS), encoding="signed")
    return Source(table, Suggestions.of(SUGGESTED), "satl 0.1.0")


def write_images(folder: Path) -> None:
    for name in IMAGES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 24)).save(folder / name)


def names(columns: list[int] | np.ndarray) -> list[str]:
    return [CLASSES[int(at)] for at in columns]


def present(row: int) -> list[str]:
    return names(np.flatnonzero(np.array(CELLS[row]) == 1))


def absent(row: int) -> list[str]:
    return names(np.flatnonzero(np.array(CELLS[row]) == -1))


def check_datasets(folder: Path) -> str:
    import datasets

    datasets.disable_progress_bars()
    write_images(folder)
    export(sample(), "huggingface", folder / FILES["huggingface"])
    for arguments in ({"path": "imagefolder", "data_dir": str(folder)}, {"path": str(folder)}):
        found = datasets.load_dataset(**arguments, split="train", cache_dir=str(folder.parent / "cache"))
        assert found.num_rows == len(IMAGES), found
        for row, entry in enumerate(found):
            assert entry["image"].size == (32, 24)
            assert (entry["positive"], entry["negative"]) == (present(row), absent(row)), entry
            said = [(one["label"], one["value"], one["score"]) for one in entry["predictions"]]
            assert said == [(CLASSES[c], v, s) for r, c, v, s, _ in SUGGESTED if r == row], said
    return (
        f"load_dataset('imagefolder') and load_dataset(folder): {found.num_rows} rows, {list(found.features)}"
    )


def check_label_studio(folder: Path) -> str:
    from label_studio_sdk._extensions.label_studio_tools.core.label_config import parse_config
    from label_studio_sdk.converter import Converter
    from label_studio_sdk.label_interface import LabelInterface

    file = folder / FILES["label-studio"]
    export(sample(), "label-studio", file)
    config = file.with_suffix(".xml").read_text(encoding="utf-8")
    interface = LabelInterface(config)
    interface.validate()
    assert set(parse_config(config)) == {"present", "absent"}
    tasks = json.loads(file.read_text(encoding="utf-8"))
    for row, task in enumerate(tasks):
        assert interface.validate_task({"data": task["data"]}), task
        for annotation in task.get("annotations", ()):
            assert interface.validate_annotation(annotation), annotation
        for prediction in task.get("predictions", ()):
            assert interface.validate_prediction(prediction, return_errors=True) == [], prediction
        assert ("annotations" in task) == any(CELLS[row])
    # What Label Studio's own converter makes of the annotations, as if the project were exported.
    for number, task in enumerate(tasks, start=1):
        task["id"] = number
        for annotation in task.setdefault("annotations", []):
            annotation |= {"id": number, "completed_by": 1, "was_cancelled": False}
    raw = folder / "raw.json"
    raw.write_text(json.dumps(tasks), encoding="utf-8")
    Converter(config, str(folder), download_resources=False).convert(
        str(raw), str(folder / "min"), "JSON_MIN", is_dir=False
    )
    result = next((folder / "min").glob("*.json"))
    converted = {one["image_id"]: one for one in json.loads(result.read_text(encoding="utf-8"))}
    for row, image in enumerate(IMAGES):
        if any(CELLS[row]):
            for key, wanted in (("present", present(row)), ("absent", absent(row))):
                value = converted[image].get(key, [])
                assert (
                    value["choices"] if isinstance(value, dict) else [value] if value else []
                ) == wanted, value
    back = read_export(raw, "label-studio")
    assert dict(zip(back.table.images, back.table.known.sum(axis=1).tolist(), strict=True)) == {
        image: sum(map(abs, CELLS[row])) for row, image in enumerate(IMAGES)
    }
    return f"config valid, {len(tasks)} tasks valid, converter to JSON_MIN: {len(converted)} tasks"


def check_datumaro(folder: Path) -> str:
    from datumaro import Dataset
    from datumaro.components.annotation import AnnotationType

    write_images(folder / "images")
    counts = []
    for tool, name, kind in (("cvat", FILES["cvat"], "cvat"), ("coco", FILES["coco"], "coco_labels")):
        export(sample(), tool, folder / name)
        found = Dataset.import_from(str(folder / name if kind == "cvat" else folder), kind)
        labels = [label.name for label in found.categories()[AnnotationType.label]]
        items = {item.id: item for item in found}
        assert len(items) == len(IMAGES), sorted(items)
        for row, image in enumerate(IMAGES):
            said = [labels[one.label] for one in items[str(Path(image).with_suffix(""))].annotations]
            wanted = present(row)
            if kind == "cvat":
                wanted = wanted + [f"not {name}" for name in absent(row)]
                wanted += [
                    f"{'maybe' if v == 1 else 'maybe not'} {CLASSES[c]}"
                    for r, c, v, *_ in SUGGESTED
                    if r == row
                ]
            assert sorted(said) == sorted(wanted), (kind, image, said, wanted)
        counts.append(f"{kind}: {len(items)} items, {len(labels)} labels")
        if kind == "cvat":
            found.export(str(folder / "back"), "cvat", save_media=False)
            back = read_export(next((folder / "back").glob("*.xml")), "cvat")
            stems = [str(Path(image).with_suffix("")) for image in IMAGES]
            for at, image in enumerate(back.table.images):
                row = stems.index(str(Path(image).with_suffix("")))
                assert back.table.cells[at].tolist() == CELLS[row], (image, back.table)
            counts.append(f"its own export read back: {len(back.suggestions)} suggestions stay suggestions")
    return "; ".join(counts)


def check_fiftyone(folder: Path) -> str:
    from fiftyone.utils.data.importers import FiftyOneImageClassificationDatasetImporter as Importer

    write_images(folder / "data")
    export(sample(), "fiftyone", folder / FILES["fiftyone"])
    read = {}
    for kind in ("", ".absent", ".predictions", ".predicted-absent"):
        importer = Importer(data_path=str(folder / "data"), labels_path=str(folder / f"labels{kind}.json"))
        importer.setup()
        read[kind] = {
            os.path.relpath(path, folder / "data"): [] if label is None else label.classifications
            for path, _, label in importer
        }
        assert importer.get_dataset_info()["classes"] == list(CLASSES)
    assert set(read[""]) == set(IMAGES), sorted(read[""])
    for row, image in enumerate(IMAGES):
        assert [one.label for one in read[""][image]] == present(row)
        assert [one.label for one in read[".absent"].get(image, ())] == absent(row)
        for value, kind in ((1, ".predictions"), (-1, ".predicted-absent")):
            said = [(one.label, one.confidence) for one in read[kind].get(image, ())]
            assert said == [(CLASSES[c], s) for r, c, v, s, _ in SUGGESTED if (r, v) == (row, value)], said
    back = fiftyone_back(folder, read[""])
    for row, image in enumerate(IMAGES):
        at = back.table.images.index(str(Path(image).with_suffix("")))
        said = [back.table.classes[column] for column in np.flatnonzero(back.table.cells[at] == 1)]
        assert said == sorted(present(row)), said
    return f"importer without database: {len(read[''])} samples, four fields, confidences; its own export read back"


def fiftyone_back(folder: Path, labels: dict[str, list[object]]) -> Imported:
    """Write labels with FiftyOne's exporter and read the file."""
    import fiftyone as fo
    from fiftyone.utils.data.exporters import FiftyOneImageClassificationDatasetExporter as Exporter

    file = folder / "back" / "labels.json"
    exporter = Exporter(
        labels_path=str(file),
        data_path=str(folder / "data"),
        export_media=False,
        rel_dir=str(folder / "data"),
    )
    with exporter:
        for image, classifications in labels.items():
            field = fo.Classifications(classifications=classifications) if classifications else None
            exporter.export_sample(str(folder / "data" / image), field)
    return read_export(file, "fiftyone")


def check_server(folder: Path, place: str, token: str) -> str:
    """Import into Label Studio, take over a prediction, correct a known cell, skip a task, and read its export."""

    def ask(method: str, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"Token {token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(place.rstrip("/") + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            content = answer.read()
        return json.loads(content) if content else None

    file = folder / FILES["label-studio"]
    export(sample(), "label-studio", file)
    config = file.with_suffix(".xml").read_text(encoding="utf-8")
    project = ask("POST", "/api/projects", {"title": "satl check", "label_config": config})["id"]
    try:
        found = ask("POST", f"/api/projects/{project}/import", json.loads(file.read_text(encoding="utf-8")))
        counts = tuple(found[f"{kind}_count"] for kind in ("task", "annotation", "prediction"))
        assert counts == (5, 4, 3), found
        everything = f"/api/projects/{project}/export?exportType=JSON&download_all_tasks=true"
        tasks = {task["data"]["image_id"]: task for task in ask("GET", everything)}

        def submit(image: str, **more: object) -> None:
            ask("POST", f"/api/tasks/{tasks[image]['id']}/annotations/", {"lead_time": 2.0, **more})

        [prediction] = ask("GET", f"/api/predictions?task={tasks[IMAGES[3]]['id']}")
        submit(IMAGES[3], result=prediction["result"])
        submit(IMAGES[1], result=[], was_cancelled=True)
        absent = {"from_name": "absent", "to_name": "image", "type": "choices", "value": {"choices": ["cat"]}}
        submit(IMAGES[4], result=[absent])
        exported = folder / "export.json"
        exported.write_text(json.dumps(ask("GET", everything)), encoding="utf-8")
        back = read_export(exported, "label-studio")
    finally:
        ask("DELETE", f"/api/projects/{project}")
    wanted = np.array(CELLS)
    wanted[3, 0], wanted[4, 0] = 1, -1
    order = [back.table.classes.index(name) for name in CLASSES]
    rows = [back.table.images.index(name) for name in IMAGES]
    assert back.table.cells[rows][:, order].tolist() == wanted.tolist(), back.table.cells
    assert [back.looked_at[row] for row in rows] == [False, False, False, True, True], back.looked_at
    assert back.skipped == 1
    return "5 tasks, 4 annotations and 3 predictions imported; its export read back with two decisions"


CHECKS: dict[str, tuple[str, Callable[[Path], str]]] = {
    "datasets": ("datasets", check_datasets),
    "label-studio-sdk": ("label_studio_sdk", check_label_studio),
    "datumaro": ("datumaro", check_datumaro),
    "fiftyone": ("fiftyone", check_fiftyone),
}


def run_checks() -> int:
    failed = 0
    for package, (module, check) in CHECKS.items():
        if find_spec(module) is None:
            print(f"{package}: not installed")
            continue
        from importlib.metadata import version

        with tempfile.TemporaryDirectory() as folder:
            try:
                said = check(Path(folder) / "work")
            except Exception:
                failed += 1
                said = "FAILED\n" + traceback.format_exc()
        print(f"{package} {version(package)}: {said}")
    return 1 if failed else 0


def large(images: int) -> Source:
    """80 classes, 10 % known; of the rest 25 % accepted, mostly absent, and 5 % for review."""
    random = np.random.default_rng(0)
    shape = (images, 80)
    dice = random.random(shape)
    cells = np.where(dice < 0.02, 1, np.where(dice < 0.1, -1, 0))
    rows, columns = np.nonzero((dice > 0.1) & (dice < 0.37))
    bands = (dice[rows, columns] < 0.145).astype(np.uint8)
    values = np.where(random.random(len(rows)) < 0.1, 1, -1).astype(np.int8)
    scores = np.round(random.random(len(rows)), 6)
    table = LabelTable(
        tuple(f"folder-{i // 1000:03d}/image-{i:07d}.jpg" for i in range(images)),
        tuple(f"class {i}" for i in range(shape[1])),
        cells,
        encoding="signed",
    )
    return Source(table, Suggestions(rows, columns, values, scores, bands), "satl 0.1.0")


def time_one(format: str, images: int) -> None:
    source = large(images)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / Path(FILES[format]).name
        start = time.perf_counter()
        files = export(source, format, path)
        written = time.perf_counter() - start
        more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        size = sum(file.stat().st_size for file in files) / 1e6
        start = time.perf_counter()
        back = read_export(path, format)
        read = time.perf_counter() - start
        assert back.table == source.table
    print(
        f"{format:14} written in {written:5.1f} s (+{more:4.0f} MiB), {size:6.0f} MB; read back in {read:5.1f} s",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--time", type=int, default=0, metavar="N", help="time N images instead of checking")
    parser.add_argument("--format", choices=list(TOOLS), help="with --time: this one only")
    parser.add_argument("--label-studio", metavar="ADDRESS", help="also check a running Label Studio")
    parser.add_argument("--token", default="", help="its access token")
    options = parser.parse_args()
    if not options.time:
        if options.label_studio:
            with tempfile.TemporaryDirectory() as folder:
                print("Label Studio:", check_server(Path(folder), options.label_studio, options.token))
        return run_checks()
    if options.format:
        time_one(options.format, options.time)
        return 0
    source = large(options.time)
    known, proposed = int(source.table.known.sum()), len(source.suggestions or ())
    print(f"{options.time:,} images, 80 classes: {known:,} known cells, {proposed:,} suggestions")
    del source
    for format in TOOLS:
        # A process for each, so that peak memory is its own.
        subprocess.run(
            [sys.executable, __file__, "--time", str(options.time), "--format", format], check=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Write the corpus again: ``PYTHONPATH=tests python -m fuzz.make_corpus``. Its files are small and valid."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from PIL import Image

from fuzz.targets.registry import CORPUS
from satl.labels import LabelTable, write_table

IMAGES, CLASSES = ("a.jpg", "b.jpg", "c.jpg"), ("cat", "dog")
CELLS = np.array([[1, 0], [-1, 1], [0, 0]], dtype=np.int8)
TABLE = LabelTable(IMAGES, CLASSES, CELLS)
SPLIT = LabelTable(IMAGES, CLASSES, CELLS, np.array(["train", "val", "train"]))
SCORES = np.array([[0.9, 0.25], [0.125, 0.75], [0.5, 0.0]], dtype=np.float32)


def text(file: Path, content: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content, encoding="utf-8")


def data(file: Path, content: Any) -> None:
    text(file, json.dumps(content))


def labels(folder: Path) -> None:
    folder.mkdir()
    write_table(SPLIT, folder / "wide.csv")
    write_table(TABLE, folder / "wide.tsv")
    write_table(SPLIT, folder / "long.csv", format="long")
    write_table(SPLIT, folder / "wide.parquet")
    write_table(TABLE, folder / "words.parquet", "words")
    write_table(TABLE, folder / "words.csv", "words")
    write_table(SPLIT, folder / "long.parquet", format="long")
    write_table(SPLIT, folder / "table.jsonl")
    write_table(SPLIT.with_truth(np.array([[1, -1], [-1, 1], [1, 0]])), folder / "table.npz")
    write_table(TABLE, folder / "csl.npz", "csl")
    write_table(
        LabelTable(IMAGES, CLASSES, np.where(CELLS == 0, -1, CELLS)), folder / "coco.json", format="coco"
    )
    write_table(SPLIT, folder / "lvis.json", format="lvis")
    text(folder / "positives.csv", 'image,split,labels\na.jpg,train,"cat,dog"\nb.jpg,val,dog\nc.jpg,train,\n')
    text(folder / "quoted.csv", '\ufeffimage,"a, b","say ""x"""\r\n"1,jpg",1,0\r\n2.jpg,,1\r\n')
    text(
        folder / "openimages.csv",
        "ImageID,Source,LabelName,Confidence\n1,verification,/m/01,1\n1,crowd,/m/02,0\n2,verification,/m/01,0\n",
    )
    text(folder / "random_table", "0123456789abcdef")
    write_table(SPLIT, folder / "wide.csv.gz")
    write_table(TABLE, folder / "wide.tsv.gz")
    write_table(SPLIT, folder / "table.jsonl.gz")
    arrow(
        folder / "wide.feather", pa.table({"image": list(IMAGES), "cat": [1, None, 0], "dog": [0, 1, None]})
    )
    write_table(SPLIT, folder / "packed.feather")
    write_table(SPLIT, folder / "long.feather", format="long")
    spreadsheets(folder)


def spreadsheets(folder: Path) -> None:
    import openpyxl

    write_table(SPLIT, folder / "wide.xlsx")
    book = openpyxl.Workbook()
    for row in (("image", "cat", "dog"), ("a.jpg", True, 1.0), ("b.jpg", 0.0, None)):
        book.active.append(row)
    book.create_sheet("notes").append(("nothing",))
    book.save(folder / "sheets.xlsx")


def datasets(root: Path) -> None:
    from labels import trees
    from satl.labels.datasets.voc import CLASSES as VOC

    trees.coco2014(root / "coco2014")
    trees.voc2007(root / "voc2007", VOC)
    trees.vg200(root / "vg200")
    shutil.rmtree(root / "vg200/VG_100K"), shutil.rmtree(root / "vg200/VG_100K_2")
    data(root / "vg200_from_objects/objects.json", trees.vg_objects())
    trees.chexpert(root / "chexpert")
    trees.openimages(root / "openimages")


def arrow(file: Path, table: pa.Table) -> None:
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def scores(folder: Path) -> None:
    folder.mkdir()
    wide = pa.table({"image": list(IMAGES), "cat": SCORES[:, 0], "dog": SCORES[:, 1]})
    long = pa.table(
        {
            "image": [image for image in IMAGES for _ in CLASSES],
            "label": list(CLASSES) * len(IMAGES),
            "score": SCORES.reshape(-1),
        }
    )
    for name, table in (("wide", wide), ("long", long)):
        pq.write_table(table, folder / f"{name}.parquet")
        arrow(folder / f"{name}.arrow", table)
        for mark, ending in ((",", "csv"), ("\t", "tsv")):
            if (name, ending) != ("long", "tsv"):
                rows = [
                    table.column_names,
                    *zip(*(column.to_pylist() for column in table.columns), strict=True),
                ]
                text(folder / f"{name}.{ending}", "".join(mark.join(map(str, row)) + "\n" for row in rows))
    for ending in ("csv", "parquet"):
        shutil.copy(folder / f"wide.{ending}", folder / f"table.{ending}")
    images, classes = np.array(IMAGES), np.array(CLASSES)
    np.savez(folder / "few.npz", scores=SCORES)
    np.savez(folder / "table.npz", scores=SCORES, images=images, classes=classes)
    np.savez_compressed(
        folder / "all.npz",
        scores=SCORES,
        images=images,
        classes=classes,
        labels=CELLS,
        encoding=np.array("signed"),
        held_out=CELLS != 0,
        fold=np.zeros(3, dtype=np.int64),
        uncertainty=SCORES,
    )


def predictions(folder: Path) -> None:
    folder.mkdir()
    columns = {
        "image": list(IMAGES),
        "cat": SCORES[:, 0],
        "dog": SCORES[:, 1],
        "present": pa.array([["cat"], ["dog"], []], pa.list_(pa.string())),
    }
    table = pa.table(columns).replace_schema_metadata({"broken": json.dumps([["d.jpg", "is no picture"]])})
    pq.write_table(table, folder / "part-000000.parquet")
    data(
        folder / "_predictions.json",
        {"format": 1, "model": "x", "classes": list(CLASSES), "images": 3, "ids": "x", "part_size": 4096},
    )


def by_hand(root: Path) -> None:
    text(root / "thresholds/mine.csv", "class,threshold\ncat,0.5\ndog,\n")
    text(root / "thresholds/rule.csv", "class,rule,threshold,f1\ncat,fixed,0.5,0.1\ndog,fixed,0.25,\n")
    text(
        root / "thresholds/certified.csv",
        "class,direction,threshold,precision_lower_bound\ncat,present,0.5,0.9\ncat,absent,0.1,0.9\ndog,present,,\n",
    )
    text(
        root / "hand/plan.csv",
        "image,label,value,score,aim,zone\na.jpg,dog,present,0.250000,present,0.2\nc.jpg,cat,?,0.5,absent,0.6\n",
    )
    from fuzz.targets.score_targets import bands
    from satl.completion.outputs.hand_labels import write_audit
    from satl.completion.statistics.audit import draw_audit

    file = root / "hand/audit.csv"
    write_audit(draw_audit(bands(TABLE), 2, "table", 0), TABLE, file, size=2, seed=0)
    text(file, file.read_text().replace(",,", ",yes,"))


def held_out(folder: Path) -> None:
    from satl.labels.holdout import HeldOut

    folder.mkdir()
    mask = np.array([[True, False], [False, True], [False, False]])
    HeldOut(mask, np.array([0.5, 0.5]), 0).save(folder / "held_out.npz", IMAGES, CLASSES)


def features(root: Path) -> None:
    from satl.features.feature_folder import FeatureFolder, FeatureWriter

    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    folder = root / "features"
    folder.mkdir()
    np.savez(folder / "all.npz", features=values, images=np.array(IMAGES))
    np.save(folder / "rows.npy", values.astype(np.float16))
    text(folder / "rows.txt", "a.jpg\nb.jpg\nc.jpg\n")
    np.save(folder / "table.npy", values.reshape(3, 1, 2))
    text(folder / "table.csv", "image,more\na.jpg,1\nb.jpg,2\nc.jpg,3\n")
    table = pa.table({"id": list(IMAGES), "features": pa.array(values.tolist(), pa.list_(pa.float32()))})
    pq.write_table(table, folder / "lists.parquet")
    arrow(folder / "lists.arrow", table)
    (root / "hfdata").mkdir()
    arrow(root / "hfdata/data-00000.arrow", table)
    data(
        root / "hfdata/state.json",
        {"_data_files": [{"filename": "data-00000.arrow"}], "_indices_files": None},
    )
    FeatureFolder.write(root / "featfolder", IMAGES, values, {"network": "tiny"}, part_rows=2)
    text(root / "featfolder/broken.csv", "image,reason\nd.jpg,is no picture\n")
    writer = FeatureWriter(root / "unfinished", ("a", "b", "c"), 2, 1, {}, part_rows=2)
    writer.write_part(0, ["a"], values[:1], broken=[("b", "is no picture")])
    writer.write_part(1, ["c"], values[2:])


def weights(root: Path) -> None:
    import torch
    from safetensors.torch import save_file

    (root / "words").mkdir()
    text(root / "words/glove.txt", "cat 0.5 1 -2\ndog 1e-3 2 3\nthe 1 1 1\n")
    np.savez(root / "words/named.npz", names=np.array(["cat", "dog"]), vectors=np.ones((2, 3)))
    np.save(root / "words/rows.npy", np.ones((2, 3), dtype=np.float32))
    (root / "weights").mkdir()
    save_file({"a": torch.ones(2, 2), "b": torch.zeros(3)}, root / "weights/weights.safetensors")
    torch.save({"state_dict": {"a": torch.ones(2, 2), "b": torch.zeros(3)}}, root / "weights/weights.pth")


def pictures(folder: Path) -> None:
    folder.mkdir()
    random = np.random.default_rng(0)
    pixels = random.integers(0, 255, (12, 10, 3), dtype=np.uint8)
    colour = Image.fromarray(pixels)
    colour.convert("L").save(folder / "grey.png")
    turned = Image.Exif()
    turned[0x0112] = 6
    colour.save(folder / "colour.jpg", exif=turned)
    colour.convert("P").save(folder / "palette.gif")
    colour.save(folder / "wide.webp")
    colour.save(folder / "plain.bmp")
    colour.save(folder / "tiles.tif", compression="tiff_deflate")
    colour.save(folder / "plain.ppm")
    colour.save(folder / "tga.tga")


def settings(root: Path) -> None:
    from experiments.grids import BASE, content
    from satl.experiments.results import COLUMNS

    folder = root / "settings"
    text(folder / "setting.txt", "\x0012")
    text(folder / "list.txt", "\x04[448, 320]")
    text(folder / "mapping.txt", "\x08{widths: [8, 8], a: 2020-01-02}")
    base = {**BASE, "data": {"table": "t.csv", "images": "."}, "method": {"name": "sst"}}
    text(folder / "own.yaml", yaml.safe_dump(base, sort_keys=False))
    data(folder / "own.json", base)
    text(folder / "grid.yaml", json.dumps(content()))
    run = root / "run"
    text(run / "config.yaml", yaml.safe_dump(base, sort_keys=False))
    data(run / "config.json", base)
    rows = [{"epoch": at, "stage": 1, "losses": {"total": 0.5}, "train_seconds": 1.0} for at in range(3)]
    text(run / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    data(run / "classes.json", list(CLASSES))
    data(run / "data.json", {"fingerprint": "0a", "features": {"dim": 2, "views": 1, "digest": "0b"}})
    text(run / "checkpoints/last/a.txt", "one")
    data(run / "checkpoints/last/checksums.json", {"a.txt": 2053932785})
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for seed in (0, 1):
        writer.writerow(
            {"dataset": "d", "method": "sst", "proportion": 0.3, "seed": seed, "mAP": 0.5, "status": "done"}
        )
    text(root / "results/results.csv", stream.getvalue())


def saved(root: Path) -> None:
    import torch

    from fuzz.targets.run_targets import parts

    torch.manual_seed(0)
    folder = root / "saved"
    saver, tally = parts(folder)
    text(folder / "config.yaml", "{}\n")
    saver.save_last(1, 0, {"epoch": 0, "mAP": 0.5}, tally)
    (folder / "checkpoints/last/checksums.json").unlink()  # an input would never get past it


def record(root: Path) -> None:
    folder = root / "record"
    base = {"data": {}, "method": {"name": "sst"}, "training": {"epochs": 3}, "model": {}, "images": {}}
    text(folder / "config.yaml", yaml.safe_dump(base))
    data(folder / "config.json", base)
    shutil.copy(root / "run/metrics.jsonl", folder / "metrics.jsonl")
    np.savez(
        folder / "record.npz",
        rows=np.arange(3),
        images=np.array(IMAGES),
        cells=CELLS,
        probability=SCORES.astype(np.float16),
        average_precision=np.array([0.5, 0.5]),
        known_positives=np.array([1, 1]),
        facts=np.array(json.dumps({"summary": {}, "counts": {}, "classes": list(CLASSES)})),
    )


def compared(root: Path) -> None:
    for name, rate in (("one", 0.1), ("two", 0.2)):
        folder = root / "compared" / name
        base = {
            "method": {"name": "sst"},
            "training": {"epochs": 2, "lr": rate},
            "model": {"train_stages": "all"},
        }
        text(folder / "config.yaml", yaml.safe_dump(base))
        union = {"emitted": 3, "expected": 4.5, "macro_precision": 0.5, "micro_recall": None}
        row = {
            "stage": 2,
            "val": {"mAP": 0.5, "OF1": 0.25},
            "pseudo_labels": {"union": union},
            "train_seconds": 1.5,
        }
        text(folder / "metrics.jsonl", "".join(json.dumps({"epoch": at, **row}) + "\n" for at in range(2)))
        facts = {
            "split": "test",
            "checkpoint": "best",
            "thresholds": "0.5",
            "doubts": ["a"],
            "mAP": 0.5,
            "CF1": None,
        }
        data(folder / "evaluation-test.json", facts)


def stores(root: Path) -> None:
    from satl.images.pack import pack_images
    from satl.images.source import ArrayImages

    pixels = np.random.default_rng(0).integers(0, 255, (3, 3, 8, 8), dtype=np.uint8)
    source = ArrayImages.from_channels_first(pixels)
    pack_images(source, ("a", "b", "c"), root / "store", kind="raw", workers=1)
    pack_images(source, ("a", "b", "c"), root / "jpegstore", kind="jpeg", workers=1)
    lines = [{"format": "satl packed images", "kind": "raw", "size": 8, "quality": None}]
    lines += [{"id": name, "bytes": 192, "crc32": 0} for name in ("a", "b")]
    text(root / "journal/journal.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


def completed(root: Path) -> None:
    from satl.completion.outputs.changes import COLUMNS

    folder = root / "completed"
    folder.mkdir()
    write_table(TABLE, folder / "labels.npz")
    write_table(TABLE, folder / "evidence.npz")
    write_table(LabelTable(IMAGES, CLASSES, np.array([[1, 1], [-1, 1], [0, 0]])), folder / "completed.csv")
    text(
        folder / "changes.csv",
        ",".join(COLUMNS)
        + "\na.jpg,dog,1,0.900000,0.8,accepted,certificate,0.95\nc.jpg,cat,-1,0.1,,review,model,\n",
    )
    from satl.completion.outputs.completed_folder import FORMAT

    data(
        folder / "report.json",
        {
            "format": FORMAT,
            "satl": "0.1.0",
            "source": {"encoding": "blank", "lists_absent": True},
            "classes": [{"name": "cat"}, {"name": "dog"}],
            "statement": "x",
            "target_precision": 0.95,
            "confidence": 0.95,
            "images": 3,
        },
    )
    for name in ("thresholds.csv", "report.html"):
        text(folder / name, "\n")
    data(folder / "checksums.json", {})
    shutil.copytree(folder, root / "review")
    cells = [{"image": "c.jpg", "label": "cat", "value": -1, "based_on": None}]
    data(root / "review/decide.json", {"tab": "t", "request": "r", "cells": cells})


def tools(root: Path) -> None:
    from satl.export import Source, Suggestions, export

    source = Source(SPLIT, Suggestions.of([(0, 1, 1, 0.75, 0), (2, 0, -1, 0.25, 1)]), "satl 0.1.0")
    for tool, main in (
        ("cvat", "tasks.xml"),
        ("label-studio", "tasks.json"),
        ("huggingface", "metadata.jsonl"),
        ("fiftyone", "labels.json"),
        ("coco", "labels.json"),
        ("wide", "labels.csv"),
        ("long", "labels.parquet"),
    ):
        (root / tool).mkdir()
        export(source, tool, root / tool / main)


def main() -> None:
    """Write everything anew."""
    shutil.rmtree(CORPUS, ignore_errors=True)
    CORPUS.mkdir()
    labels(CORPUS / "labels")
    datasets(CORPUS)
    scores(CORPUS / "scores")
    predictions(CORPUS / "predictions")
    by_hand(CORPUS)
    held_out(CORPUS / "heldout")
    features(CORPUS)
    weights(CORPUS)
    pictures(CORPUS / "pictures")
    settings(CORPUS)
    saved(CORPUS)
    record(CORPUS)
    compared(CORPUS)
    stores(CORPUS)
    completed(CORPUS)
    tools(CORPUS)
    size = sum(file.stat().st_size for file in CORPUS.rglob("*") if file.is_file())
    print(f"{size:,} bytes in {CORPUS}", file=sys.stderr)


if __name__ == "__main__":
    main()

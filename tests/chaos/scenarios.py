"""What is killed and starved: commands small enough to be run hundreds of times."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from chaos.forks import satl

Action = Callable[[Path], object]
Reader = Callable[[Path], Any]


@dataclass(frozen=True)
class Scenario:
    """A command, and what must hold wherever it is cut off.

    Attributes:
        name: for the table.
        run: does the work in a folder; called again after a kill, it goes on or begins anew.
        kills: how often it is killed in the long form, and in the short one.
        prepare: makes what stands in the folder before.
        read: reads the result as others do; what it returns is that of before or that of the end, or it is refused
            with an error of satl.
        always_readable: the result is there all the time, so it must not be refused.
        check: further conditions after a kill; raises AssertionError.
        faults: how many writes fail in the long form, and in the short one.
        keeps_old: a run that ends with an error leaves the folder as it was.
    """

    name: str
    run: Action
    kills: tuple[int, int]
    prepare: Action | None = None
    read: Reader | None = None
    always_readable: bool = False
    check: Action | None = None
    faults: tuple[int, int] = (0, 0)
    keeps_old: bool = False


def make_inputs(base: Path) -> None:
    """Write what all scenarios read: pictures, tables, weights, a trained run, scores, a reviewed completion."""
    from completion.drawn import Drawn
    from experiments.grids import BASE, content
    from satl.labels import mask_table, read_table, write_table
    from satl.models import Backbone
    from satl.review.database import DecisionRequest, ReviewStore
    from satl.scenes import write_scenes

    write_scenes(base / "scenes", 24, size=32, seed=3)
    table = read_table(base / "scenes" / "labels.csv").with_truth(None)
    write_table(mask_table(table, 0.5, seed=0), base / "labels.csv", encoding="blank")
    Backbone("satl_tiny").save_weights(base / "tiny.safetensors")
    training = {**BASE["training"], "epochs": 2, "checkpoint_steps": 2}
    data = {"scenes": {"train": 32, "val": 12, "test": 12, "size": 32}, "proportion": 0.4}
    (base / "train.yaml").write_text(yaml.safe_dump({**BASE, "data": data, "training": training}))
    np.savez(
        base / "features.npz",
        features=np.random.default_rng(0).normal(size=(24, 6)).astype(np.float32),
        images=np.array(table.images),
    )
    on_features = {
        "data": {"table": str(base / "labels.csv"), "features": str(base / "features.npz")},
        "training": {"epochs": 3, "stage1_epochs": 1, "batch_size": 8, "device": "cpu"},
    }
    (base / "features.yaml").write_text(yaml.safe_dump(on_features))
    grid = content(base={**BASE, "data": data, "training": training}, methods=["ignore"], seeds=[0, 1])
    (base / "grid.yaml").write_text(yaml.safe_dump(grid, sort_keys=False))
    satl("train", base / "train.yaml", "-o", base / "run", "--quiet")
    drawn = Drawn(400, ("boat", "cat"), prevalence=(0.4, 0.2))
    drawn.write(base, labels="drawn.csv", scores="scores.parquet")
    satl(*_complete(base, "0.8"), "-o", base / "reviewed")
    with ReviewStore(base / "reviewed") as store:
        store.refresh()
        for number, (image, label) in enumerate(_suggestions(base / "reviewed")[:5]):
            store.decide("t", f"r{number}", [DecisionRequest(image, label, 1, None)])
    for action in (own for own in scenarios(base) if own.name in ("embed", "predict", "results of a grid")):
        (base / "trial").mkdir()
        for step in (action.prepare, action.run):
            if step is not None:
                step(base / "trial")
        shutil.rmtree(base / "trial")
    # The parent imports them before the first trial, so that no trial has to.
    names = (
        name for name, module in sorted(sys.modules.items()) if module is not None and name != "__main__"
    )
    (base / "modules").write_text("\n".join(names))


def _complete(base: Path, precision: str) -> tuple[object, ...]:
    scores, labels = base / "scores.parquet", base / "drawn.csv"
    return ("complete", "--scores", scores, "--labels", labels, "--precision", precision, "--quiet")


def _suggestions(out: Path) -> list[tuple[str, str]]:
    import csv

    with (out / "changes.csv").open(newline="", encoding="utf-8") as stream:
        return [(row["image"], row["label"]) for row in csv.DictReader(stream)]


def _train(base: Path, config: str, place: Path) -> None:
    run = place / "run"
    if (run / "config.yaml").exists() and not any(
        (run / "checkpoints" / name).is_dir() for name in ("last", "last.previous")
    ):
        shutil.rmtree(run)  # as the sentence of `satl train --resume` says
    if (run / "config.yaml").exists():
        satl("train", "--resume", run, "--quiet")
    else:
        satl("train", base / config, "-o", run, "--quiet")


def _read_run(place: Path) -> None:
    """A model that is there can be used, without a word of damage."""
    from satl.errors import SatlWarning
    from satl.inference.recogniser import Recogniser
    from satl.runs.run_folder import RunFolder

    if (place / "run" / "config.yaml").is_file():
        for name in ("last", "best"):
            if RunFolder(place / "run").find_checkpoint(name) is not None:
                with warnings.catch_warnings():
                    warnings.simplefilter("error", SatlWarning)
                    Recogniser.load(place / "run", name)


def _pack(base: Path, place: Path) -> None:
    satl("pack", base / "labels.csv", "--images", base / "scenes", "-o", place / "store", "--size", 32)


def _read_store(place: Path) -> Any:
    from satl.images import check_store
    from satl.images.store import open_store

    store = open_store(place / "store")
    return (store.ids, check_store(place / "store"))


def _embed(base: Path, size: int, out: str, *further: object, place: Path) -> None:
    satl(
        *("embed", base / "labels.csv", "--images", base / "scenes", "-o", place / out, "--size", size),
        *("--backbone", "satl_tiny", "--weights", base / "tiny.safetensors", "--part-size", 10, "--quiet"),
        *further,
    )


def _embed_parquet(base: Path, place: Path) -> None:
    if (place / "vectors.parquet").exists():  # whoever finds it finds all of it, and is told so
        with suppress(SystemExit):
            _embed(base, 32, "vectors.parquet", place=place)
    else:
        _embed(base, 32, "vectors.parquet", place=place)


def _read_features(out: str, place: Path) -> Any:
    from satl.features import read_features
    from satl.features.feature_folder import FeatureFolder

    if not out.endswith(".parquet"):
        FeatureFolder.open(place / out).verify()
    table = read_features(place / out)
    return (table.ids, table.digest)


def _predict(base: Path, threshold: float, *further: object, place: Path) -> None:
    satl(
        *("predict", base / "run", base / "scenes", "-o", place / "predictions", "--part-size", 10),
        *("--threshold", threshold, *further),
    )


def _read_predictions(place: Path) -> Any:
    from satl.scores import read_scores
    from satl.scores.prediction_folder import MANIFEST, read_manifest

    scores = read_scores(place / "predictions")
    return (
        scores.images,
        np.asarray(scores.values),
        read_manifest(place / "predictions" / MANIFEST)["thresholds"],
    )


def _in_sentences(action: Action) -> Action:
    """Word errors as the command line does: the processes of a grid hand them to it."""

    def call(place: Path) -> None:
        from satl.errors import SatlError

        try:
            action(place)
        except SatlError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(2)

    return call


def _grid_run(base: Path, place: Path) -> None:
    from satl.experiments.experiment import plan_experiment
    from satl.experiments.grid_run import train_and_test
    from satl.runs.data import load_data

    plan = plan_experiment(base / "grid.yaml", place / "grid")
    grid_run, config = next(iter(plan.configs.items()))
    train_and_test(config, place / "grid" / "runs" / grid_run.name, load_data(config), keep="best")


def _new_grid(base: Path, place: Path) -> None:
    from satl.experiments.experiment import plan_experiment

    plan = plan_experiment(base / "grid.yaml", place / "grid")
    plan.folder.write_grid(plan.grid)


def _trained_grid(base: Path, place: Path) -> None:
    from satl.experiments.experiment import plan_experiment
    from satl.experiments.grid_run import train_and_test
    from satl.runs.data import load_data

    plan = plan_experiment(base / "grid.yaml", place / "grid")
    for grid_run, config in plan.configs.items():
        train_and_test(config, plan.folder.run_path(grid_run), load_data(config))
    plan.folder.write_grid(plan.grid)


def _experiment(base: Path, place: Path) -> None:
    from satl.experiments.experiment import run_experiment

    run_experiment(base / "grid.yaml", place / "grid")


def _copy_reviewed(base: Path, place: Path) -> None:
    shutil.copytree(base / "reviewed", place / "out")


def _decide(acknowledged: Path, bulk: int, place: Path) -> None:
    """Decide cells one after the other and note each answer outside, as a browser that shows it."""
    from satl.review.database import DecisionRequest, ReviewStore

    handle = os.open(acknowledged, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    with ReviewStore(place / "out") as store:
        store.refresh()
        done = {(cell.image, cell.label) for cell in store.decisions()}
        cells = _suggestions(place / "out")[5:29]
        for number in range(0, len(cells), bulk):
            wanted = cells[number : number + bulk]
            if not done.issuperset(wanted):
                store.decide("t", f"cells{number}", [DecisionRequest(*cell, -1, None) for cell in wanted])
            os.write(handle, f"{number}\n".encode())
    os.close(handle)


def _check_decisions(acknowledged: Path, bulk: int, place: Path) -> None:
    from satl.review.database import ReviewStore

    answered = {int(line) for line in acknowledged.read_text().split()} if acknowledged.exists() else set()
    with ReviewStore(place / "out") as store:
        done = {(cell.image, cell.label) for cell in store.decisions()}
    cells = _suggestions(place / "out")[5:29]
    for number in range(0, len(cells), bulk):
        found = done.intersection(cells[number : number + bulk])
        assert len(found) in (0, bulk), "some decisions of a request were stored and others not"
        assert found or number not in answered, "an acknowledged decision is lost"
    acknowledged.unlink(missing_ok=True)


def _merge(base: Path, further: Iterable[object], place: Path) -> None:
    satl("merge", base / "reviewed", base / "drawn.csv", "-o", place / "merged.csv", *further)


def _read_files(*names: str) -> Reader:
    def read(place: Path) -> list[bytes]:
        from satl.errors import TableError

        if not (place / names[0]).exists():
            raise TableError("is not there")
        return [(place / name).read_bytes() for name in names]

    return read


def _export(base: Path, format: str, out: str, further: Iterable[object], place: Path) -> None:
    satl("export", base / "reviewed", "-f", format, "-o", place / out, *further)


def _complete_scores(base: Path, precision: str, place: Path) -> None:
    satl(*_complete(base, precision), "-o", place / "out", "--force")


def _prepare_completed(base: Path, place: Path) -> None:
    """An older completion, with decisions of a person in it."""
    _copy_reviewed(base, place)


def _read_completed(out: str, place: Path) -> Any:
    from satl.completion.outputs.completed_folder import CompletedFolder

    folder = CompletedFolder.open(place / out)
    names = (folder.report, folder.changes, folder.labels, folder.completed, folder.thresholds)
    return [name.read_bytes() for name in names]


def _complete_table(base: Path, rate: str, place: Path) -> None:
    satl(
        *("complete", base / "labels.csv", "--images", base / "scenes", "-o", place / "out", "--review-only"),
        *("--backbone", "satl_tiny", "--weights", base / "tiny.safetensors", "--quiet"),
        *("--set", "training.epochs=2", "--set", "training.stage1_epochs=1", "--set", f"training.lr={rate}"),
        *(("--force",) if (place / "out").exists() or (place / "out-model").exists() else ()),
    )


def _thresholds(base: Path, rule: str, place: Path) -> None:
    satl(
        *("thresholds", "--scores", base / "scores.parquet", "--labels", base / "drawn.csv", "--rule", rule),
        *("-o", place / "thresholds.csv", "--force"),
    )


def scenarios(base: Path) -> list[Scenario]:
    """Return all scenarios; ``base`` holds what :func:`make_inputs` wrote."""
    own = partial
    force = ("--force",)
    features, vectors = own(_read_features, "features"), own(_read_features, "vectors.parquet")
    hugging = ("metadata.jsonl", "metadata.classes.json")
    return [
        Scenario(
            "train on pictures", own(_train, base, "train.yaml"), (24, 4), read=_read_run, faults=(5, 1)
        ),
        Scenario(
            "train on features", own(_train, base, "features.yaml"), (20, 4), read=_read_run, faults=(5, 1)
        ),
        Scenario("pack", own(_pack, base), (20, 4), read=_read_store, faults=(5, 2)),
        Scenario("embed", _embedding(base, 32, "features"), (16, 4), read=features, faults=(5, 1)),
        Scenario(
            "embed --force",
            _embedding(base, 32, "features", "--force"),
            (14, 3),
            prepare=_embedding(base, 24, "features"),
            read=features,
            faults=(5, 1),
        ),
        Scenario("embed to Parquet", own(_embed_parquet, base), (14, 3), read=vectors, faults=(5, 1)),
        Scenario("predict", _predicting(base, 0.5), (16, 4), read=_read_predictions, faults=(5, 2)),
        Scenario(
            "predict --force",
            _predicting(base, 0.5, "--force"),
            (12, 3),
            prepare=_predicting(base, 0.9),
            read=_read_predictions,
            faults=(5, 1),
        ),
        Scenario(
            "run of a grid",
            _in_sentences(own(_grid_run, base)),
            (14, 3),
            prepare=own(_new_grid, base),
            faults=(5, 1),
        ),
        Scenario(
            "results of a grid",
            _in_sentences(own(_experiment, base)),
            (10, 3),
            prepare=own(_trained_grid, base),
            faults=(5, 1),
        ),
        Scenario(
            "review, one by one",
            own(_decide, base / "acknowledged-one", 1),
            (24, 4),
            prepare=own(_copy_reviewed, base),
            check=own(_check_decisions, base / "acknowledged-one", 1),
        ),
        Scenario(
            "review, in bulk",
            own(_decide, base / "acknowledged-bulk", 6),
            (12, 3),
            prepare=own(_copy_reviewed, base),
            check=own(_check_decisions, base / "acknowledged-bulk", 6),
        ),
        Scenario(
            "merge --force",
            own(_merge, base, ("--include", "accepted", "--force")),
            (7, 3),
            prepare=own(_merge, base, ()),
            read=_read_files("merged.csv"),
            always_readable=True,
            faults=(5, 2),
            keeps_old=True,
        ),
        *(
            Scenario(
                f"export {name}",
                own(_export, base, name, files[0], force),
                (10, 3),
                prepare=own(_export, base, name, files[0], ("--band", "accepted")),
                read=_read_files(*files),
                always_readable=len(files) == 1,
                faults=(5, 1),
                keeps_old=True,
            )
            for name, files in (("huggingface", hugging), ("label-studio", ("tasks.json", "tasks.xml")))
        ),
        Scenario(
            "complete --force",
            own(_complete_scores, base, "0.9"),
            (20, 4),
            prepare=own(_prepare_completed, base),
            read=own(_read_completed, "out"),
            always_readable=True,
            faults=(5, 2),
            keeps_old=True,
        ),
        Scenario(
            "complete TABLE",
            own(_complete_table, base, "0.001"),
            (16, 4),
            read=own(_read_completed, "out"),
            faults=(5, 1),
        ),
        Scenario(
            "complete TABLE --force",
            own(_complete_table, base, "0.001"),
            (12, 3),
            prepare=own(_complete_table, base, "0.002"),
            read=own(_read_completed, "out"),
            always_readable=True,
            faults=(5, 1),
        ),
        Scenario(
            "thresholds --force",
            own(_thresholds, base, "cap"),
            (8, 2),
            prepare=own(_thresholds, base, "mat"),
            read=_read_files("thresholds.csv"),
            always_readable=True,
            faults=(5, 2),
            keeps_old=True,
        ),
    ]


def _embedding(base: Path, size: int, out: str, *further: object) -> Action:
    return lambda place: _embed(base, size, out, *further, place=place)


def _predicting(base: Path, threshold: float, *further: object) -> Action:
    return lambda place: _predict(base, threshold, *further, place=place)


def digest(content: Any) -> str:
    """Return a digest of what a reader returned."""
    if isinstance(content, np.ndarray):
        return hashlib.sha256(np.ascontiguousarray(content).tobytes()).hexdigest()
    if isinstance(content, (list, tuple)):
        return hashlib.sha256("".join(map(digest, content)).encode()).hexdigest()
    return hashlib.sha256(content if isinstance(content, bytes) else repr(content).encode()).hexdigest()

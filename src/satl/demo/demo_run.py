"""The demo: three methods, one after the other, on rendered scenes with 90 % of the labels hidden."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from satl.demo.demo_completion import COMPLETED, PICTURES, complete_demo
from satl.errors import Argument, ConfigError, SatlError, Sentence, Stopped, Task, nearest
from satl.files import atomic_path

if TYPE_CHECKING:
    from satl.completion.workflow.complete import Completion
    from satl.demo.warm_up import WarmUp, WarmUpConfig
    from satl.evaluation import Evaluation
    from satl.inference.recogniser import Recogniser
    from satl.inference.run_record import MethodRecord, RunRecord
    from satl.reports.comparison import Comparison
    from satl.runs.config import RunConfig
    from satl.runs.data import RunData
    from satl.training.display import Display

DEMO_METHODS = ("ignore", "sst", "sst+satl")
"""The methods of the demo, in the order of its table; also the names of its run folders."""

MARKER = "demo.yaml"
REPORT = "report.html"
RESULTS = "results.json"
OVERVIEW = "overview.png"
WARM_UP = "warm_up"
"""The folder of the warm-up in that of the demo, and its section in the configuration."""
FIGURES = "figures"
"""Where figures of the demo's runs are drawn; they are replaced with them."""
_OWN = frozenset({*DEMO_METHODS, MARKER, REPORT, RESULTS, OVERVIEW, FIGURES, COMPLETED, PICTURES, WARM_UP})
_MARK = "# Written by `satl demo`, which replaces this folder when it runs again.\n"
_ORIGIN = "the demo's configuration"
_ANOTHER_FOLDER = Sentence("choose another folder with {out}", out=Argument("out"))
_START_AGAIN = "run it again, it starts from the beginning"


@dataclass(frozen=True)
class DemoResult:
    """The results of the demo and their files."""

    comparison: Comparison
    report: Path
    results: Path
    overview: Path
    sentence: str
    completion: Completion


def demo_content(seed: int = 0, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """Return the demo's configuration as plain data: the sections of a run, ``warm_up`` and ``methods``.

    ``seed`` decides the pictures, the hidden labels and the weights; ``overrides`` are ``section.key=value``.
    """
    from satl.runs.reading import apply_overrides

    text = files("satl.demo").joinpath("demo.yaml").read_text(encoding="utf-8")
    seeds = (f"training.seed={seed}", f"data.scenes.seed={seed}")
    content = apply_overrides(yaml.safe_load(text), (*seeds, *overrides))
    if "method" in content:
        raise ConfigError(
            f"the demo trains {', '.join(DEMO_METHODS)}",
            where=_setting("method"),
            remedy=Sentence(
                "set a parameter of one of them with {key}", key=_setting("methods.NAME.key=value")
            ),
        )
    if not isinstance(content.get("data", {}).get("scenes"), Mapping):
        raise ConfigError(
            "the demo needs its scenes",
            where=_setting("data.scenes"),
            remedy=Sentence("use {train} for your own table", train=Task("train")),
        )
    for name in content.get("methods") or {}:
        if name not in DEMO_METHODS:
            raise ConfigError(
                f"the demo has no such method{nearest(name, DEMO_METHODS)}",
                where=_setting(f"methods.{name}"),
                remedy=f"it trains {', '.join(DEMO_METHODS)}",
            )
    model = content.get("model")
    if content.get(WARM_UP) is not None and isinstance(model, Mapping):
        for key in ("weights", "pretrained"):
            if model.get(key):
                raise ConfigError(
                    "the demo's network starts from its warm-up",
                    where=_setting(f"model.{key}"),
                    remedy=Sentence("add {key} to start from other weights", key=_setting(f"{WARM_UP}=null")),
                )
    return content


def _setting(text: str) -> Argument:
    """Return a setting of the demo, as it is given among ``overrides``."""
    return Argument("settings", text)


def demo_config(
    method: str, seed: int = 0, overrides: Iterable[str] = (), weights: Path | None = None
) -> RunConfig:
    """Return the configuration of one of the demo's runs; ``weights`` are those of the warm-up, if there was one.

    >>> demo_config("sst", seed=3, overrides=["training.epochs=9"]).training.epochs
    9
    """
    return _run_config(method, demo_content(seed, overrides), weights)


def warm_up_config(content: Mapping[str, Any]) -> WarmUpConfig | None:
    """Return the settings of the warm-up, or None where the configuration says null: start from random weights.

    >>> warm_up_config(demo_content(overrides=["warm_up=null"])) is None
    True
    """
    if content.get(WARM_UP) is None:
        return None
    from satl.demo.warm_up import WarmUpConfig
    from satl.runs.reading import make_section

    return make_section(WarmUpConfig, content[WARM_UP], WARM_UP, _ORIGIN)


def _run_config(method: str, content: Mapping[str, Any], weights: Path | None = None) -> RunConfig:
    from satl.runs.reading import make_config

    run = {key: value for key, value in content.items() if key not in ("methods", WARM_UP)}
    if weights is not None:
        # Absolute, so that a run finds its beginning from whatever folder it is resumed in.
        run["model"] = {**run["model"], "weights": str(Path(weights).resolve())}
    own = (content.get("methods") or {}).get(method) or {}
    return make_config({**run, "method": {"name": method, **own}}, _ORIGIN)


def run_demo(
    out: Path,
    seed: int = 0,
    overrides: Iterable[str] = (),
    display: Callable[[RunData], Display] | None = None,
    announce: Callable[[str], Any] | None = None,
    progress: Callable[[str, int, int], Any] | None = None,
) -> DemoResult:
    """Warm the backbone up, train the three methods into ``out``, measure them, write the report.

    A folder that an earlier demo wrote is replaced; any other that is not empty is left alone.

    Args:
        out: folder for everything the demo writes.
        seed: of pictures, hidden labels and weights.
        overrides: ``section.key=value`` settings.
        display: makes the display of a training.
        announce: is called with a few words before each step.
        progress: is called with what the warm-up does, how much of it is done, and how much there is.

    Raises:
        SatlError: a setting is wrong, or ``out`` holds something else.
    """
    content = demo_content(seed, overrides)
    configs = {name: _run_config(name, content) for name in DEMO_METHODS}
    settings = warm_up_config(content)
    out = Path(out)
    scenes = configs[DEMO_METHODS[0]].data.scenes
    assert scenes is not None
    if scenes.test == 0:
        raise ConfigError(
            "the demo compares methods on test scenes",
            where=_setting("data.scenes.test"),
            remedy="give at least 1",
        )
    _check_folder(out)
    from satl.runs.data import load_data

    say = announce or (lambda text: None)
    say(f"Rendering {scenes.train + scenes.val + scenes.test} scenes")
    data = load_data(configs[DEMO_METHODS[0]])
    _clear_folder(out)
    with atomic_path(out / MARKER) as temporary:
        temporary.write_text(_MARK + yaml.safe_dump(content, sort_keys=False), encoding="utf-8")

    beginning = None
    if settings is not None:
        say(f"Warming up: {settings.pictures:,} pictures of single objects")
        beginning = _warm_up(configs[DEMO_METHODS[0]], settings, out, progress)
        say(_beginning_sentence(beginning))
        configs = {name: _run_config(name, content, beginning.weights) for name in DEMO_METHODS}
    measured, evaluations = [], {}
    for number, name in enumerate(DEMO_METHODS, start=1):
        say(f"Training {name} ({number} of {len(DEMO_METHODS)})")
        record, evaluations[name], last = _train(configs[name], data, out / name, display)
        measured.append(record)
    say("Completing a table")
    completion = complete_demo(out, last, out / DEMO_METHODS[-1], data, scenes.size, scenes.seed)
    say("Writing the report")
    from satl.reports.comparison import compare
    from satl.reports.training_images import scene_pixels

    comparison = compare(*measured, beginning=_beginning_sentence(beginning))
    pixels_of = scene_pixels(data.rows("train"), scenes.size, scenes.seed)
    return _write(out, comparison, evaluations, content, pixels_of, completion, beginning)


def _warm_up(
    config: RunConfig, settings: WarmUpConfig, out: Path, progress: Callable[[str, int, int], Any] | None
) -> WarmUp:
    from satl.demo.warm_up import WEIGHTS, warm_up

    try:
        return warm_up(config, settings, out / WARM_UP / WEIGHTS, progress)
    except KeyboardInterrupt as stop:
        raise Stopped("the demo was stopped during its warm-up", where=out, remedy=_START_AGAIN) from stop


def _beginning_sentence(beginning: WarmUp | None) -> str:
    """Return what the three networks start from, in a sentence."""
    if beginning is None:
        return "All started from random weights."
    return (
        f"All started from the same features, learned first from {beginning.pictures:,} drawn pictures of one object "
        f"each, none of them a scene, in {beginning.seconds:.0f} s ({100 * beginning.accuracy:.0f} % of unseen ones "
        "are named rightly)."
    )


def _train(
    config: RunConfig, data: RunData, path: Path, display: Callable[[RunData], Display] | None
) -> tuple[RunRecord, Evaluation, Recogniser]:
    """Train one method, test its best model, and score the training cells with its last one; each is loaded once."""
    from satl.inference.recogniser import Recogniser
    from satl.inference.run_evaluation import evaluate_run
    from satl.inference.run_record import measure_run
    from satl.runs.run_folder import RunFolder
    from satl.training.trainer import Interrupted, Trainer

    folder = RunFolder(path)
    trainer = Trainer.start(config, data, folder, None if display is None else display(data))
    begun = time.perf_counter()
    try:
        trainer.fit()
    except Interrupted as stop:
        raise Stopped(
            f"the demo was stopped while {config.method.name} was trained",
            where=path.parent,
            remedy=_START_AGAIN,
        ) from stop
    seconds = time.perf_counter() - begun
    evaluation, _ = evaluate_run(path, "test", data=data)
    last = Recogniser.load(path, "last")
    record = measure_run(folder, data, evaluation, last)
    return replace(record, method=replace(record.method, seconds=seconds)), evaluation, last


def _check_folder(out: Path) -> None:
    """Refuse a folder with anything in it that the demo did not put there."""
    if out.exists() and not out.is_dir():
        raise SatlError("is a file, not a folder", where=out, remedy=_ANOTHER_FOLDER)
    names = sorted(entry.name for entry in out.iterdir()) if out.is_dir() else []
    strange = [name for name in names if name not in _OWN and not _is_leftover(name)]
    if strange:
        raise SatlError(f"holds '{strange[0]}', which is not the demo's", where=out, remedy=_ANOTHER_FOLDER)
    marker = out / MARKER
    if names and not (marker.is_file() and marker.read_text("utf-8", "replace").startswith(_MARK)):
        raise SatlError("is not empty and was not written by the demo", where=out, remedy=_ANOTHER_FOLDER)


def _is_leftover(name: str) -> bool:
    """Whether the name is that of a file whose writing was cut off."""
    return name.startswith(".") and ".partial" in name


def _clear_folder(out: Path) -> None:
    """Remove what an earlier demo wrote; its marker goes last, so that a rerun still knows the folder."""
    entries = sorted(out.iterdir(), key=lambda entry: entry.name == MARKER) if out.is_dir() else []
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _write(
    out: Path,
    comparison: Comparison,
    evaluations: Mapping[str, Evaluation],
    content: Mapping[str, Any],
    pixels_of: Callable[[int], Any],
    completion: Completion,
    beginning: WarmUp | None,
) -> DemoResult:
    """Write the report, the overview image and, last, the results."""
    from satl.reports.comparison_page import comparison_page, sentence
    from satl.reports.overview import write_overview

    text = sentence(comparison)
    with atomic_path(out / REPORT) as temporary:
        temporary.write_text(comparison_page(comparison, pixels_of, title="satl demo"), encoding="utf-8")
    write_overview(comparison, pixels_of, out / OVERVIEW)
    results = {
        "sentence": text,
        "seed": comparison.seed,
        "images": comparison.counts,
        "known_proportion": comparison.proportion,
        "warm_up": None
        if beginning is None
        else {
            "pictures": beginning.pictures,
            "accuracy": beginning.accuracy,
            "seconds": round(beginning.seconds, 2),
        },
        "methods": {
            method.name: {
                "seconds": round(method.seconds, 2),
                "best_epoch": method.best_epoch + 1,
                "test": evaluations[method.name].as_dict(),
                "pseudo_labels_last_epoch": method.epochs[-1]["pseudo_labels"],
                "pseudo_labels_final": _quality(comparison, method),
                "thresholds": {name: _rounded(values) for name, values in method.thresholds.items()},
            }
            for method in comparison.methods
        },
        "completion": {"statement": completion.report["statement"], **completion.report["counts"]},
        "configuration": content,
    }
    with atomic_path(out / RESULTS) as temporary:
        temporary.write_text(json.dumps(results, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return DemoResult(comparison, out / REPORT, out / RESULTS, out / OVERVIEW, text, completion)


def _quality(comparison: Comparison, method: MethodRecord) -> dict[str, Any] | None:
    quality = method.quality(comparison.cells, comparison.truth)
    return None if quality is None else quality.as_dict()


def _rounded(values: Any) -> list[float]:
    return [round(float(value), 6) for value in values]

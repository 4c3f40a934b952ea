"""The card of a model: what it was trained on, what it can do and what it cannot, as Markdown with a YAML header.

The header is that of the Hugging Face Hub. Names of files are given without their folders, and nothing of a picture.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from satl.completion.outputs.changes import COMPLETE_AGAIN
from satl.completion.outputs.completed_folder import CompletedFolder
from satl.errors import RunError, Sentence
from satl.evaluation.pseudo_quality import next_to_none
from satl.inference.run_record import is_finished
from satl.inference.side_by_side import METRICS, read_evaluations, training_facts
from satl.runs.config import RunConfig
from satl.runs.run_folder import RunFolder

RARE = 10
"""Known positives below which a class is listed among the limits."""
_PERCENT_OF = {"mAP": "mAP", "mAP_rare": "mAP of the rarest third", "OF1": "OF1", "CF1": "CF1"}


def model_card(run: Path | str, completed: Path | str | None = None) -> str:
    """Return the card of a finished run; nothing is computed, and the data is not looked at.

    Args:
        run: its folder.
        completed: folder of a completion with its model, for the certificates.

    Raises:
        RunError: the run is not finished, a file of it cannot be read, or the completion is of something else.
    """
    folder = RunFolder.open(run)
    config = folder.read_config()
    facts = training_facts(folder, config.training.epochs)
    if not is_finished(config.resolved(), facts["epochs"]["done"]):
        raise RunError(
            f"the run is not finished ({facts['epochs']['done']} of {config.training.epochs} epochs), and its model "
            "will change",
            where=folder.path,
            remedy=Sentence("continue it with {train}", train=folder.resume_task),
        )
    classes, counts = folder.read_classes(), folder.read_counts()
    if counts is not None and {len(counts["positives"]), len(counts["negatives"])} != {len(classes)}:
        raise RunError(
            "does not fit classes.json", where=folder.data, remedy="restore it from a copy of the run"
        )
    evaluations = read_evaluations(folder.path)
    certificates = None if completed is None else _certificates(Path(completed), classes)
    name = folder.path.resolve().name
    sections = (
        [f"# {_plain(name)}", "", _summary(config, classes, counts)],
        ["## Data", "", *_data(config, counts, folder)],
        ["## Model", "", *_model(config)],
        ["## Metrics", "", *_metrics(facts, evaluations)],
        ["## Classes", "", *_classes(classes, counts)],
        [] if certificates is None else ["## Certificates", "", *certificates],
        ["## Limits", "", *_limits(classes, counts, certificates is not None)],
        ["## Use", "", *_use()],
        ["## Licence", "", "Not chosen yet: write it here and as `license:` into the header of this card."],
    )
    lines = [line for section in sections if section for line in (*section, "")]
    return _header(name, config, evaluations) + "\n" + "\n".join(lines).rstrip() + "\n"


def _header(name: str, config: RunConfig, evaluations: Mapping[str, Any]) -> str:
    """Return the YAML header, with a comment where the licence belongs."""
    content: dict[str, Any] = {
        "library_name": "satl",
        "pipeline_tag": "image-classification",
        "tags": ["multi-label", "partial-labels", "missing-labels", "satl"],
    }
    if not config.on_features and "." in config.model.backbone and config.model.pretrained:
        content["base_model"] = f"timm/{config.model.backbone}"
    results = []
    for split, found in evaluations.items():
        values = [
            {"type": key, "name": _PERCENT_OF[key], "value": round(found[key], 6)}
            for key in METRICS
            if found[key] is not None
        ]
        if values:
            results.append(
                {
                    "task": {"type": "image-classification", "name": "Multi-label image classification"},
                    "dataset": {"type": "table", "name": data_name(config), "split": split},
                    "metrics": values,
                }
            )
    if results:
        content["model-index"] = [{"name": name, "results": results}]
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    return f"---\n# license: choose one and remove the mark in front of this line\n{text}---\n"


def data_name(config: RunConfig) -> str:
    """Return what the data of a run is called, without its folder."""
    data = config.data
    if data.scenes is not None:
        return "drawn scenes"
    return data.dataset if data.dataset is not None else Path(data.table or "table").name


def _summary(config: RunConfig, classes: Sequence[str], counts: Mapping[str, Any] | None) -> str:
    known = "" if counts is None else f", of whose training cells {_share_known(counts)} are known"
    what = "features of images" if config.on_features else "images"
    return (
        f"Tells for {what} which of {len(classes):,} classes are present, several at a time. Trained by satl with the "
        f"method `{config.method.name}` on {_plain(data_name(config))}{known}."
    )


def _share_known(counts: Mapping[str, Any]) -> str:
    cells = counts["images"].get("train", 0) * len(counts["positives"])
    known = sum(counts["positives"]) + sum(counts["negatives"])
    return f"{100 * known / cells:.1f} %" if cells else "none"


def _data(config: RunConfig, counts: Mapping[str, Any] | None, folder: RunFolder) -> Iterator[str]:
    data = config.data
    yield from _table(("", ""), _data_rows(config, counts))
    broken = len(folder.all_broken())
    if broken:
        yield f"\n{broken:,} images could not be read and were left out or replaced."
    yield ""
    yield (
        "A cell says that a class is present, absent, or that nobody looked. Cells that nobody looked at are neither "
        "positives nor negatives: training and every metric here leave them out, but for the pseudo-labels that the "
        "method makes."
    )
    if data.holdout:
        yield "Some known cells were held out of training, so that certificates could be tested on them."


def _data_rows(config: RunConfig, counts: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    data = config.data
    yield "data", _plain(data_name(config))
    if counts is not None:
        for split, number in counts["images"].items():
            yield f"images, {split}", f"{number:,}"
        yield "known training cells", _share_known(counts)
        yield "of these present", f"{sum(counts['positives']):,}"
        yield "of these absent", f"{sum(counts['negatives']):,}"
    if data.proportion is not None:
        yield "labels hidden on purpose", f"all but {100 * data.proportion:g} %"
    if data.encoding is not None:
        yield "encoding of the table", f"`{data.encoding}`"


def _model(config: RunConfig) -> Iterator[str]:
    training, model = config.training, config.model
    rows = [("method", f"`{config.method.name}`")]
    rule = config.method.thresholds.get("rule")
    if rule is not None:
        rows.append(("threshold rule of pseudo-labels", f"`{rule}`"))
    if config.on_features:
        rows.append(("input", f"features ({_plain(config.input_name)})"))
    else:
        origin = "pretrained" if model.pretrained else "from random weights"
        if model.weights is not None:
            origin = f"weights from {_plain(Path(model.weights).name)}"
        rows += [("backbone", f"`{model.backbone}`, {origin}"), ("image size", f"{config.images.size}")]
    rows += [
        ("epochs, of these without pseudo-labels", f"{training.epochs}, {training.stage1_epochs}"),
        ("batch size, learning rate, seed", f"{training.batch_size}, {training.lr:g}, {training.seed}"),
        ("precision", training.precision),
    ]
    yield from _table(("", ""), rows)
    yield ""
    yield "Every other setting: `config.yaml`."


def _metrics(facts: Mapping[str, Any], evaluations: Mapping[str, Any]) -> Iterator[str]:
    rows = []
    for which in ("last", "best"):
        found = facts[which]
        if any(found.get(key) is not None for key in METRICS):
            rows.append((f"validation, {which} epoch ({found['epoch']})", *_percents(found)))
    for split, found in evaluations.items():
        about = f"{split}, checkpoint {found.get('checkpoint', 'best')}"
        cuts = re.sub(r"\S*[/\\]", "", found.get("thresholds", "0.5"))  # a file without its folder
        rows.append((f"{about}, present from {_plain(cuts)}", *_percents(found)))
    if not rows:
        yield "Nothing was measured: the run had no validation images, and has not been evaluated."
        return
    yield "In per cent, over known cells; `-` where nothing could be measured."
    yield ""
    yield from _table(("", *(_PERCENT_OF[key] for key in METRICS)), rows)
    for split, found in evaluations.items():
        for doubt in found.get("doubts", ()):
            yield f"\nDoubt about {split}: {_plain(doubt)}"
    union = facts["pseudo_labels"]
    if union.get("emitted") is not None:
        yield f"\nPseudo-labels in the last epoch: {union['emitted']:,.0f}.{_few(union)}"


def _few(union: Mapping[str, Any]) -> str:
    """Say that these are next to no pseudo-labels, where they are."""
    if not next_to_none(union):
        return ""
    return (
        f" That is next to none of the {union['expected']:,.0f} positives to be expected among the unknown cells: the "
        "model has learned from the known cells alone."
    )


def _percents(found: Mapping[str, Any]) -> list[str]:
    return ["-" if found.get(key) is None else f"{100 * found[key]:.2f}" for key in METRICS]


def _classes(classes: Sequence[str], counts: Mapping[str, Any] | None) -> Iterator[str]:
    if counts is None:
        yield from _table(("class",), [(_plain(name),) for name in classes])
        return
    cells = zip(classes, counts["positives"], counts["negatives"], strict=True)
    rows = [(_plain(name), f"{present:,}", f"{absent:,}") for name, present, absent in cells]
    yield from _table(("class", "known present", "known absent"), rows)


def _certificates(path: Path, classes: Sequence[str]) -> list[str]:
    """Return what a completion promises, and for which classes."""
    folder = CompletedFolder.open(path)
    report = folder.read_report()
    if report["source"].get("kind") != "run" or [one["name"] for one in report["classes"]] != list(classes):
        raise RunError(
            "is not a completion with the model of this run", where=path, remedy="give another, or none"
        )
    rows = []
    try:
        for entry in report["classes"]:
            for side in ("present", "absent"):
                found = entry[side]
                limit = f"{found['threshold']:.4f}" if found["certified"] else "none"
                tested = (f"{found['held_out']:,}", f"{found['errors']:,}")
                rows.append((_plain(entry["name"]), side, limit, *tested))
        rests_on = report["assumption"].partition(" The second is checked below")[0]
        told = [_plain(report["statement"]), "", _plain(rests_on), ""]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise RunError(
            "lacks what a completion writes", where=folder.report, remedy=COMPLETE_AGAIN
        ) from error
    return [*told, *_table(("class", "direction", "threshold", "tested cells", "of these wrong"), rows)]


def _limits(
    classes: Sequence[str],
    counts: Mapping[str, Any] | None,
    certified: bool,
) -> Iterator[str]:
    yield (
        "* The metrics are over known cells. If people chose which cells to label, they say little about the others."
    )
    yield "* One run with one seed: another seed gives other numbers."
    yield "* Pictures of another kind than the training pictures were not tested."
    if counts is not None:
        rare = [name for name, known in zip(classes, counts["positives"], strict=True) if known < RARE]
        if rare:
            yield f"* Fewer than {RARE} known positives to learn from: {', '.join(map(_plain, rare))}."
    if not certified:
        yield "* Nothing is promised about the precision of a class: this card is of no completion."
    else:
        yield "* The certificates are about cells like those that they were tested on."


def _use() -> list[str]:
    return [
        "```sh",
        "satl predict FOLDER photos/ -o predictions.csv",
        "```",
        "",
        "`FOLDER` is the folder that this card lies in. A class counts as present from a probability of 0.5 on, or",
        "from thresholds of your own (`--thresholds FILE`).",
    ]


def _table(head: Sequence[str], rows: Any) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "| " + " | ".join("---" for _ in head) + " |"
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def _plain(text: str) -> str:
    r"""Return a name as it is read, whatever signs of Markdown or HTML it has.

    >>> print(_plain("a|b <i> [x](y)"))
    a\|b &lt;i> \[x\](y)
    """
    text = re.sub(r"\s+", " ", text).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", text)

"""Write the pages of ``docs/configuration/``, one per section, from the configuration's own models.

``python tools/write_configuration_page.py`` writes them; ``--check`` only says whether they are up to date. The page
that leads to them, ``docs/configuration.md``, is written by hand.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from satl.images.images_config import ImagesConfig
from satl.methods import METHODS, Method
from satl.methods.method_parts import GENERATORS, LOSSES, NETWORKS, RULES
from satl.methods.parameters import TeacherParameters
from satl.models.model_config import ModelConfig
from satl.runs.config import DataConfig, ScenesConfig, TrainingConfig, flat_settings
from satl.runs.feature_runs import DEFAULTS, FeaturesConfig
from satl.sections import Section

FOLDER = Path(__file__).parents[1] / "docs" / "configuration"
MARK = "<!-- written by tools/write_configuration_page.py -->"
SECTIONS: dict[str, tuple[tuple[str, type[Section]], ...]] = {
    "data": (("data", DataConfig), ("data.scenes", ScenesConfig)),
    "images": (("images", ImagesConfig),),
    "features": (("features", FeaturesConfig),),
    "model": (("model", ModelConfig),),
    "training": (("training", TrainingConfig),),
}
ABOUT = {
    "data": "How tables are read: [label tables](../labels.md). Data sets by name: [data sets](../datasets.md).",
    "images": "What happens to a picture on its way to the network: [images](../images.md).",
    "features": "Training on the vectors of a frozen network: [features](../features.md).",
    "model": "Which backbones there are: [backbones](../backbones.md). What follows them: [network](../network.md).",
    "training": "What a run does with these: [training](../training.md), [several processes](../processes.md).",
}
"""Where a reader of a section goes on."""


def values(field: FieldInfo) -> str:
    """Say which values a key takes.

    >>> values(TrainingConfig.model_fields["epochs"])
    'integer >= 1 and <= 1e+06'
    >>> values(TrainingConfig.model_fields["schedule"])
    '`step`, `cosine`, `constant`'
    """
    limits = []
    for rule in field.metadata:
        for name, sign in (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<=")):
            bound = getattr(rule, name, None)
            if bound is not None:
                limits.append(f"{sign} {bound:g}")
    return " ".join([_kind(field.annotation), *([" and ".join(limits)] if limits else [])])


def _kind(annotation: Any) -> str:
    plain = {
        int: "integer",
        float: "number",
        str: "text",
        bool: "`true`, `false`",
        Path: "path",
        type(None): "`null`",
    }
    if annotation in plain:
        return plain[annotation]
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{option}`" for option in get_args(annotation))
    if get_origin(annotation) is tuple:
        return f"list ({_kind(get_args(annotation)[0])})"
    if get_origin(annotation) is dict:
        return "mapping"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    options = [option for option in get_args(annotation) if option is not type(None)]
    return " or ".join(_kind(option) for option in options)


def _default(field: FieldInfo) -> str:
    return _shown(field.get_default(call_default_factory=True))


def _shown(value: Any) -> str:
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{value}`"


def _table(model: type[BaseModel], prefix: str) -> list[str]:
    lines = ["| key | default | values | meaning |", "| --- | --- | --- | --- |"]
    for name, field in model.model_fields.items():
        if field.description is None:
            raise SystemExit(f"{model.__name__}.{name} has no description; give its Field one.")
        cells = (f"`{prefix}.{name}`", _default(field), values(field), field.description)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


def pages() -> dict[str, str]:
    """Return the pages as they should be, by the name of their file."""
    made = {}
    for page, models in SECTIONS.items():
        lines = [f"# Configuration: `{page}`", "", MARK, ""]
        for name, model in models:
            lines += [] if name == page else [f"## {name}", ""]
            lines += [(model.__doc__ or "").splitlines()[0], *([ABOUT[page]] if name == page else []), ""]
            lines += [*_table(model, name), ""]
        made[f"{page}.md"] = lines
    others = ", ".join(f"`{key}` {_shown(value)}" for key, value in flat_settings(DEFAULTS).items())
    made["features.md"] += [f"With `data.features` some defaults are different: {others}.", ""]
    made["method.md"] = _method_page()
    return {name: "\n".join(lines).rstrip() + "\n" for name, lines in made.items()}


def _method_page() -> list[str]:
    lines = [
        "# Configuration: `method`",
        "",
        MARK,
        "",
        "`method.name` chooses the method (default `sst+satl`); each of its parts has a section of its own. For a",
        "method that makes pseudo-labels, `method.thresholds.rule` chooses another [threshold rule](../thresholds.md),",
        "and `method.generators.NAME: false` leaves a generator out. `method.network.name` gives a method the",
        "[network](../network.md#the-network-of-another-method) of another one. `satl methods` prints the same lists.",
        "",
        "## Methods",
        "",
        "| method | network | generators | threshold rule | stage 1 | added in stage 2 | own defaults |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_declaration(method) for method in METHODS.values()]
    lines += [
        _declaration(method.on_features, " on features")
        for method in METHODS.values()
        if method.on_features is not None
    ]
    lines.append("")
    for kind, registry, section in (
        ("Network", NETWORKS, "method.network"),
        ("Generator", GENERATORS, "method.generators.{}"),
        ("Threshold rule", RULES, "method.thresholds"),
        ("Loss", LOSSES, "method.losses.{}"),
    ):
        for name, part in registry.items():
            if part.parameters.model_fields:
                lines += _section(f"{kind} `{name}`", part.parameters, section.format(name), part.summary)
    return lines + _section("Teacher", TeacherParameters, "method.teacher")


def _section(title: str, model: type[BaseModel], prefix: str, summary: str = "") -> list[str]:
    # Parts can share a model of parameters, whose docstring then says what only some of them do.
    return [
        f"## {title}",
        "",
        summary or (model.__doc__ or "").splitlines()[0],
        "",
        *_table(model, prefix),
        "",
    ]


def _declaration(method: Method, remark: str = "") -> str:
    """Return one row of the table of methods."""
    added = [name for name in method.stage2 if name not in method.stage1]
    gone = [f"without {name}" for name in method.stage1 if name not in method.stage2]
    cells = (
        f"`{method.name}`{remark}",
        method.network,
        ", ".join(method.generators) or "-",
        method.rule or "-",
        ", ".join(method.stage1),
        ", ".join(added + gone) or "-",
        ", ".join(f"{name} {_shown(value)}" for name, value in flat_settings(method.defaults).items()) or "-",
    )
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(description="Write the pages of docs/configuration/.")
    parser.add_argument("--check", action="store_true", help="only say whether the pages are up to date")
    check = parser.parse_args().check
    for name, text in pages().items():
        path = FOLDER / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if check:
            sys.exit(
                f"docs/configuration/{name} is out of date; run `python tools/write_configuration_page.py`."
            )
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

"""Write the tables of ``docs/configuration.md`` from the configuration's own models.

``python tools/write_configuration_page.py`` rewrites the part between the two marks; ``--check`` only says whether the
file is up to date. Text outside the marks is written by hand.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from satl.methods import METHODS, Method
from satl.methods.method_parts import GENERATORS, LOSSES, NETWORKS, RULES
from satl.methods.parameters import TeacherParameters
from satl.models.model_config import ModelConfig
from satl.runs.config import DataConfig, ImagesConfig, ScenesConfig, TrainingConfig, flat_settings
from satl.sections import Section

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"
BEGIN = "<!-- begin: written by tools/write_configuration_page.py -->"
END = "<!-- end -->"
SECTIONS: tuple[tuple[str, type[Section]], ...] = (
    ("data", DataConfig),
    ("data.scenes", ScenesConfig),
    ("images", ImagesConfig),
    ("model", ModelConfig),
    ("training", TrainingConfig),
)


def values(field: FieldInfo) -> str:
    """Say which values a key takes.

    >>> values(TrainingConfig.model_fields["epochs"])
    'integer >= 1'
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


def reference() -> str:
    """Return the generated part of the page."""
    lines: list[str] = []
    for name, model in SECTIONS:
        lines += [f"### {name}", "", (model.__doc__ or "").splitlines()[0], "", *_table(model, name), ""]
    lines += [
        "### method",
        "",
        "`method.name` chooses the method (default `sst+satl`); each of its parts has a section of its own. For a",
        "method that makes pseudo-labels, `method.thresholds.rule` chooses another threshold rule, and",
        "`method.generators.NAME: false` leaves a generator out.",
        "",
        "| method | network | generators | threshold rule | stage 1 | added in stage 2 | own defaults |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_declaration(method) for method in METHODS.values()]
    lines.append("")
    for kind, registry, section in (
        ("Network", NETWORKS, "method.network"),
        ("Generator", GENERATORS, "method.generators.{}"),
        ("Threshold rule", RULES, "method.thresholds"),
        ("Loss", LOSSES, "method.losses.{}"),
    ):
        for name, part in registry.items():
            if part.parameters.model_fields:
                lines += _section(f"{kind} `{name}`", part.parameters, section.format(name))
    lines += _section("Teacher", TeacherParameters, "method.teacher")
    return "\n".join(lines).rstrip() + "\n"


def _section(title: str, model: type[BaseModel], prefix: str) -> list[str]:
    summary = (model.__doc__ or "").splitlines()[0]
    return [f"#### {title}", "", summary, "", *_table(model, prefix), ""]


def _declaration(method: Method) -> str:
    """Return one row of the table of methods."""
    added = [name for name in method.stage2 if name not in method.stage1]
    gone = [f"without {name}" for name in method.stage1 if name not in method.stage2]
    cells = (
        f"`{method.name}`",
        method.network,
        ", ".join(method.generators) or "-",
        method.rule or "-",
        ", ".join(method.stage1),
        ", ".join(added + gone) or "-",
        ", ".join(f"{name} {_shown(value)}" for name, value in flat_settings(method.defaults).items()) or "-",
    )
    return "| " + " | ".join(cells) + " |"


def page() -> str:
    """Return the whole page as it should be."""
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not end:
        raise SystemExit(f"{PAGE.name} lacks the marks {BEGIN} and {END}; put them back.")
    return f"{head}{BEGIN}\n\n{reference()}\n{END}{tail}"


def main() -> None:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description="Write the tables of docs/configuration.md.")
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    check = parser.parse_args().check
    fresh = page()
    if PAGE.read_text(encoding="utf-8") == fresh:
        return
    if check:
        sys.exit("docs/configuration.md is out of date; run `python tools/write_configuration_page.py`.")
    PAGE.write_text(fresh, encoding="utf-8")


if __name__ == "__main__":
    main()

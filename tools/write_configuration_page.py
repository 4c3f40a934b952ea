"""Write the tables of ``docs/configuration.md`` from the configuration's own models.

``python tools/write_configuration_page.py`` rewrites the part between the two marks; ``--check`` only says whether the
file is up to date. Text outside the marks is written by hand.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from satl.methods import METHODS, Method, Parameters
from satl.methods.declaration import GENERATORS, NETWORKS, RULES, TERMS
from satl.runs.config import DataConfig, ImagesConfig, ModelConfig, ScenesConfig, Section, TrainingConfig

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
    return _rows(model, model.model_fields, prefix)


def _rows(model: type[BaseModel], fields: Mapping[str, FieldInfo], prefix: str) -> list[str]:
    lines = ["| key | default | values | meaning |", "| --- | --- | --- | --- |"]
    for name, field in fields.items():
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
        "`method.name` chooses the method (default `sst+satl`). For a method that makes pseudo-labels,",
        "`method.threshold` chooses another threshold rule and `method.generators` some of its generators only,",
        "such as `[cross]`; the other keys are those of the method's parts.",
        "",
        "| method | network | generators | threshold | stage 1 | added in stage 2 | own defaults |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_declaration(method) for method in METHODS.values()]
    lines += ["", "#### Every method", "", *_table(Parameters, "method"), ""]
    for kind, registry in (
        ("Network", NETWORKS),
        ("Generator", GENERATORS),
        ("Threshold rule", RULES),
        ("Loss term", TERMS),
    ):
        for name, part in registry.items():
            own = {
                key: field
                for key, field in part.parameters.model_fields.items()
                if key not in Parameters.model_fields
            }
            if own:
                summary = (part.parameters.__doc__ or "").splitlines()[0]
                lines += [
                    f"#### {kind} `{name}`",
                    "",
                    summary,
                    "",
                    *_rows(part.parameters, own, "method"),
                    "",
                ]
    return "\n".join(lines).rstrip() + "\n"


def _declaration(method: Method) -> str:
    """Return one row of the table of methods."""
    added = [name for name in method.stage2 if name not in method.stage1]
    gone = [f"without {name}" for name in method.stage1 if name not in method.stage2]
    cells = (
        f"`{method.name}`",
        method.network,
        ", ".join(method.generators) or "-",
        method.threshold or "-",
        ", ".join(method.stage1),
        ", ".join(added + gone) or "-",
        ", ".join(f"{name} {_shown(value)}" for name, value in method.defaults.items()) or "-",
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

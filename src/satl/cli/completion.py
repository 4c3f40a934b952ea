"""What the shell completes after an option or argument, where that is known without loading anything heavy."""

from __future__ import annotations

from collections.abc import Callable

import typer

ENCODINGS = ("complete", "blank", "signed", "csl", "chexpert", "words")
DATASETS = (
    *("chexpert", "coco2014", "coco2017", "coco", "lvis", "openimages"),
    *("vg200", "vg200_from_objects", "voc2007", "voc2012"),
)
TOOLS = ("coco", "cvat", "fiftyone", "huggingface", "label-studio", "wide", "long")
"""The names of what is registered elsewhere, for which numpy would be loaded; a test compares them."""


def one_of(*names: str) -> Callable[[str], list[str]]:
    """Return a function that completes these names.

    >>> one_of("best", "last")("b")
    ['best']
    """

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


def recipe(incomplete: str) -> list[str]:
    """Complete the name of a recipe."""
    from satl.recipes import recipe_names

    return one_of(*recipe_names())(incomplete)


def rule(incomplete: str) -> list[str]:
    """Complete the name of a threshold rule."""
    from satl.recipes.method_list import listed_rules

    return one_of(*listed_rules())(incomplete)


def method_or_rule(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a method, or of a rule after ``--rules``."""
    from satl.recipes.method_list import listed_methods

    return rule(incomplete) if ctx.params.get("rules") else one_of(*listed_methods())(incomplete)

"""``satl recipes``."""

from __future__ import annotations

from typing import Annotated

import typer

from satl.cli.completion import recipe
from satl.cli.json_output import JsonOption, print_json
from satl.errors import ConfigError


def recipes(
    name: Annotated[
        str | None, typer.Argument(help="Print this recipe as YAML, to be edited.", autocompletion=recipe)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the published settings, or print one as a configuration file."""
    from satl.recipes import read_recipe, recipe_datasets, recipe_names

    if name is not None:
        try:
            content = read_recipe(name)
        except ConfigError as error:  # here its name is no option
            raise ConfigError(error.what, where=name, remedy=error.remedy) from None
        if as_json:
            print_json(content)
            return
        import yaml

        typer.echo(yaml.safe_dump(content, sort_keys=False), nl=False)
        return
    if as_json:
        print_json({"recipes": recipe_names()})
        return
    from satl.recipes.method_list import listed_methods

    typer.echo(
        "A recipe is DATASET/METHOD, for example `satl train --recipe coco/sst+satl --data DIR --out RUN`."
    )
    typer.echo(f"Data sets: {', '.join(recipe_datasets())}")
    typer.echo(f"Methods:   {', '.join(listed_methods())}")

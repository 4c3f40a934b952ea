"""``satl recipes``."""

from __future__ import annotations

from typing import Annotated

import typer

from satl.errors import ConfigError


def recipes(
    name: Annotated[str | None, typer.Argument(help="Print this recipe as YAML, to be edited.")] = None,
) -> None:
    """List the published settings, or print one as a configuration file."""
    from satl.recipes import read_recipe, recipe_datasets

    if name is not None:
        import yaml

        try:
            recipe = read_recipe(name)
        except ConfigError as error:  # here its name is no option
            raise ConfigError(error.what, where=name, remedy=error.remedy) from None
        typer.echo(yaml.safe_dump(recipe, sort_keys=False), nl=False)
        return
    from satl.recipes.method_list import listed_methods

    typer.echo(
        "A recipe is DATASET/METHOD, for example `satl train --recipe coco/sst+satl --data DIR --out RUN`."
    )
    typer.echo(f"Data sets: {', '.join(recipe_datasets())}")
    typer.echo(f"Methods:   {', '.join(listed_methods())}")

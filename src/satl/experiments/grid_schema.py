"""The JSON Schema of the grid of an experiment, for editors."""

from __future__ import annotations

from typing import Any

from satl.experiments.grid import Grid
from satl.methods import METHODS
from satl.runs.config_schema import DIALECT, run_schema


def grid_schema() -> dict[str, Any]:
    """Return the schema of a grid file; a configuration in it may have the keys of any method, which the grid names.

    >>> schema = grid_schema()
    >>> schema["properties"]["methods"]["items"]["enum"][:2] == list(METHODS)[:2]
    True
    """
    schema = Grid.model_json_schema()
    run = run_schema(None)
    definitions = schema.setdefault("$defs", {})
    definitions |= run.pop("$defs")
    definitions["RunConfig"] = run
    base = schema["properties"]["base"]
    base["anyOf"] = [
        {"$ref": "#/$defs/RunConfig"} if one.get("type") == "object" else one for one in base["anyOf"]
    ]
    schema["properties"]["methods"]["items"]["enum"] = list(METHODS)
    return {"$schema": DIALECT, **schema}

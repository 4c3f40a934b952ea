"""The JSON Schema of a run configuration, for editors: the sections, and under ``method`` the keys of each method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from satl.errors import ConfigError
from satl.labels.datasets import DATASETS
from satl.methods import METHODS, Method, configure, on_features
from satl.methods.method_parts import GENERATORS, LOSSES, NETWORKS, RULES, MethodPart
from satl.methods.parameters import Parameters, TeacherParameters
from satl.runs.config import MethodConfig, RunConfig

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]


def config_schema() -> Schema:
    """Return the schema of a run configuration.

    No key is required in it: a recipe or a setting of the command line can bring those that a file leaves out.

    >>> schema = config_schema()
    >>> sorted(schema["properties"])
    ['data', 'features', 'images', 'method', 'model', 'training']
    """
    return {"$schema": DIALECT, **run_schema(MethodConfig.model_fields["name"].default)}


def run_schema(default_method: str | None) -> Schema:
    """Return the schema of a run configuration, its definitions under ``$defs``.

    Args:
        default_method: what is meant where ``method.name`` is not given; None: any method, so the keys of all.
    """
    schema = RunConfig.model_json_schema()
    schema.pop("required", None)
    sections = schema["$defs"]
    data = sections["DataConfig"]
    data["additionalProperties"] = False
    for dataset in DATASETS.values():
        for option in dataset.options:
            data["properties"].setdefault(option.name, {"description": f"An option of {dataset.name}."})
    columns = data["properties"]["ignore_columns"]
    columns["anyOf"] = [{"type": "string"}, {"type": columns.pop("type"), "items": columns.pop("items")}]
    method = sections["MethodConfig"]
    method["properties"]["name"]["enum"] = list(METHODS)
    for name in ("network", "generators", "thresholds", "losses", "teacher"):
        description = method["properties"][name].get("description", "")
        method["properties"][name] = {"type": ["object", "null"], "description": description}
    method["allOf"] = [
        {"if": {"properties": {"name": {"const": name}}, "required": ["name"]}, "then": _keys([one])}
        for name, one in METHODS.items()
    ]
    unnamed = list(METHODS.values()) if default_method is None else [METHODS[default_method]]
    method["allOf"].append({"if": {"not": {"required": ["name"]}}, "then": _keys(unnamed)})
    return schema


def _keys(methods: Iterable[Method]) -> Schema:
    """Return the sections of the parts that one of these methods can have, on images or on features."""
    variants = [variant for method in methods for variant in _variants(method)]
    generators: dict[str, Schema] = {}
    losses: dict[str, Schema] = {}
    rules: dict[str, Schema] = {}
    networks: dict[str, Schema] = {}
    for method in variants:
        _, own = configure(method, {})
        networks.setdefault(method.network, _parameters(NETWORKS[method.network].parameters, own.network))
        for name in (*method.generators, *(_for_any(GENERATORS) if method.generators else ())):
            part = _parameters(GENERATORS[name].parameters, own.generators.get(name))
            generators.setdefault(name, {"anyOf": [{"type": ["boolean", "null"]}, part]})
        for name in (*method.losses, *_for_any(LOSSES)):
            part = _parameters(LOSSES[name].parameters, own.losses.get(name))
            losses.setdefault(name, {"anyOf": [{"type": "null"}, part]})
        if method.rule is not None:
            rules.setdefault(method.rule, _parameters(RULES[method.rule].parameters, own.thresholds))
    return {
        "properties": {
            "network": _chosen("name", "The network.", NETWORKS, networks),
            "generators": _section(generators),
            "thresholds": _thresholds(rules),
            "losses": _section(losses),
            "teacher": _parameters(TeacherParameters),
        }
    }


def _variants(method: Method) -> list[Method]:
    try:
        return [method, on_features(method)]
    except ConfigError:  # it makes no sense on features
        return [method]


def _for_any(parts: Mapping[str, MethodPart]) -> list[str]:
    return [name for name, part in parts.items() if part.for_any]


def _parameters(model: type[BaseModel], values: Parameters | None = None) -> Schema:
    """Return the keys of a part, with the defaults that it has in a method."""
    schema = model.model_json_schema()
    schema["type"] = ["object", "null"]
    if values is not None:
        for name, value in values.model_dump(mode="json").items():
            schema["properties"][name]["default"] = value
    return schema


def _thresholds(own: Mapping[str, Schema]) -> Schema:
    """Return the keys of the threshold rule: of the one that is named, else of the method's own."""
    return _chosen("rule", "The threshold rule.", RULES, own) if own else {"maxProperties": 0}


def _chosen(key: str, description: str, parts: Mapping[str, MethodPart], own: Mapping[str, Schema]) -> Schema:
    """Return the keys of a part: of the one that ``key`` names, else of the method's own."""
    every = {name: own.get(name) or _parameters(part.parameters) for name, part in parts.items()}
    choice = {
        "enum": list(parts),
        "description": description,
        **({"default": next(iter(own))} if len(own) == 1 else {}),
    }
    return {
        "properties": {key: choice},
        "allOf": [
            *(
                {
                    "if": {"properties": {key: {"const": name}}, "required": [key]},
                    "then": _with_key(key, keys),
                }
                for name, keys in every.items()
            ),
            {
                "if": {"not": {"required": [key]}},
                "then": _either([_with_key(key, keys) for keys in own.values()]),
            },
        ],
    }


def _with_key(key: str, keys: Schema) -> Schema:
    return {**keys, "properties": {key: {}, **keys.get("properties", {})}}


def _section(parts: Mapping[str, Schema]) -> Schema:
    return {"properties": dict(parts), "additionalProperties": False}


def _either(choices: list[Schema]) -> Schema:
    different = [choice for at, choice in enumerate(choices) if choice not in choices[:at]]
    return different[0] if len(different) == 1 else {"anyOf": different}

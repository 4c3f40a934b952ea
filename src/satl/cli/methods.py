"""``satl methods``: the methods and threshold rules, and what can be set."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from satl.cli.completion import method_or_rule
from satl.cli.json_output import JsonOption, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from satl.methods import Method, Parameters
    from satl.recipes.method_list import ListedMethod


def methods(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Show one method in full, or one rule with --rules.", autocompletion=method_or_rule
        ),
    ] = None,
    rules: Annotated[
        bool, typer.Option("--rules", help="The threshold rules instead of the methods.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the methods, or show what one is made of, where it comes from and what can be set."""
    from rich.console import Console

    from satl.errors import ConfigError, nearest
    from satl.recipes.method_list import listed_methods

    console = Console(highlight=False, markup=False)
    if name is None and not rules:
        listed = listed_methods().values()
        if as_json:
            print_json({"methods": [method._asdict() for method in listed]})
        else:
            _print_methods(console, listed)
        return
    from satl.methods import METHODS
    from satl.methods.method_parts import RULES

    choices: Iterable[str] = RULES if rules else METHODS
    if name is not None and name not in choices:
        hint = nearest(name, choices) or f"; known: {', '.join(choices)}"
        if not rules and name in RULES:
            hint = f"; it is a threshold rule: satl methods --rules {name}"
        raise ConfigError(f"there is no {'rule' if rules else 'method'} '{name}'{hint}.")
    if as_json:
        print_json(_rules(name) if name is None or rules else _method(METHODS[name]))
    elif rules:
        _print_rules(console, name)
    elif name is not None:
        _print_method(console, METHODS[name])


def _print_methods(console: Console, listed: Iterable[ListedMethod]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    table.add_column("method", no_wrap=True)
    table.add_column("threshold", no_wrap=True)
    table.add_column("what it does", overflow="fold")
    for method in listed:
        source = _short(method.reference)
        about = Text(method.summary).append(f" {source}." if source else "", style="dim")
        table.add_row(Text(method.name, style="bold"), method.rule or "-", about)
    console.print(table)
    console.print()
    console.print("satl methods NAME shows the parts of one and what can be set.", soft_wrap=True)
    console.print("satl methods --rules lists the rules that method.thresholds.rule takes.", soft_wrap=True)


def _short(reference: str) -> str:
    """Leave out the title of a paper.

    >>> _short("Kim et al., Large loss matters, 2022.")
    'Kim et al., 2022'
    >>> _short("Ours.")
    'Ours'
    """
    whole = reference.removesuffix(".")
    authors, *rest = whole.split(", ")
    return f"{authors}, {rest[-1]}" if rest and rest[-1].isdigit() else whole


def _print_method(console: Console, method: Method) -> None:
    from satl.methods.method_parts import GENERATORS, LOSSES

    console.print(method.name, style="bold")
    console.print(method.summary, soft_wrap=True)
    console.print(method.reference, style="dim", soft_wrap=True)
    console.print()
    for what, names in (
        ("network", (method.network,)),
        ("generators", method.generators),
        ("threshold", (method.rule,) if method.rule else ()),
        ("stage 1", method.stage1),
        ("stage 2", method.stage2),
    ):
        console.print(f"{what:<12}{', '.join(names) or '-'}", soft_wrap=True)
    for section, kinds, has in (
        ("generators", GENERATORS, method.generators),
        ("losses", LOSSES, method.losses),
    ):
        further = [name for name, part in kinds.items() if part.for_any and name not in has and has]
        for name in further:
            console.print(f"{'can have':<12}method.{section}.{name}  {kinds[name].summary}", soft_wrap=True)
    console.print()
    for setting in _settings_of(method):
        _print_setting(console, setting)


def _print_rules(console: Console, name: str | None) -> None:
    from satl.methods.method_parts import RULES

    for rule in RULES if name is None else (name,):
        console.print(f"{rule}  {RULES[rule].summary}", soft_wrap=True)
        for setting in _settings("method.thresholds", RULES[rule].parameters()):
            console.print("    ", end="")
            _print_setting(console, setting)
    if name is None:
        console.print()
        console.print(
            "satl train --set method.thresholds.rule=NAME puts one into a method; satl thresholds --rule NAME applies "
            "one to a file of scores.",
            soft_wrap=True,
        )


def _print_setting(console: Console, setting: dict[str, Any]) -> None:
    console.print(f"{setting['key']} = {setting['default']}  {setting['meaning']}", soft_wrap=True)


def _method(method: Method) -> dict[str, Any]:
    return {
        "name": method.name,
        "summary": method.summary,
        "reference": method.reference,
        "framework": method.framework,
        "network": method.network,
        "generators": method.generators,
        "rule": method.rule,
        "stage1": method.stage1,
        "stage2": method.stage2,
        "settings": _settings_of(method),
    }


def _rules(name: str | None) -> dict[str, Any]:
    from satl.methods.method_parts import RULES

    shown = [
        {
            "name": rule,
            "summary": RULES[rule].summary,
            "settings": _settings("method.thresholds", RULES[rule].parameters()),
        }
        for rule in (RULES if name is None else (name,))
    ]
    return {"rules": shown}


def _settings_of(method: Method) -> list[dict[str, Any]]:
    """Return what can be set of a method: key, default and meaning."""
    from satl.methods import configure

    _, parameters = configure(method, {})
    found: list[dict[str, Any]] = [
        {"key": "method.network.name", "default": method.network, "meaning": "The network."}
    ]
    found += _settings("method.network", parameters.network)
    for name, own in parameters.generators.items():
        found += _settings(f"method.generators.{name}", own)
    if parameters.thresholds is not None:
        rule = {"key": "method.thresholds.rule", "default": method.rule, "meaning": "The threshold rule."}
        found += [rule, *_settings("method.thresholds", parameters.thresholds)]
    for name, own in parameters.losses.items():
        found += _settings(f"method.losses.{name}", own)
    if parameters.teacher is not None:
        found += _settings("method.teacher", parameters.teacher)
    return found


def _settings(section: str, parameters: Parameters) -> list[dict[str, Any]]:
    return [
        {"key": f"{section}.{name}", "default": getattr(parameters, name), "meaning": field.description}
        for name, field in type(parameters).model_fields.items()
    ]

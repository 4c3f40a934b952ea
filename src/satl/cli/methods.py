"""``satl methods``: the methods and threshold rules, and what can be set."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from satl.methods import Method, Parameters
    from satl.recipes.method_list import ListedMethod


def methods(
    name: Annotated[
        str | None, typer.Argument(help="Show one method in full, or one rule with --rules.")
    ] = None,
    rules: Annotated[
        bool, typer.Option("--rules", help="The threshold rules instead of the methods.")
    ] = False,
) -> None:
    """List the methods, or show what one is made of, where it comes from and what can be set."""
    from rich.console import Console

    from satl.errors import ConfigError, nearest
    from satl.recipes.method_list import listed_methods

    console = Console(highlight=False, markup=False)
    if name is None and not rules:
        _print_methods(console, listed_methods().values())
        return
    from satl.methods import METHODS
    from satl.methods.method_parts import RULES

    choices: Iterable[str] = RULES if rules else METHODS
    if name is not None and name not in choices:
        hint = nearest(name, choices) or f"; known: {', '.join(choices)}"
        if not rules and name in RULES:
            hint = f"; it is a threshold rule: satl methods --rules {name}"
        raise ConfigError(f"there is no {'rule' if rules else 'method'} '{name}'{hint}.")
    if rules:
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
    from satl.methods import configure
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
    _, parameters = configure(method, {})
    console.print(f"method.network.name = {method.network}  The network.", soft_wrap=True)
    _print_section(console, "method.network", parameters.network)
    for name, own in parameters.generators.items():
        _print_section(console, f"method.generators.{name}", own)
    if parameters.thresholds is not None:
        console.print(f"method.thresholds.rule = {method.rule}  The threshold rule.", soft_wrap=True)
        _print_section(console, "method.thresholds", parameters.thresholds)
    for name, own in parameters.losses.items():
        _print_section(console, f"method.losses.{name}", own)
    if parameters.teacher is not None:
        _print_section(console, "method.teacher", parameters.teacher)


def _print_rules(console: Console, name: str | None) -> None:
    from satl.methods.method_parts import RULES

    for rule in RULES if name is None else (name,):
        console.print(f"{rule}  {RULES[rule].summary}", soft_wrap=True)
        _print_section(console, "    method.thresholds", RULES[rule].parameters())
    if name is None:
        console.print()
        console.print(
            "satl train --set method.thresholds.rule=NAME puts one into a method; satl thresholds --rule NAME applies "
            "one to a file of scores.",
            soft_wrap=True,
        )


def _print_section(console: Console, section: str, parameters: Parameters) -> None:
    """Print the keys of a part with their defaults."""
    for name, field in type(parameters).model_fields.items():
        console.print(f"{section}.{name} = {getattr(parameters, name)}  {field.description}", soft_wrap=True)

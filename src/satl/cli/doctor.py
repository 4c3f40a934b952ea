"""``satl doctor``: what this machine has for satl, and what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from satl.cli.json_output import JsonOption, print_json

if TYPE_CHECKING:
    from rich.console import Console


def doctor(as_json: JsonOption = False) -> None:
    """Look at versions, devices, extras, stored weights and the current folder; exit code 1 if something is wrong."""
    from pathlib import Path

    from rich.console import Console

    from satl.runs.machine_facts import machine_facts

    facts = machine_facts(Path.cwd())
    if as_json:
        print_json(facts)
    else:
        _print_facts(Console(highlight=False, markup=False, soft_wrap=True), facts)
    if facts["problems"]:
        raise typer.Exit(1)


def _print_facts(console: Console, facts: dict[str, Any]) -> None:
    for problem in facts["problems"]:
        console.print(f"problem: {problem}")
    if not facts["problems"]:
        console.print("No problem found.")
    console.print()
    cores = facts["cores"]
    console.print(f"{'python':<14}{facts['python']} on {facts['system']}, {cores} core{'s' * (cores != 1)}")
    for name, found in facts["packages"].items():
        console.print(f"{name:<14}{found or 'not installed as a package'}")
    console.print(f"{'devices':<14}{', '.join(facts['devices']) or 'none'}")
    names = facts["weights"]["names"]
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    console.print(f"{'weights':<14}{shown or 'none stored'} (in {facts['weights']['folder']})")
    folder = facts["folder"]
    free = "unknown" if folder["free_bytes"] is None else f"{folder['free_bytes'] / (1 << 30):,.1f} GiB"
    locks = {True: "work", False: "do not work", None: "not tried"}[folder["locks"]]
    can = "can" if folder["writable"] else "cannot"
    console.print(f"{'folder':<14}{folder['path']}: {can} be written, {free} free, file locks {locks}")
    console.print()
    for name, extra in facts["extras"].items():
        state = "present" if extra["present"] else "missing"
        remedy = "" if extra["present"] else f"; pip install 'satl[{name}]'"
        console.print(f"extra {name:<12} {state:<8} {extra['for']}{remedy}")

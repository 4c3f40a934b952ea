"""``satl audit`` and ``satl plan``: cells to label by hand, for an honest estimate or for better certificates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from satl.cli.complete import OutArgument
from satl.cli.completion import one_of
from satl.cli.json_output import JsonOption, print_json
from satl.cli.wording import percent
from satl.errors import ConfigError, in_shell, nearest

if TYPE_CHECKING:
    from satl.completion.statistics.audit import AuditResult

_MEASURES = (
    ("present_precision", "accepted as present that are present"),
    ("absent_precision", "accepted as absent that are absent"),
    ("present_recall", "present cells that were accepted as present"),
    ("absent_recall", "absent cells that were accepted as absent"),
    ("prevalence", "unknown cells that are present"),
)


def audit_command(
    out: OutArgument,
    action: Annotated[
        str,
        typer.Argument(
            metavar="draw|read",
            help="Draw cells to label, or read them back.",
            autocompletion=one_of("draw", "read"),
        ),
    ],
    answers: Annotated[
        Path | None, typer.Argument(metavar="[AUDIT]", help="For read: the file with your answers.")
    ] = None,
    size: Annotated[
        int, typer.Option("-n", "--size", min=1, help="For draw: cells of each band (present, absent, ...).")
    ] = 50,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            help="For draw: class, or table for one estimate with far fewer labels.",
            autocompletion=one_of("class", "table"),
        ),
    ] = "class",
    seed: Annotated[int, typer.Option("--seed", min=0, help="For draw: seed of the sample.")] = 0,
    target: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="AUDIT", help="For draw: file to write, .csv.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="For read: of every interval.")] = 0.95,
    as_json: JsonOption = False,
) -> None:
    """Estimate how good a completed table is from a random sample labelled by hand, without any assumption."""

    if action == "draw":
        if target is None or answers is not None:
            raise ConfigError(
                "satl audit OUT draw needs a file to write and no other: give it with -o audit.csv."
            )
        _draw(out, target, size, by, seed, as_json)
    elif action == "read":
        if answers is None or target is not None:
            raise ConfigError(
                "satl audit OUT read needs the file with your answers: satl audit OUT read audit.csv."
            )
        _read(out, answers, confidence, as_json)
    else:
        raise ConfigError(f"satl audit OUT {action}: say draw or read{nearest(action, ('draw', 'read'))}.")


def plan_command(
    out: OutArgument,
    target: Annotated[
        Path, typer.Option("-o", "--out", metavar="PLAN", help="File to write, .csv: cells to label.")
    ],
    budget: Annotated[int, typer.Option("-n", "--budget", min=1, help="Cells to label at most.")] = 500,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the draw.")] = 0,
    scores: Annotated[
        Path | None, typer.Option("--scores", help="The scores, if they are not where they were.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Choose the unknown cells whose labels would bring most certificates, classes with too few labels first."""
    from satl.completion.outputs.completed_folder import CompletedFolder
    from satl.completion.outputs.hand_labels import describe_plan, write_plan
    from satl.completion.workflow.plan_from_folder import plan_from_folder

    plan, table = plan_from_folder(out, budget, seed, scores)
    aims = describe_plan(plan, table.classes)
    if len(plan):
        write_plan(plan, table, target)
    if as_json:
        keys = ("class", "direction", "why", "needed", "in_plan", "cells_gained")
        rows = [dict(zip(keys, aim, strict=True)) for aim in aims]
        print_json({"file": target if len(plan) else None, "cells": len(plan), "aims": rows})
        return
    if not len(plan):
        typer.echo(
            "No cell picked by its score is expected to bring a further certificate: nothing to plan. "
            f"What each class lacks: {CompletedFolder(out).thresholds}"
        )
        return
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=f"{len(plan):,} cells to label")
    for column in ("class", "direction", "why", "needed", "in the plan", "cells gained"):
        shown.add_column(column, justify="left" if column in ("class", "direction", "why") else "right")
    for name, direction, why, *numbers in aims[:20]:
        shown.add_row(name, direction, why, *(f"{number:,}" for number in numbers))
    Console(highlight=False, markup=False).print(shown)
    typer.echo(f"Write present, absent or ? into the column 'value' of {target},")
    typer.echo(f"then complete again with --plan {target}.")


def _draw(out: Path, target: Path, size: int, by: str, seed: int, as_json: bool) -> None:
    from satl.completion.outputs.completed_folder import CompletedFolder
    from satl.completion.outputs.hand_labels import write_audit
    from satl.completion.statistics.audit import draw_audit

    folder = CompletedFolder.open(out)
    table = folder.read_labels()
    sample = draw_audit(folder.read_bands(table), size, by, seed)  # type: ignore[arg-type]
    if len(sample):
        write_audit(sample, table, target, size=size, seed=seed)
    if as_json:
        print_json({"file": target if len(sample) else None, "by": by, "cells": len(sample)})
        return
    if not len(sample):
        typer.echo("Nothing is unknown: there is nothing to audit.")
        return
    typer.echo(f"{len(sample):,} cells to label in {target}")
    typer.echo("Write present, absent or ? into its column 'value'; look at the images, not at the scores.")
    typer.echo(f"Then: satl audit {in_shell(out)} read {in_shell(target)}")


def _read(out: Path, answers: Path, confidence: float, as_json: bool) -> None:
    from satl.completion.outputs.completed_folder import CompletedFolder
    from satl.completion.outputs.hand_labels import read_audit
    from satl.completion.statistics.audit import estimate_audit
    from satl.files import atomic_path

    folder = CompletedFolder.open(out)
    table = folder.read_labels()
    sample, said, without = read_audit(answers, table, folder.read_bands(table))
    result = estimate_audit(sample, said, confidence, encoding="signed")
    names = list(table.classes) if sample.by == "class" else ["all classes"]
    content = {
        "answers": str(answers),
        "confidence": confidence,
        "by": sample.by,
        "cells": len(sample),
        "without_answer": without,
        "entries": result.as_dict(names),
    }
    with atomic_path(out / "audit.json") as temporary:
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if as_json:
        print_json(content)
        return
    _print(result, names, confidence)
    if without:
        typer.echo(f"{without:,} cells without an answer count as 'cannot tell', which widens the intervals.")
    typer.echo(f"Written: {out / 'audit.json'}")


def _print(result: AuditResult, names: list[str], confidence: float) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    entries = result.as_dict(names)
    for key, words in _MEASURES:
        table = Table(title=f"{words}, per cent, with {100 * confidence:g} % intervals")
        table.add_column("class")
        for column in ("estimate", "at least", "at most"):
            table.add_column(column, justify="right")
        rows = [(entry["name"], entry[key]) for entry in entries if entry[key]["low"] is not None]
        for name, share in rows:
            table.add_row(name, *(percent(share[part]) for part in ("estimate", "low", "high")))
        if rows:
            console.print(table)

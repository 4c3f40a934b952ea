"""What the commands say that write decisions of people into a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from satl.cli.completion import one_of

if TYPE_CHECKING:
    from satl.export import ImportReport
    from satl.review import MergeReport, PairAgreement

DisagreementsOption = Annotated[
    str,
    typer.Option(
        "--disagreements",
        help="Cells that annotators disagree about: leave (as they are), latest or majority.",
        autocompletion=one_of("leave", "latest", "majority"),
    ),
]


def print_decisions(
    report: MergeReport | ImportReport, table: Path | None, remark: str = "", more: Sequence[str] = ()
) -> None:
    """Print what decisions did to a table.

    Args:
        report: of a merge or an import.
        table: that the decisions were written into, or None for a new one.
        remark: more about the decisions, in the same line.
        more: further lines.
    """
    typer.echo(
        f"Decided by a person: {report.present:,} present, {report.absent:,} absent"
        f" ({report.confirmed:,} more were known already, {report.overwritten:,} overwritten{remark})"
    )
    for line in more:
        typer.echo(line)
    if report.first_elsewhere is not None:
        image, label = report.first_elsewhere
        typer.echo(
            f"Left out: {report.elsewhere:,} about cells that {table} does not have"
            f" (such as image {image!r}, class {label!r})",
            err=True,
        )
    typer.echo(f"Known: {report.known:,} of {report.cells:,} cells")
    typer.echo(f"Table  {report.files[0]}")


def agreement_lines(agreement: Sequence[PairAgreement]) -> list[str]:
    """Return a line for every two annotators: over all classes, and the class on which they agree least."""
    lines = []
    for pair in agreement:
        if pair.label is not None:
            continue
        kappa = (
            "kappa not told for so few or only one verdict"
            if pair.kappa is None
            else f"kappa {pair.kappa:.2f}"
        )
        line = (
            f"Agreement of {pair.first or 'no name'} and {pair.second or 'no name'}: "
            f"{100 * pair.agreed / pair.cells:.1f} % of {pair.cells:,} cells that both decided, {kappa}"
        )
        told = [
            (one.kappa, one)
            for one in agreement
            if (one.first, one.second) == (pair.first, pair.second) and one.label and one.kappa is not None
        ]
        if len(told) > 1:
            lowest, one = min(told, key=lambda entry: entry[0])
            line += f"; lowest for class {one.label!r}: {lowest:.2f} of {one.cells:,} cells"
        lines.append(line)
    return lines


def print_disagreements(report: MergeReport | ImportReport, place: str) -> None:
    """Say how many cells were left out because annotators disagree, and that they are settled at ``place``."""
    if report.first_disagreement is not None:
        image, label = report.first_disagreement
        typer.echo(
            f"Left out: {report.disagreements:,} cells that annotators disagree about (such as image {image!r}, "
            f"class {label!r}); settle them in {place}, or choose --disagreements latest or majority",
            err=True,
        )

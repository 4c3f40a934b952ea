"""``satl figures``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from satl.cli.json_output import JsonOption, print_json

_SHOWN = 20


def figures(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folder of a run or of an experiment, or several.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the figures; by default DIR/figures.")
    ] = None,
    formats: Annotated[str, typer.Option("--format", help="svg, pdf, png, separated by commas.")] = "svg,pdf",
    only: Annotated[str | None, typer.Option(help="Numbers of figures, separated by commas.")] = None,
    epoch: Annotated[
        int | None, typer.Option(min=1, help="Epoch of figure 8, one that training.keep_epochs kept.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Draw the figures of the paper from runs; print for each what was drawn, or what it still needs."""
    from rich.console import Console

    from satl.cli.wording import shell_words
    from satl.files import check_out_folder
    from satl.reports.paper_figures.figure_files import NUMBERS, draw_each

    if out is not None:
        check_out_folder(out)
    numbers = NUMBERS if only is None else _numbers(only)
    progress = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    names = [name.strip() for name in formats.split(",") if name.strip()]
    lacking: dict[str, None] = {}
    rows = []
    for drawn in draw_each(folders, out, names or ["svg"], numbers, progress.print, epoch):
        lacking |= dict.fromkeys(drawn.lacking)
        if drawn.files:
            first, *others = drawn.files
            said = ", ".join([str(first), *(file.suffix for file in others)])
        else:
            assert drawn.missing is not None
            said = f"not drawn, {drawn.missing.worded(shell_words).rstrip('.')}"
        needs = None if drawn.missing is None else drawn.missing.worded(shell_words)
        rows.append(
            {"number": drawn.number, "title": drawn.title, "files": list(drawn.files), "needs": needs}
        )
        if not as_json:
            console.print(f"figure {drawn.number:>2}  {drawn.title}: {said}")
    if as_json:
        print_json({"figures": rows})
    if lacking:
        shown, more = "".join(list(lacking)[:_SHOWN]), len(lacking) - _SHOWN
        rest = f" and {more} more characters" if more > 0 else ""
        progress.print(
            f"Boxes stand for {shown}{rest}, which no font here has: install one that has them, such as "
            "Noto Sans CJK or Noto Emoji, and draw again."
        )


def _numbers(text: str) -> tuple[int, ...]:
    from satl.errors import SatlError

    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() for part in parts):
        raise SatlError(f"--only {text}: give numbers from 1 to 13, separated by commas, for example 1,6,8.")
    return tuple(map(int, parts))

"""A table as Markdown, LaTeX and HTML."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from satl.experiments.tables.number_text import DASH, MINUS, TIMES
from satl.experiments.tables.table_data import Block, Column, Entry, Row, Table
from satl.files import atomic_path

if TYPE_CHECKING:
    from markupsafe import Markup

_SHORT = 24
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "±": r"$\pm$",
    MINUS: "$-$",
    DASH: "--",
    "∞": r"$\infty$",
    TIMES: r"$\times$",
}


def escape_latex(text: str) -> str:
    r"""Write text so that LaTeX prints it as it is.

    >>> print(escape_latex("sst_x & 5 % ± 0.1"))
    sst\_x \& 5 \% $\pm$ 0.1
    """
    return "".join(_LATEX.get(sign, sign) for sign in text)


def escape_markdown(text: str) -> str:
    r"""Write text so that a Markdown table prints it as it is.

    >>> print(escape_markdown("a|b *c*"))
    a\|b \*c\*
    """
    for sign in "\\|*_<`[":
        text = text.replace(sign, f"\\{sign}")
    return text


def markdown(table: Table) -> str:
    """Return a table as Markdown: a title, one table for each block under its heading, and notes."""
    lines = [f"## {escape_markdown(table.title)}", ""]
    signs = _signs(table.columns)
    lines += [f"{escape_markdown(f'{sign} {group}')}\n" for group, sign in signs.items() if sign[:1] == "("]
    for block in table.blocks:
        if block.title:
            lines += [f"**{escape_markdown(block.title)}**", ""]
        lines.append(markdown_block(table, block))
    lines += [f"* {escape_markdown(note)}" for note in table.notes]
    return "\n".join(lines).rstrip() + "\n"


def markdown_block(table: Table, block: Block, escape: Callable[[str], str] = escape_markdown) -> str:
    """Return one block of a table as a Markdown table, without heading and notes.

    Args:
        table: to write.
        block: one of its blocks.
        escape: makes text Markdown; ``str`` where labels are Markdown already.
    """
    signs = _signs(table.columns)
    headings = [escape(f"{signs[column.group]} {column.label}".strip()) for column in table.columns]
    lines = [_line([escape(table.stub), *headings]), _line(["---", *("---:" for _ in headings)])]
    for row in block.rows:
        entries = [f"**{escape(one.text)}**" if one.best else escape(one.text) for one in row.entries]
        lines.append(_line([escape(row.label), *entries]))
    return "".join(f"{line}\n" for line in lines)


def _signs(columns: tuple[Column, ...]) -> dict[str, str]:
    """Return the prefix of a heading for each group: the group itself if it is short, else a letter."""
    signs: dict[str, str] = {}
    for group in dict.fromkeys(group for group, _ in _groups(columns)):
        letters = sum(sign.startswith("(") for sign in signs.values())
        long = len(group) > _SHORT
        signs[group] = f"({chr(ord('a') + letters)})" if long else f"{group}:" if group else ""
    return signs


def _line(parts: list[str]) -> str:
    return f"| {' | '.join(parts)} |"


def latex(table: Table) -> str:
    r"""Return a table for LaTeX; it needs ``\usepackage{booktabs}``."""
    width = len(table.columns) + 1
    lines = [
        "% Needs \\usepackage{booktabs}.",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape_latex(table.title)}}}",
        rf"\label{{tab:{table.key}}}",
        rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
        r"\toprule",
    ]
    if any(column.group for column in table.columns):
        heads, rules, first = [""], [], 2
        for group, number in _groups(table.columns):
            heads.append(rf"\multicolumn{{{number}}}{{c}}{{{escape_latex(group)}}}")
            if group:
                rules.append(rf"\cmidrule(lr){{{first}-{first + number - 1}}}")
            first += number
        lines += [" & ".join(heads) + r" \\", " ".join(rules)]
    lines.append(" & ".join(escape_latex(text) for text in (table.stub, *_labels(table))) + r" \\")
    for block in table.blocks:
        lines.append(r"\midrule")
        if block.title:
            lines.append(rf"\multicolumn{{{width}}}{{l}}{{\emph{{{escape_latex(block.title)}}}}} \\")
        for row in block.rows:
            parts = (escape_latex(row.label), *map(_latex_entry, row.entries))
            lines.append(" & ".join(parts) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    if table.notes:
        # One paragraph below the table, no wider than the text.
        notes = " ".join(escape_latex(note) for note in table.notes)
        lines += [r"", r"\smallskip", rf"\parbox{{\linewidth}}{{\footnotesize {notes}}}"]
    lines.append(r"\end{table}")
    return "\n".join(lines) + "\n"


def _latex_entry(entry: Entry) -> str:
    text = escape_latex(entry.text)
    return rf"\textbf{{{text}}}" if entry.best else text


def html(table: Table) -> Markup:
    """Return a table as an HTML element with its notes; everything in it is escaped."""
    from markupsafe import Markup

    width = len(table.columns) + 1
    grouped = any(column.group for column in table.columns)
    parts = [Markup('<div class="scroll"><table class="results">'), Markup("<thead><tr>")]
    span = Markup(' rowspan="2"') if grouped else ""
    parts.append(Markup('<th scope="col" class="stub"{}>{}</th>').format(span, table.stub))
    if grouped:
        for group, number in _groups(table.columns):
            parts.append(Markup('<th colspan="{}" scope="colgroup">{}</th>').format(number, group))
        parts.append(Markup("</tr><tr>"))
    parts += [Markup('<th scope="col">{}</th>').format(label) for label in _labels(table)]
    parts.append(Markup("</tr></thead>"))
    for block in table.blocks:
        parts.append(Markup('<tbody class="{}">').format("foreign" if block.foreign else "own"))
        if block.title:
            parts.append(
                Markup('<tr class="title"><th colspan="{}" scope="rowgroup">{}</th></tr>').format(
                    width, block.title
                )
            )
        parts += [_html_row(row, table.columns) for row in block.rows]
        parts.append(Markup("</tbody>"))
    parts.append(Markup("</table></div>"))
    if table.notes:
        notes = Markup("").join(Markup("<li>{}</li>").format(note) for note in table.notes)
        parts.append(Markup('<ul class="notes">{}</ul>').format(notes))
    return Markup("").join(parts)


def _html_row(row: Row, columns: tuple[Column, ...]) -> Markup:
    from markupsafe import Markup

    cells = Markup("").join(
        Markup("<td{}>{}</td>").format(
            Markup(' class="foreign"') if column.foreign else "",
            Markup("<b>{}</b>").format(entry.text) if entry.best else entry.text,
        )
        for entry, column in zip(row.entries, columns, strict=True)
    )
    return Markup('<tr><th scope="row">{}</th>{}</tr>').format(row.label, cells)


def _groups(columns: tuple[Column, ...]) -> list[tuple[str, int]]:
    return [(group, len(list(members))) for group, members in groupby(columns, lambda one: one.group)]


def _labels(table: Table) -> tuple[str, ...]:
    return tuple(column.label for column in table.columns)


def write_table(table: Table, folder: Path, page: str) -> None:
    """Write a table in all three formats.

    Args:
        table: to write.
        folder: for ``KEY.md``, ``KEY.tex`` and ``KEY.html``.
        page: the HTML page that holds it.
    """
    for suffix, text in ((".md", markdown(table)), (".tex", latex(table)), (".html", page)):
        with atomic_path(folder / f"{table.key}{suffix}") as temporary:
            temporary.write_text(text, encoding="utf-8")

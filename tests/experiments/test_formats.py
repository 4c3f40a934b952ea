from __future__ import annotations

import re

from satl.experiments.tables.number_text import DASH, MINUS
from satl.experiments.tables.table_data import Block, Column, Entry, Row, Table
from satl.experiments.tables.table_formats import html, latex, markdown, write_table

NASTY = "50 % & 3_x <b> {a} $2 #1 ~^ \\n | *"
TABLE = Table(
    key="nasty",
    heading="Nasty",
    title=f"Title {NASTY}",
    stub="method",
    columns=(Column("n", "left & right"), Column("t", "left & right"), Column("p", "paper", foreign=True)),
    blocks=(
        Block("Ours_1", (Row(NASTY, (Entry("1.0 ± 0.2", best=True), Entry(f"{MINUS}2.0"), Entry())),)),
        Block("Theirs", (Row("b", (Entry("3"), Entry("∞"), Entry("4"))),), foreign=True),
    ),
    notes=("Less < more & 5 %.",),
)


def test_latex_escapes_everything_and_is_balanced():
    text = latex(TABLE)
    assert (
        r"50 \% \& 3\_x $<$b$>$ \{a\} \$2 \#1 \textasciitilde{}\textasciicircum{} \textbackslash{}n" in text
    )
    assert r"\textbf{1.0 $\pm$ 0.2} & $-$2.0 & -- \\" in text
    assert r"3 & $\infty$ & 4 \\" in text
    assert r" & \multicolumn{2}{c}{left \& right} & \multicolumn{1}{c}{paper} \\" in text
    assert r"\cmidrule(lr){2-3} \cmidrule(lr){4-4}" in text
    assert r"\multicolumn{4}{l}{\emph{Ours\_1}} \\" in text
    assert re.findall(r"\\(toprule|midrule|bottomrule)", text) == [
        "toprule",
        "midrule",
        "midrule",
        "bottomrule",
    ]
    # Every line of the body has as many columns as the table.
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    for line in body.splitlines():
        if line.endswith(r"\\") and "multicolumn" not in line:
            assert len(re.findall(r"(?<!\\)&", line)) == 3
    plain = re.sub(r"\\[\\{}$&%#_]", "", text)
    assert plain.count("{") == plain.count("}")
    assert plain.count("$") % 2 == 0
    assert text.isascii()
    assert r"\begin{tabular}{lrrr}" in text
    assert "Less $<$ more" in text


def test_markdown_has_a_table_for_each_block_with_as_many_columns():
    text = markdown(TABLE)
    lines = [re.split(r"(?<!\\)\|", line) for line in text.splitlines() if line.startswith("|")]
    assert {len(line) for line in lines} == {6}
    assert len(lines) == 6
    assert r"50 % & 3\_x \<b> {a}" in text
    assert "**1.0 ± 0.2**" in text
    assert "**Theirs**" in text
    assert "| left & right: n |" in text


def test_long_groups_are_letters_in_markdown():
    columns = tuple(
        Column(label, group) for group in ("A long name of a group of columns", "B " * 20) for label in "xy"
    )
    table = Table("k", "h", "t", "s", columns, (Block("", (Row("r", (Entry(),) * 4),)),))
    text = markdown(table)
    assert "| s | (a) x | (a) y | (b) x | (b) y |" in text
    assert "(a) A long name of a group of columns" in text


def test_html_escapes_everything_and_spans_its_columns():
    text = str(html(TABLE))
    assert "<b>1.0 ± 0.2</b>" in text
    assert "&lt;b&gt;" in text
    assert text.count("<b>") == 1
    assert '<th colspan="2" scope="colgroup">left &amp; right</th>' in text
    assert '<th colspan="4" scope="rowgroup">Ours_1</th>' in text
    assert f'<td class="foreign">{DASH}</td>' in text
    assert '<tbody class="foreign">' in text
    assert "Less &lt; more" in text


def test_all_three_files_are_written(tmp_path):
    write_table(TABLE, tmp_path / "tables", "<html></html>")
    assert sorted(p.name for p in (tmp_path / "tables").iterdir()) == ["nasty.html", "nasty.md", "nasty.tex"]

"""Names that a spreadsheet takes for formulas."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from pathlib import Path

from satl.errors import SatlWarning
from satl.files import file_ending

_MARK = r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]"
"""What spreadsheets begin a formula with; white space before one is dropped, and wide forms count as plain ones."""
_FORMULA = {
    "c": re.compile(rf"(?:^|[;\t\r\n]){_MARK}|^[\t\r\n]"),
    "t": re.compile(rf"(?:^|[;,\t\r\n]){_MARK}|^[\t\r\n]"),
}
"""Which names are told in a CSV and in a TSV file: many spreadsheets divide lines at semicolons and tabs as well, so a
name may become two cells. A name with the mark of the file itself is written in quotes."""


def warn_of_formulas(file: Path, *names: Iterable[str]) -> None:
    """Warn if a text table is written with names that a spreadsheet would run when it opens the file.

    They are written as they are: a program that reads the table must find the same names.

    Args:
        file: the table; nothing is said of other kinds of files.
        names: of images, classes or runs.
    """
    ending = file_ending(file)
    if ending not in (".csv", ".tsv", ".csv.gz", ".tsv.gz"):
        return
    formula = _FORMULA[ending[1]]
    found = [name for some in names for name in some if formula.search(name)]
    if found:
        text = (
            f"{file.name}: {len(found)} name(s), such as {found[0][:60]!r}, begin like a formula, which a spreadsheet "
            "may run; import the file there as text, or rename them."
        )
        warnings.warn(SatlWarning(text), stacklevel=3)

"""What a person reads after a run: figures, tables, pages.

:mod:`satl.reports.comparison` holds what was measured, :mod:`satl.inference.run_record` measures a finished run once
and keeps it, :mod:`satl.reports.figures` and :mod:`satl.reports.distributions` turn arrays into panels,
:mod:`satl.reports.comparison` puts them on a page, :mod:`satl.reports.paper_figures` draws the figures of the paper.
Matplotlib is imported only when something is drawn.
"""

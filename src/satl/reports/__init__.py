"""What a person reads after a run: figures, tables, pages.

:mod:`satl.reports.record` holds what was measured, :mod:`satl.reports.figures` turns arrays into figures,
:mod:`satl.reports.comparison` puts them on a page. Matplotlib is imported only when a figure is drawn.
"""

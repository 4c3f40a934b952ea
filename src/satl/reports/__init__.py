"""Reports of runs, experiments and the demo: figures and pages.

:mod:`satl.reports.experiment_report` writes the report of an experiment, :mod:`satl.reports.paper_figures` draws the
figures of the paper, :mod:`satl.reports.comparison_page` and :mod:`satl.reports.overview` show a comparison of methods
(:mod:`satl.reports.comparison`) on a page and in one image; :mod:`satl.reports.figures` and
:mod:`satl.reports.distributions` draw its panels. Matplotlib is imported only when something is drawn.
"""

"""Grids of runs: methods x proportions x seeds x variants, from one file to tables, tests and figures.

:mod:`satl.experiments.grid` says which runs there are, :mod:`satl.experiments.configs` gives each its run
configuration, :mod:`satl.experiments.parallel` runs them side by side, :mod:`satl.experiments.results` gathers what
they measured, and :mod:`satl.reports.experiment_report` puts it beside the numbers of the paper.
"""

"""Experiments: grids of runs (methods x proportions x seeds, variants, sweeps), their results and tables.

:mod:`satl.experiments.grid` reads the grid file, :mod:`satl.experiments.configs` builds the configuration of every grid
run, :mod:`satl.experiments.experiment` runs what is left in worker processes (:mod:`satl.experiments.parallel`,
:mod:`satl.experiments.worker`, :mod:`satl.experiments.grid_run`), :mod:`satl.experiments.results` holds the results,
and :mod:`satl.experiments.tables` makes tables of them. :mod:`satl.experiments.finished_runs` finds runs for figures.
"""

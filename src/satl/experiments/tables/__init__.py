"""Tables of an experiment: functions from results to tables as data, and their formats.

:mod:`.table_source` holds what they are made from, :mod:`.recognition_tables`, :mod:`.difference_tables` and
:mod:`.training_tables` make them, :mod:`.table_formats` writes them as Markdown, LaTeX and HTML. The report of
``satl experiment`` and the results page of the documentation are written by the same functions.
"""

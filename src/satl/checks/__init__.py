"""Checks of arrays (NumPy) and tensors (torch); what they refuse is an :class:`satl.errors.ArrayError`.

Two modules, so that the checks of arrays do not import torch; a third looks at names that go into text tables.
"""

LABELS = "use +1 present, -1 absent, 0 unknown"
"""What helps where labels are of another kind."""

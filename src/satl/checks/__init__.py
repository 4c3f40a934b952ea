"""Checks of arrays (NumPy) and tensors (torch); what they refuse is an :class:`satl.errors.ArrayError`.

Two modules, so that the checks of arrays do not import torch. Two more look at names that go into text tables, and at
folders that may hold pipes and devices.
"""

LABELS = "use +1 present, -1 absent, 0 unknown"
"""What helps where labels are of another kind."""

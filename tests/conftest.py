"""What all tests share: one thread, so that results do not depend on the machine, and repeatable examples."""

from __future__ import annotations

import os
import tempfile

# What tests read must not end up in, or come from, the cache of the person who runs them.
os.environ["SATL_CACHE"] = tempfile.mkdtemp(prefix="satl-tests-")
# Before torch is imported, and inherited by the processes that tests start.
os.environ["OMP_NUM_THREADS"] = "1"

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

pytest_plugins = ["chromium"]

"""What a batch is made of."""

from __future__ import annotations

import re
from typing import NamedTuple


class Param(NamedTuple):
    key: str
    value: str


class Metric(NamedTuple):
    key: str
    value: float
    timestamp: int
    step: int


def require_name(name: str) -> None:
    assert re.fullmatch(r"[-/\w .:]+", name), name

"""The benchmark of long runs: its slopes, and a short run of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.scripts import run, script


def test_slopes_and_their_errors() -> None:
    slope = script("long_run").slope
    assert slope([5.0] * 20) == pytest.approx((0.0, 0.0), abs=1e-9)
    by, error = slope([0.03 * row for row in range(50)])
    assert by == pytest.approx(3.0)
    assert error == pytest.approx(0.0, abs=1e-6)
    draw = np.random.default_rng(0)
    found = [slope(draw.normal(0, 1, 60).tolist()) for _ in range(300)]
    within = np.mean([abs(by) < 2 * error for by, error in found])
    assert within > 0.9  # noise does not grow, and the error says so


def test_a_short_run_prints_all_slopes(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    done = run("long_run", "--epochs", 6, "--workers", 0, "--images", 32, "--method", "ignore", "--json", out)
    assert done.returncode in (0, 1), done.stderr  # so few epochs say nothing about growth
    assert "6 epochs, 0 workers: slopes per 100 epochs over the last 5" in done.stdout, done.stderr
    for name in ("memory MB", "open files", "threads", "step ms"):
        assert f"\n{name}" in done.stdout
    rows = json.loads(out.read_text())
    assert len(rows) == 6
    assert all(row["memory MB"] > 10 and row["open files"] > 2 for row in rows)

"""What a model says: one table of scores, and one reader for every kind of file that holds scores."""

from __future__ import annotations

from satl.scores.score_reading import read_scores
from satl.scores.score_table import ScoreTable

__all__ = ["ScoreTable", "read_scores"]

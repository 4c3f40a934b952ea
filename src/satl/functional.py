"""The formulas of satl as pure functions, for anybody's training loop."""

from satl.losses.contrastive import contrastive_loss
from satl.losses.cooccurrence import cooccurrence_loss
from satl.losses.partial_bce import partial_bce
from satl.losses.ranking import differential_ranking
from satl.scoring.functional import cross_image_scores, intra_image_scores
from satl.thresholds.functional import (
    histogram_quantile,
    ideal_thresholds,
    move_thresholds,
    pseudo_labels,
    score_histogram,
)

__all__ = [
    "contrastive_loss",
    "cooccurrence_loss",
    "cross_image_scores",
    "differential_ranking",
    "histogram_quantile",
    "ideal_thresholds",
    "intra_image_scores",
    "move_thresholds",
    "partial_bce",
    "pseudo_labels",
    "score_histogram",
]

"""The formulas of satl as pure functions, for anybody's training loop."""

from satl.losses.asymmetric import asymmetric_loss
from satl.losses.contrastive import contrastive_loss
from satl.losses.cooccurrence import cooccurrence_loss
from satl.losses.large_loss import large_loss
from satl.losses.partial_bce import partial_bce
from satl.losses.prototype_contrast import prototype_contrast
from satl.losses.ranking import differential_ranking
from satl.losses.self_paced import self_paced_loss
from satl.scoring.functional import cross_image_scores, intra_image_scores, kmeans
from satl.thresholds.functional import (
    histogram_quantile,
    ideal_thresholds,
    move_thresholds,
    pseudo_labels,
    score_histogram,
)

__all__ = [
    "asymmetric_loss",
    "contrastive_loss",
    "cooccurrence_loss",
    "cross_image_scores",
    "differential_ranking",
    "histogram_quantile",
    "ideal_thresholds",
    "intra_image_scores",
    "kmeans",
    "large_loss",
    "move_thresholds",
    "partial_bce",
    "prototype_contrast",
    "pseudo_labels",
    "score_histogram",
    "self_paced_loss",
]

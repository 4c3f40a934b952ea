"""The formulas of satl as pure functions, for anybody's training loop."""

from satl.checks.tensor_checks import signed_labels
from satl.losses.asymmetric import asymmetric_loss
from satl.losses.contrastive import contrastive_loss
from satl.losses.cooccurrence import cooccurrence_loss
from satl.losses.large_loss import large_loss
from satl.losses.mixed_bce import mixed_bce
from satl.losses.partial_bce import partial_bce
from satl.losses.prototype_contrast import prototype_contrast
from satl.losses.ranking import differential_ranking
from satl.losses.self_paced import self_paced_loss
from satl.scoring.functional import cross_image_scores, intra_image_scores, kmeans
from satl.scoring.text import text_scores, text_statistics
from satl.thresholds.functional import (
    fused_labels,
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
    "fused_labels",
    "histogram_quantile",
    "ideal_thresholds",
    "intra_image_scores",
    "kmeans",
    "large_loss",
    "mixed_bce",
    "move_thresholds",
    "partial_bce",
    "prototype_contrast",
    "pseudo_labels",
    "score_histogram",
    "self_paced_loss",
    "signed_labels",
    "text_scores",
    "text_statistics",
]

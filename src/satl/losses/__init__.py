"""Losses over labels with holes."""

from satl.losses.asymmetric import asymmetric_loss
from satl.losses.contrastive import contrastive_loss
from satl.losses.cooccurrence import cooccurrence_loss
from satl.losses.large_loss import large_loss
from satl.losses.mixed_bce import mixed_bce
from satl.losses.partial_bce import PartialBCELoss, partial_bce
from satl.losses.prototype_contrast import prototype_contrast
from satl.losses.ranking import DifferentialRankingLoss, differential_ranking
from satl.losses.satl_loss import SATLLoss
from satl.losses.self_paced import self_paced_loss

__all__ = [
    "DifferentialRankingLoss",
    "PartialBCELoss",
    "SATLLoss",
    "asymmetric_loss",
    "contrastive_loss",
    "cooccurrence_loss",
    "differential_ranking",
    "large_loss",
    "mixed_bce",
    "partial_bce",
    "prototype_contrast",
    "self_paced_loss",
]

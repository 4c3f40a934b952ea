"""Losses over labels with holes."""

from satl.losses.contrastive import contrastive_loss
from satl.losses.cooccurrence import cooccurrence_loss
from satl.losses.partial_bce import PartialBCELoss, partial_bce
from satl.losses.ranking import DifferentialRankingLoss, differential_ranking

__all__ = [
    "DifferentialRankingLoss",
    "PartialBCELoss",
    "contrastive_loss",
    "cooccurrence_loss",
    "differential_ranking",
    "partial_bce",
]

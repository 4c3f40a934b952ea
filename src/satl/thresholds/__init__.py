"""Threshold rules: one threshold per class and generator."""

from satl.thresholds.calibrated import CalibratedThreshold
from satl.thresholds.fixed import FixedThreshold
from satl.thresholds.flexible import FlexibleThreshold
from satl.thresholds.large_loss import LargeLossThreshold
from satl.thresholds.learned import LearnedThreshold
from satl.thresholds.linear import LinearDecayThreshold
from satl.thresholds.metric import MetricThreshold
from satl.thresholds.precise import PrecisionThreshold
from satl.thresholds.proportion import ProportionThreshold
from satl.thresholds.rule import CountingThreshold, HistogramThreshold, ThresholdRule
from satl.thresholds.semantic_aware import SemanticAwareThreshold
from satl.thresholds.shrunken import ShrunkenThreshold

__all__ = [
    "CalibratedThreshold",
    "CountingThreshold",
    "FixedThreshold",
    "FlexibleThreshold",
    "HistogramThreshold",
    "LargeLossThreshold",
    "LearnedThreshold",
    "LinearDecayThreshold",
    "MetricThreshold",
    "PrecisionThreshold",
    "ProportionThreshold",
    "SemanticAwareThreshold",
    "ShrunkenThreshold",
    "ThresholdRule",
]

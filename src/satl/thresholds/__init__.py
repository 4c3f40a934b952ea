"""Threshold rules: one threshold per class and generator."""

from satl.thresholds.base import ThresholdRule
from satl.thresholds.linear import LinearDecayThreshold
from satl.thresholds.semantic import SemanticAwareThreshold

__all__ = ["LinearDecayThreshold", "SemanticAwareThreshold", "ThresholdRule"]

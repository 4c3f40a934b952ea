"""Fill the table and say how far to trust it: certificates, shift check, annotation plan, label errors, audit.

Pure NumPy and SciPy on arrays (N, C): scores on any scale, labels +1 present, -1 absent, 0 unknown.
"""

from __future__ import annotations

from satl.completion.statistics.audit import (
    AuditResult,
    AuditSample,
    EstimatedShare,
    draw_audit,
    estimate_audit,
)
from satl.completion.statistics.certificates import Certificate, Certification
from satl.completion.statistics.certify import certify
from satl.completion.statistics.label_errors import LabelErrors, find_label_errors
from satl.completion.statistics.label_plan import LabelPlan, plan_labels
from satl.completion.statistics.reasons import Reason
from satl.completion.statistics.shift import ShiftCheck, Verdict, check_shift, precision_at_prevalence
from satl.completion.statistics.threshold_counts import ThresholdCounts
from satl.evaluation.confidence_bounds import (
    clopper_pearson_interval,
    clopper_pearson_lower,
    clopper_pearson_upper,
    conformal_rank,
    finite_population_lower,
    finite_population_upper,
    labels_needed,
)
from satl.labels.bands import Band
from satl.labels.holdout import HeldOut, assign_folds, hold_out, hold_out_fraction

__all__ = [
    "AuditResult",
    "AuditSample",
    "Band",
    "Certificate",
    "Certification",
    "EstimatedShare",
    "HeldOut",
    "LabelErrors",
    "LabelPlan",
    "Reason",
    "ShiftCheck",
    "ThresholdCounts",
    "Verdict",
    "assign_folds",
    "certify",
    "check_shift",
    "clopper_pearson_interval",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "conformal_rank",
    "draw_audit",
    "estimate_audit",
    "find_label_errors",
    "finite_population_lower",
    "finite_population_upper",
    "hold_out",
    "hold_out_fraction",
    "labels_needed",
    "plan_labels",
    "precision_at_prevalence",
]

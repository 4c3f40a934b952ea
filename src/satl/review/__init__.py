"""A person reviews suggestions: the local page, its SQLite store, and merging decisions into the table.

Reading and merging need nothing beyond the core; the page itself (:mod:`satl.review.server`) needs the extra
``web`` and is imported only by ``satl review``.
"""

from __future__ import annotations

from satl.review.agreement import PairAgreement, cohen_kappa, pair_agreement
from satl.review.database import ReviewStore
from satl.review.merge import MergeReport, merge_review

__all__ = ["MergeReport", "PairAgreement", "ReviewStore", "cohen_kappa", "merge_review", "pair_agreement"]

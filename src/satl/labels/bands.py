"""Bands: what a completion did with a cell; the only definition, for files, pages, audits and exports."""

from __future__ import annotations

from enum import IntEnum

ACCEPTED, REVIEW, LEFT = "accepted", "review", "left"
BANDS = (ACCEPTED, REVIEW, LEFT)
"""What files and pages call the bands: accepted with a certificate, to be reviewed by a person, left unknown.

Positions in it are stored.
"""
SUGGESTED_BANDS = (ACCEPTED, REVIEW)
"""Bands whose cells are suggestions to other tools; positions are those of :data:`BANDS`."""


class Band(IntEnum):
    """What a completion did with a cell, accepted cells separated by their value."""

    KNOWN = 0
    PRESENT = 1
    ABSENT = 2
    REVIEW = 3
    LEFT = 4

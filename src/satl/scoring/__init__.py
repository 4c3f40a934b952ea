"""Pseudo-label generators: networks' outputs in, a score per cell out."""

from satl.scoring.base import Evidence, Generator, Scores
from satl.scoring.cross_image import CrossImageGenerator
from satl.scoring.intra_image import IntraImageGenerator
from satl.scoring.teacher import TeacherGenerator

__all__ = [
    "CrossImageGenerator",
    "Evidence",
    "Generator",
    "IntraImageGenerator",
    "Scores",
    "TeacherGenerator",
]

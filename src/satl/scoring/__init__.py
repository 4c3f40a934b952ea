"""Pseudo-label generators: networks' outputs in, a score per cell out."""

from satl.scoring.cross_image import CrossImageGenerator
from satl.scoring.generator import Evidence, Generator, Scores, Survey
from satl.scoring.intra_image import IntraImageGenerator
from satl.scoring.probability import ProbabilityGenerator
from satl.scoring.probe import ProbeOpinion, fit_probe, probe_logits
from satl.scoring.prototypes import PrototypeGenerator
from satl.scoring.teacher import TeacherGenerator

__all__ = [
    "CrossImageGenerator",
    "Evidence",
    "Generator",
    "IntraImageGenerator",
    "ProbabilityGenerator",
    "ProbeOpinion",
    "PrototypeGenerator",
    "Scores",
    "Survey",
    "TeacherGenerator",
    "fit_probe",
    "probe_logits",
]

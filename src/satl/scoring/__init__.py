"""Pseudo-label generators: networks' outputs in, a score per cell out."""

from satl.scoring.cross_image import CrossImageGenerator
from satl.scoring.generator import Generator, GeneratorInputs, GeneratorScores, Survey
from satl.scoring.intra_image import IntraImageGenerator
from satl.scoring.probability import ProbabilityGenerator
from satl.scoring.probe import ProbeLogits, fit_probe, probe_logits
from satl.scoring.prototypes import PrototypeGenerator
from satl.scoring.teacher import TeacherGenerator
from satl.scoring.text import TextGenerator, text_statistics

__all__ = [
    "CrossImageGenerator",
    "Generator",
    "GeneratorInputs",
    "GeneratorScores",
    "IntraImageGenerator",
    "ProbabilityGenerator",
    "ProbeLogits",
    "PrototypeGenerator",
    "Survey",
    "TeacherGenerator",
    "TextGenerator",
    "fit_probe",
    "probe_logits",
    "text_statistics",
]

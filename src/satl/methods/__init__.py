"""Methods declared as data, in one registry."""

from satl.methods import ignore, sst
from satl.methods.base import METHODS, Method, Parameters, get_method, register_method
from satl.methods.learner import Learner, StepResult

__all__ = [
    "METHODS",
    "Learner",
    "Method",
    "Parameters",
    "StepResult",
    "get_method",
    "ignore",
    "register_method",
    "sst",
]

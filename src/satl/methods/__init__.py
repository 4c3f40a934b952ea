"""Methods declared as data, in one registry; every file of this folder is read, so a new method is one file.

Other installed packages can have more: see :mod:`satl.methods.plugins`.
"""

from importlib import import_module
from pkgutil import iter_modules

from satl.methods.feature_methods import on_features
from satl.methods.generators import PartContext
from satl.methods.learner import Learner
from satl.methods.method import Method, MethodParameters, configure
from satl.methods.method_parts import GENERATORS, LOSSES, NETWORKS, RULES
from satl.methods.networks import FeatureVectors, NetworkContext
from satl.methods.parameters import Parameters
from satl.methods.plugins import load_plugins
from satl.methods.registry import METHODS, get_method, method_with, register_method
from satl.methods.step_data import StepContext, StepInputs, StepResult

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
load_plugins()  # last: they build on what is registered by now

__all__ = [
    "GENERATORS",
    "LOSSES",
    "METHODS",
    "NETWORKS",
    "RULES",
    "FeatureVectors",
    "Learner",
    "Method",
    "MethodParameters",
    "NetworkContext",
    "Parameters",
    "PartContext",
    "StepContext",
    "StepInputs",
    "StepResult",
    "configure",
    "get_method",
    "method_with",
    "on_features",
    "register_method",
]

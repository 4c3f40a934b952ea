"""Methods declared as data, in one registry; every file of this folder is read, so a new method is one file.

Packages that are installed beside satl can bring more: see :mod:`satl.methods.plugins`.
"""

from importlib import import_module
from pkgutil import iter_modules

from satl.methods.declaration import Method, Parameters
from satl.methods.learner import Learner, StepResult
from satl.methods.plugins import load_plugins
from satl.methods.registration import METHODS, get_method, method_with, register_method

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
load_plugins()  # last: they build on what is registered by now

__all__ = [
    "METHODS",
    "Learner",
    "Method",
    "Parameters",
    "StepResult",
    "get_method",
    "method_with",
    "register_method",
]

"""What is fuzzed; every file of this folder is imported, so new targets are one file."""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

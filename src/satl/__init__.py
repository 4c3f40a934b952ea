"""satl: multi-label image recognition when most labels are missing.

The public names and modules stand in ``__init__.pyi``; each is loaded when it is first used, so that ``import satl``
costs nothing.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

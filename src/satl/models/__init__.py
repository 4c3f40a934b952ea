"""Networks: backbone adapter, semantic decoupling, graphs of classes, class and pair heads.

The names stand in ``__init__.pyi`` and are loaded when they are first used: importing the room does not import timm.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

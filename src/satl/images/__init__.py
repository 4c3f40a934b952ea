"""Pixels: decode files, pack them, keep them in order, hand out uint8 batches, augment them on the device.

The names stand in ``__init__.pyi`` and are loaded when they are first used: reading files needs only Pillow and NumPy,
and a command that only looks at files does not wait for torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

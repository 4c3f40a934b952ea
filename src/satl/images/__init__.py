"""Pixels: decode files, pack them, keep them in order, hand out uint8 batches, augment them on the device.

Reading (:func:`decode_image`, :class:`FolderImages`, ...) needs only Pillow and NumPy; the names that need
torch are imported when they are first used, so a command that only looks at files starts quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from satl.images.decode import decode_image
from satl.images.pack import PackResult, pack_images
from satl.images.source import ArrayImages, BulkSource, ChosenImages, FolderImages, ImageSource, cached
from satl.images.store import PackedImages, check_store, is_store, packed_images
from satl.labels.cells import IMAGE_EXTENSIONS

if TYPE_CHECKING:
    from satl.images.augment import IMAGENET_MEAN, IMAGENET_STD, EvalTransform, TrainAugment
    from satl.images.batches import Batch, Batches, BatchShare, epoch_order
    from satl.images.resident import ResidentImages

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "IMAGE_EXTENSIONS",
    "ArrayImages",
    "Batch",
    "BatchShare",
    "Batches",
    "BulkSource",
    "ChosenImages",
    "EvalTransform",
    "FolderImages",
    "ImageSource",
    "PackResult",
    "PackedImages",
    "ResidentImages",
    "TrainAugment",
    "cached",
    "check_store",
    "decode_image",
    "epoch_order",
    "is_store",
    "pack_images",
    "packed_images",
]

_NEEDS_TORCH = {
    "IMAGENET_MEAN": "augment",
    "IMAGENET_STD": "augment",
    "EvalTransform": "augment",
    "TrainAugment": "augment",
    "Batch": "batches",
    "Batches": "batches",
    "BatchShare": "batches",
    "epoch_order": "batches",
    "ResidentImages": "resident",
}


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_NEEDS_TORCH[name]}"), name)

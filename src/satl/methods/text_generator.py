"""The zero-shot generator of prompts about the classes, which a configuration may add to any method with generators."""

from __future__ import annotations

from satl.methods.generators import PartContext
from satl.methods.method_parts import GENERATORS
from satl.methods.parameters import Parameters
from satl.scoring import Generator, TextGenerator


@GENERATORS.register("text", needs=["vectors"], for_any=True)
def _text(context: PartContext, parameters: Parameters) -> Generator:
    """Similarity to a prompt about the class, for features of a tower of images and texts."""
    return TextGenerator(context.num_classes)

"""The baseline next to every result: unknown cells are ignored."""

from satl.methods.method import Method
from satl.methods.registry import register_method

register_method(
    Method(
        name="ignore",
        summary="Binary cross-entropy over the known cells; unknown cells are ignored.",
        reference="Durand et al., Learning a deep ConvNet for multi-label classification with partial labels, 2019.",
        stage1=("classification",),
        stage2=("classification",),
    )
)

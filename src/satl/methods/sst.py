"""SST, and SST with the parts of SATL."""

from satl.methods.method import Method
from satl.methods.registry import register_method
from satl.methods.satl_parts import register_with_satl

_STAGE1 = ("classification", "cooccurrence", "contrast")

SST = register_method(
    Method(
        name="sst",
        summary="Pseudo-labels from co-occurrence and from similar images, one threshold lowered by epoch.",
        reference="Chen et al., Structured semantic transfer for multi-label recognition with partial labels, 2022.",
        stage1=_STAGE1,
        stage2=(*_STAGE1, "pseudo"),
        generators=("intra", "cross"),
        rule="linear",
    )
)
register_with_satl(SST, usual_thresholds="its linear threshold")

"""SST, and SST with the parts of SATL."""

from satl.methods.declaration import Method
from satl.methods.registration import register_method

_SATL = "SATL, arXiv 2507.23263."


_STAGE1 = ("classification", "cooccurrence", "contrast")
_STAGE2 = (*_STAGE1, "pseudo")
_GENERATORS = ("intra", "cross")

register_method(
    Method(
        name="sst",
        summary="Pseudo-labels from co-occurrence and from similar images, one threshold lowered by epoch.",
        reference="Chen et al., Structured semantic transfer for multi-label recognition with partial labels, 2022.",
        stage1=_STAGE1,
        stage2=_STAGE2,
        generators=_GENERATORS,
        threshold="linear",
    )
)
register_method(
    Method(
        name="sst+sate",
        summary="SST with one threshold per class, estimated from the scores of the known cells.",
        reference=_SATL,
        stage1=_STAGE1,
        stage2=_STAGE2,
        generators=_GENERATORS,
        threshold="semantic",
    )
)
register_method(
    Method(
        name="sst+drl",
        summary="SST with its linear threshold and the differential ranking loss.",
        reference=_SATL,
        stage1=_STAGE1,
        stage2=(*_STAGE2, "ranking"),
        generators=_GENERATORS,
        threshold="linear",
    )
)
register_method(
    Method(
        name="sst+satl",
        summary="SST with semantic-aware thresholds and the differential ranking loss.",
        reference=_SATL,
        stage1=_STAGE1,
        stage2=(*_STAGE2, "ranking"),
        generators=_GENERATORS,
        threshold="semantic",
    )
)

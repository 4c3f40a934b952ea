"""Features of pictures, word vectors, weights, and pictures."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path

import numpy as np

from fuzz.oracles import Inconsistent
from fuzz.targets.registry import Target, register, register_file
from satl.features import read_features
from satl.features.feature_folder import FeatureFolder, FeatureWriter
from satl.images.decode import decode_image
from satl.models.embeddings import load_word_vectors
from satl.models.weight_files import read_weights


def _read_features(work: Path, name: str) -> None:
    found = read_features(work / name)
    values = found.take(np.arange(len(found.ids)))
    if len(values) != len(found.ids) or not np.isfinite(np.asarray(values, dtype=np.float32)).all():
        raise Inconsistent(f"features {values.shape} of {len(found.ids)} ids, or not finite")


def _check_ids(work: Path, data: bytes) -> bool:
    """Read a list of ids that the record vouches for."""
    record = json.loads((work / "features.json").read_text())
    record["ids_sha256"] = hashlib.sha256(data).hexdigest()
    (work / "features.json").write_text(json.dumps(record))
    (work / "ids.txt").write_bytes(data)
    _read_features(work, "")
    return True


def _resume(work: Path, name: str) -> None:
    """Go on with a folder that is not finished, one file of which is damaged."""
    for left in ("features.json", "ids.txt"):
        (work / left).unlink(missing_ok=True)
    writer = FeatureWriter(work, ("a", "b", "c"), 2, 1, {}, part_rows=2)
    writer.broken()
    writer.forget_broken()
    if not writer.missing():
        writer.finish()


register_file("features/all.npz", "npz", partial(_read_features, name="all.npz"))
register_file("features/rows.npy", "npy", partial(_read_features, name="rows.npy"))
register_file("features/rows.txt", "text", partial(_read_features, name="rows.npy"), share=0.5)
register_file("features/table.npy", "npy", partial(_read_features, name="table.npy"), share=0.5)
register_file("features/table.csv", "text", partial(_read_features, name="table.npy"), share=0.5)
register_file("features/lists.parquet", "parquet", partial(_read_features, name="lists.parquet"))
register_file("features/lists.arrow", "arrow", partial(_read_features, name="lists.arrow"))
register_file("hfdata/state.json", "json", partial(_read_features, name=""), share=0.5)
register_file("hfdata/data-00000.arrow", "arrow", partial(_read_features, name=""), share=0.5)
register_file("featfolder/features.json", "json", partial(_read_features, name=""))
register_file("featfolder/features-00000.npy", "npy", partial(_read_features, name=""), share=0.5)
register(Target("featfolder/ids.txt", "text", _check_ids, share=0.5))
register_file("featfolder/broken.csv", "text", FeatureFolder.read_broken, share=0.25)
register_file("unfinished/_unfinished.json", "json", partial(_resume, name=""), share=0.25)
register_file("unfinished/features-00000.json", "json", partial(_resume, name=""), share=0.25)

for _name, _kind in (("glove.txt", "text"), ("named.npz", "npz"), ("rows.npy", "npy")):
    register_file(
        f"words/{_name}",
        _kind,
        lambda work, name=_name: load_word_vectors(work / name, ("cat", "dog"), missing="random"),
        share=0.5,
    )
for _name in ("weights.safetensors", "weights.pth"):
    register_file(
        f"weights/{_name}",
        "zip" if _name.endswith("pth") else "bytes",
        lambda work, name=_name: read_weights(work / name),
        share=0.5,
    )
for _name in (
    "grey.png",
    "colour.jpg",
    "palette.gif",
    "wide.webp",
    "plain.bmp",
    "tiles.tif",
    "plain.ppm",
    "tga.tga",
):
    register_file(
        f"pictures/{_name}", "bytes", lambda work, name=_name: decode_image(work / name, 32), share=0.5
    )

"""The folder of features that embedding writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from satl.features.feature_folder import FeatureFolder
from satl.features.feature_reader import FeatureFile, FeatureReader, register_feature_reader


@contextmanager
def open_folder(path: Path) -> Iterator[FeatureFile]:
    """Open a folder of features; its parts are mapped into memory."""
    folder = FeatureFolder.open(path)
    yield FeatureFile(
        folder.read_ids(), folder.arrays(), mapped=True, verify=folder.verify, made_by=folder.made_by
    )


register_feature_reader(FeatureReader("a folder of features", FeatureFolder.is_one, open_folder))

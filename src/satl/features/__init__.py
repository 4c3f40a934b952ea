"""What a frozen network says about pictures: vectors of any embedding, read from many kinds of files, or in a folder.

>>> import tempfile
>>> import numpy as np
>>> folder = FeatureFolder.write(tempfile.mkdtemp(), ["a.jpg", "b.jpg"], np.eye(2, 4), {"backbone": "mine"})
>>> table = read_features(folder.path, ["b.jpg"])
>>> table.views, table.dim, table.take(np.array([0])).tolist()
(1, 4, [[[0.0, 1.0, 0.0, 0.0]]])
"""

from __future__ import annotations

from satl.features.feature_folder import FeatureFolder, FeatureWriter
from satl.features.feature_reading import read_features
from satl.features.feature_table import FeatureTable

__all__ = ["FeatureFolder", "FeatureTable", "FeatureWriter", "read_features"]

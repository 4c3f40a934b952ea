"""Find pictures that look the same: copies that were saved again, resized or brightened a little.

A picture is shrunk to 18 x 18 grey pixels. Whether each of 8 x 8 places of it is brighter than the one to its left,
and than the one above it, gives a hash of 128 bits, which such changes leave nearly as it is. Pairs whose hashes differ
in at most fourteen bits are compared by their shrunken pixels.

Not all pairs are looked at: cut into sixteen blocks, two hashes that differ in fourteen bits or less have at least two
blocks in common, so pictures are sorted by each two of the blocks and only neighbours compared.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIDE = 18
"""Side of the shrunken pictures in pixels."""
MOST_BITS = 14
"""Bits in which the hashes of copies differ at most."""
_BITS = 128
_BLOCKS = MOST_BITS + 2
_MARGIN = 1.0
"""Grey levels by which a place must be brighter: noise in a clear sky would turn bits otherwise."""
_FLAT = 3.0
"""Standard deviation in grey levels below which a picture shows too little to be compared."""
_CORRELATION = 0.97
"""Correlation of the shrunken pixels of copies, at least."""
_NEIGHBOURS = 128
"""Pictures with the same two blocks that each one is compared with, at most: a bound on the time."""

_OF_A_GROUP = 16
"""Pictures of one group that others with the same two blocks are compared with, at most, for the same reason."""
_PAIRS_AT_ONCE = 1 << 16

IntArray = NDArray[np.int64]


def near_duplicates(thumbnails: NDArray[np.uint8]) -> list[list[int]]:
    """Return groups of pictures that look the same, by position.

    Args:
        thumbnails: the shrunken pictures, uint8 (N, 18, 18).

    Returns:
        Groups of two or more, each in order, by their first picture. Copies of copies are in one group.

    >>> draw = np.random.default_rng(0).integers(0, 200, (3, 18, 18), dtype=np.uint8)
    >>> near_duplicates(np.concatenate([draw, draw[1:2] + np.uint8(20)]))
    [[1, 3]]
    """
    bits = difference_hashes(thumbnails)
    packed = np.packbits(bits, axis=1).view(np.uint64)  # (N, 2)
    # By their whole hash first: of many pictures with two blocks in common, neighbours are then those most alike.
    order = np.lexsort((packed[:, 1], packed[:, 0]))
    search = _Search(thumbnails[order], packed[order])
    blocks = [
        block @ (1 << np.arange(block.shape[1], dtype=np.int64))
        for block in np.array_split(bits[order].astype(np.int64), _BLOCKS, axis=1)
    ]
    for first, second in combinations(blocks, 2):
        search.compare(first << 32 | second)
    group = np.empty(len(order), dtype=np.int64)
    group[order] = search.group
    return _members(group)


def difference_hashes(thumbnails: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the hashes of shrunken pictures (N, 18, 18), as bits: uint8 (N, 128) of 0 and 1."""
    places = thumbnails.reshape(-1, 9, 2, 9, 2).mean(axis=(2, 4), dtype=np.float32)
    across = places[:, :8, 1:] - places[:, :8, :-1] > _MARGIN
    down = places[:, 1:, :8] - places[:, :-1, :8] > _MARGIN
    return np.stack([across, down], axis=1).reshape(-1, _BITS).view(np.uint8)


class _Search:
    """Pictures and the groups that have been found of them so far.

    Args:
        thumbnails: the shrunken pictures, uint8 (N, 18, 18).
        packed: their hashes, uint64 (N, 2).
    """

    def __init__(self, thumbnails: NDArray[np.uint8], packed: NDArray[np.uint64]) -> None:
        self.thumbnails, self.packed = thumbnails, packed
        self.group: IntArray = np.arange(len(packed))

    def compare(self, keys: IntArray) -> None:
        """Compare pictures with the same key, unless they are in one group already."""
        order = np.lexsort((self.group, keys))
        begins = np.ones(len(order), dtype=np.bool_)  # where another key, or another group, begins
        begins[1:] = (np.diff(keys[order]) != 0) | (np.diff(self.group[order]) != 0)
        first = np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
        order = order[np.arange(len(order)) - first < _OF_A_GROUP]
        keys = keys[order]
        found: list[IntArray] = []
        rows = np.arange(len(keys))
        for step in range(1, _NEIGHBOURS + 1):
            rows = rows[rows + step < len(keys)]
            rows = rows[keys[rows] == keys[rows + step]]
            if not len(rows):
                break
            pairs = np.stack([order[rows], order[rows + step]])
            pairs = pairs[:, self.group[pairs[0]] != self.group[pairs[1]]]
            different = np.bitwise_count(self.packed[pairs[0]] ^ self.packed[pairs[1]]).sum(axis=1)
            pairs = pairs[:, different <= MOST_BITS]
            found.append(pairs[:, self._look_alike(*pairs)])
            if sum(one.shape[1] for one in found) > _PAIRS_AT_ONCE:
                self._join(found)
                found = []
        self._join(found)

    def _look_alike(self, one: IntArray, other: IntArray) -> NDArray[np.bool_]:
        """Whether the pictures of each pair look the same by their pixels, whatever their brightness and contrast."""
        result = np.zeros(len(one), dtype=np.bool_)
        for begin in range(0, len(one), _PAIRS_AT_ONCE):
            part = slice(begin, begin + _PAIRS_AT_ONCE)
            left, right = (_standardised(self.thumbnails[rows[part]]) for rows in (one, other))
            result[part] = (left * right).mean(axis=1) >= _CORRELATION
        return result

    def _join(self, found: list[IntArray]) -> None:
        """Make one group of the groups of each pair."""
        one, other = np.concatenate([np.empty((2, 0), dtype=np.int64), *found], axis=1)
        if not len(one):
            return
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        total = int(self.group.max()) + 1
        links: Any = coo_array(
            (np.ones(len(one), dtype=np.bool_), (self.group[one], self.group[other])), shape=(total, total)
        )
        self.group = connected_components(links, directed=False)[1].astype(np.int64)[self.group]


def _standardised(thumbnails: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return pixels (N, P) with mean 0 and deviation 1; NaN, which is like nothing, for a picture without contrast."""
    pixels = thumbnails.reshape(len(thumbnails), -1).astype(np.float32)
    pixels -= pixels.mean(axis=1, keepdims=True)
    spread = pixels.std(axis=1, keepdims=True)
    return (pixels / np.where(spread < _FLAT, np.nan, spread)).astype(np.float32)


def _members(group: IntArray) -> list[list[int]]:
    """Return the positions of each group (N,) of two or more, in order, by the first of them."""
    order = np.argsort(group, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(group[order])) + 1)
    return sorted(part.tolist() for part in parts if len(part) > 1)

"""Searching one range of keys, in a worker: equal texts, or documents that share a key of a band."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.dedup.exact.solver import equal_in_part
from tamis.dedup.fuzzy.bands import equal_marks, keys_left, star_edges_of
from tamis.dedup.range_passes.ranges import KeyRange
from tamis.dedup.range_passes.results import EDGE, EQUAL, Rows, read_results
from tamis.dedup.records import Records


def find_equal(records: Records, key_range: KeyRange) -> Rows:
    """Return the documents of a range that are removed because another one has the same text."""
    number, partners, size = equal_in_part(records, (key_range.low, key_range.high))
    rows = np.empty(len(number), EQUAL)
    rows["number"], rows["kept"], rows["size"] = number, partners, size
    return rows


def find_edges(records: Records, key_range: KeyRange, is_equal: NDArray[np.uint8]) -> Rows:
    """Return the links between documents that share a key of a range of a band.

    The first row has the number of heavy buckets and the size of the heaviest.
    """
    keys = keys_left(records, key_range.k, (key_range.low, key_range.high), is_equal)
    a, b, n_heavy, heaviest = star_edges_of(*keys)
    rows = np.empty(len(a) + 1, EDGE)
    rows[0] = n_heavy, heaviest
    rows["a"][1:], rows["b"][1:] = a, b
    return rows


def equal_bits(folder: str, n_documents: int) -> NDArray[np.uint8]:
    """Return one bit per document, set if it equals an earlier one."""
    return equal_marks((rows["number"] for rows in read_results(folder, EQUAL)), n_documents)

"""Counting arrays of numbers into the bins of engine/histograms.py.

The bin of a number follows from its leading bits: sign, power of two, and the first five bits after that. So one shift
and one look-up per value find it (4 ns with counting; a search among the ends of the bins takes 37), and nothing is
rounded. The table takes 1 MiB, shared by all workers; narrower numbers would be widened for counting every time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tamis.engine.histograms import (
    FIRST_LARGE,
    FIRST_MEAN,
    FIRST_SHARE,
    LARGE,
    LARGEST,
    MEANS,
    NO_NUMBER,
    OVERFLOW,
    SHARES,
    SMALLEST,
    Histogram,
)
from tamis.tasks import DocumentBatch

Array = np.ndarray[Any, Any]
_SHIFT = np.uint64(64 - 1 - 11 - 5)
_CHUNK = 1 << 13  # numbers: what this takes in addition stays small, and in the cache
_ZERO = NO_NUMBER  # added to a bin's number, which may be negative


def count(values: Any, histogram: Histogram) -> None:
    """Add numbers: an array of numpy or Arrow, or a list of anything."""
    numbers = np.ascontiguousarray(as_numbers(values))
    for at in range(0, len(numbers), _CHUNK):
        bits = numbers[at : at + _CHUNK].view(np.uint64)
        counts = np.bincount(_TABLE.take((bits >> _SHIFT).view(np.int64)))
        first = int(counts.argmax() if counts[-1] == len(bits) else np.flatnonzero(counts)[0])
        histogram.add(first - _ZERO, counts[first:].tolist())


def as_numbers(values: Any) -> Array:
    """Convert values to 64-bit floats, NaN for values that are not numbers.

    Each value is converted by itself, so that neighbours do not matter.
    """
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        kind = values.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            return np.full(len(values), np.nan)
        values = values.to_numpy() if isinstance(values, pa.ChunkedArray) else values.to_numpy(zero_copy_only=False)
    if isinstance(values, np.ndarray) and values.dtype != object:
        numeric = values.ndim == 1 and values.dtype.kind in "biuf"
        return values.astype(np.float64, copy=False) if numeric else np.full(len(values), np.nan)
    return np.fromiter(map(_number, values), np.float64, len(values))


def is_whole(values: Any) -> bool:
    """Return True if all values are integers by their type.

    A code that represents one of them then identifies it exactly.
    """
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values.dtype.kind in "iub"
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return bool(pa.types.is_integer(values.type)) and not values.null_count
    return all(type(v) is int for v in values)


def _number(value: Any) -> float:
    if not isinstance(value, (int, float, np.integer, np.floating, np.bool_)):
        return np.nan
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf


def lengths(batch: DocumentBatch) -> Array:
    """Return the bytes of each document as read: of the line of JSONL, of the values of a table's row."""
    lineage = batch.lineage
    return np.zeros(batch.num_items, np.int64) if lineage is None else lineage.lengths()


def _make_table() -> Array:
    """Return the bin of every combination of leading bits, plus _ZERO."""
    key = np.arange(1 << 16)
    power, five = (key >> 5) - 1023, key & 31
    quarter = five >> 3
    index = np.zeros(len(key), np.int64)
    for first, begin, end in ((1, SMALLEST, SHARES), (FIRST_LARGE, LARGE, LARGEST)):
        in_range = (power >= begin) & (power < end)
        index[in_range] = first + ((power - begin) * 4 + quarter)[in_range]
    for first, begin, end in ((FIRST_SHARE, SHARES, MEANS), (FIRST_MEAN, MEANS, LARGE)):
        in_range = (power >= begin) & (power < end)
        quarters = (32 + five[in_range]) >> (3 - (power[in_range] - begin))  # of the first power of two
        index[in_range] = first - 4 + quarters
    index[power >= LARGEST] = OVERFLOW
    bins = np.concatenate([index, -1 - index])
    bins[np.tile((power == 1024) & (five > 0), 2)] = NO_NUMBER
    bins[len(index)] = 0  # -0.0, and what is closer to it than 2**-1027
    return (bins + _ZERO).astype(np.intp)


_TABLE = _make_table()

"""Rows of string columns, taken and replaced by copying bytes once.

Arrow's own `take` and `replace_with_mask` build their result value by value in a growing buffer: ten times as slow
for long texts. Covers string, binary and their large kinds; everything else goes to Arrow, by way of the large kinds
for views.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.kernels.buffers import StringBuffers, string_buffers
from tamis.kernels.records.json_text import copy_spans

_MAX_32 = np.iinfo(np.int32).max


def take(array: pa.Array, rows: NDArray[Any]) -> pa.Array:
    """Return the values of these rows, with null where a row is -1."""
    is_absent = rows < 0
    at = np.maximum(rows, 0) if is_absent.any() else rows
    if not _is_plain(array) or not len(array):
        indices = pa.array(at, mask=is_absent) if at is not rows else pa.array(rows)
        large = large_of_view(array.type)  # Arrow cannot take views
        return array.take(indices) if large is None else array.cast(large).take(indices).cast(array.type)
    source = string_buffers(array)
    starts, ends = source.spans(at)
    lens = ends - starts
    valid = None if source.validity is None else source.validity[at]
    if at is not rows:
        lens[is_absent] = 0
        valid = ~is_absent if valid is None else valid & ~is_absent
    if at is rows and len(rows) and _is_dense(starts, ends, source.data.size):
        offsets = np.concatenate([starts, ends[-1:]]).astype(source.offsets.dtype)
        return _array(array.type, offsets, source.data, valid)
    builder = _RowBuilder(array.type, lens, valid)
    builder.put(source, starts, slice(None))
    return builder.array()


def _is_dense(starts: NDArray[np.int64], ends: NDArray[np.int64], n_bytes: int) -> bool:
    """Return True if values are contiguous and are most of the bytes, so that none need be copied.

    Values between them must be empty.
    """
    return int(ends[-1] - starts[0]) * 2 >= n_bytes and bool((starts[1:] == ends[:-1]).all())


def replace(array: pa.Array, mask: NDArray[np.bool_], values: pa.Array) -> pa.Array:
    """Return the column with `values`, of its own type, where `mask` is true: one for each such row."""
    if not _is_plain(array) or array.type != values.type or len(values) != int(np.count_nonzero(mask)):
        return pc.replace_with_mask(array, pa.array(mask), values)
    stay, come = string_buffers(array), string_buffers(values)
    starts, ends = stay.spans()
    new_starts, new_ends = come.spans()
    lens = ends - starts
    lens[mask] = new_ends - new_starts
    valid = None
    if stay.validity is not None or come.validity is not None:
        valid = np.ones(len(array), bool) if stay.validity is None else stay.validity.copy()
        valid[mask] = True if come.validity is None else come.validity
    builder = _RowBuilder(array.type, lens, valid)
    builder.put(stay, starts[~mask], ~mask)
    builder.put(come, new_starts, mask)
    return builder.array()


class _RowBuilder:
    """A column of values of these lengths, to be filled in."""

    def __init__(self, kind: pa.DataType, lens: NDArray[np.int64], valid: NDArray[np.bool_] | None) -> None:
        self._kind, self._lens, self._valid = kind, lens, valid
        self._offsets = np.zeros(len(lens) + 1, np.int64)
        np.cumsum(lens, out=self._offsets[1:])
        n_bytes = int(self._offsets[-1])
        self._is_short = pa.types.is_string(kind) or pa.types.is_binary(kind)
        if self._is_short and n_bytes > _MAX_32:  # before they are copied
            raise pa.ArrowCapacityError(f"{n_bytes:,} bytes do not fit into a column of type {kind}")
        self._data = np.empty(n_bytes, np.uint8)

    def put(self, source: StringBuffers, starts: NDArray[np.int64], to: Any) -> None:
        """Write the values that begin there in the source to these rows."""
        copy_spans(source.data, starts, self._lens[to], self._data, self._offsets[:-1][to])

    def array(self) -> pa.Array:
        offsets: NDArray[Any] = self._offsets.astype(np.int32) if self._is_short else self._offsets
        return _array(self._kind, offsets, self._data, self._valid)


def _array(
    kind: pa.DataType, offsets: NDArray[Any], data: NDArray[np.uint8], valid: NDArray[np.bool_] | None
) -> pa.Array:
    n, n_nulls, bitmap = len(offsets) - 1, 0, None
    if valid is not None and not valid.all():
        n_nulls = n - int(np.count_nonzero(valid))
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, n, [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)], n_nulls)


def _is_plain(array: pa.Array | pa.ChunkedArray) -> bool:
    kinds = pa.types.is_large_string, pa.types.is_string, pa.types.is_large_binary, pa.types.is_binary
    return isinstance(array, pa.Array) and any(is_kind(array.type) for is_kind in kinds)


def large_of_view(kind: pa.DataType) -> pa.DataType | None:
    """Return the large type for a view type, or None if `kind` is not a view type."""
    if pa.types.is_string_view(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(kind) else None

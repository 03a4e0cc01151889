"""Arrow string columns as numpy views of their offsets, bytes and validity, and back. The data is never copied.

The only module that deals with slices, chunks, 32- and 64-bit offsets, views, nulls and read-only memory; kernels see
plain arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa


class StringBuffers(NamedTuple):
    """One contiguous string column: value i is data[offsets[i]:offsets[i + 1]), null where validity[i] is False."""

    offsets: NDArray[np.int32] | NDArray[np.int64]
    data: NDArray[np.uint8]
    validity: NDArray[np.bool_] | None

    @property
    def n_rows(self) -> int:
        return self.offsets.size - 1

    def spans(self, rows: NDArray[np.int64] | None = None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (starts, ends) of all values, or of these rows; a null ends where it begins.

        Kernels read without looking: offsets outside the data are refused here.
        """
        some = slice(None) if rows is None else rows
        starts, ends = self.offsets[:-1][some].astype(np.int64), self.offsets[1:][some].astype(np.int64)
        if self.validity is not None:
            ends = np.where(self.validity[some], ends, starts)
        if starts.size and not (
            int(starts.min()) >= 0 and bool((starts <= ends).all()) and int(ends.max()) <= self.data.size
        ):
            raise ValueError(f"StringBuffers: the offsets of a value are outside the {self.data.size} bytes of data")
        return starts, ends


def string_buffers(array: pa.Array) -> StringBuffers:
    """Return views of a string, large_string, binary or large_binary array, sliced or not.

    The views keep the Arrow memory alive. Validity (one byte per row) is the only thing made, and only for columns
    with nulls.
    """
    import pyarrow as pa

    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        width: type[np.signedinteger[Any]] = np.int32
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        width = np.int64
    else:
        raise TypeError(
            f"string_buffers: expected a string or binary column, got {kind}; cast it to large_string first"
        )
    _, offset_buffer, data_buffer = array.buffers()
    n_rows = len(array)
    if offset_buffer is None or offset_buffer.size == 0:  # Arrow allows an empty array without offsets
        offsets: NDArray[Any] = np.zeros(1, width)
    else:
        offsets = np.frombuffer(offset_buffer, width, n_rows + 1, array.offset * np.dtype(width).itemsize)
    if not offsets.flags.aligned:
        offsets = offsets.copy()
    data = (
        np.frombuffer(data_buffer, np.uint8) if data_buffer is not None and data_buffer.size else np.zeros(0, np.uint8)
    )
    for view in (offsets, data):
        view.flags.writeable = False  # Arrow data never changes, though its buffers may look writable
    return StringBuffers(offsets, data, validity_of(array))


def validity_of(array: pa.Array) -> NDArray[np.bool_] | None:
    """Return one bool per row, or None if no row is null."""
    bitmap = array.buffers()[0]
    if bitmap is None or array.null_count == 0:
        return None
    first_byte, n_before = divmod(array.offset, 8)
    packed = np.frombuffer(bitmap, np.uint8)[first_byte : (array.offset + len(array) + 7) // 8]
    return np.unpackbits(packed, bitorder="little")[n_before : n_before + len(array)].view(np.bool_)


def chunk_buffers(column: pa.Array | pa.ChunkedArray) -> list[StringBuffers]:
    """Return the `string_buffers` of every chunk of a column, in order; empty chunks are left out."""
    import pyarrow as pa

    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return [string_buffers(chunk) for chunk in chunks if len(chunk)]


def string_array(
    offsets: NDArray[np.int64], data: NDArray[np.uint8], validity: NDArray[np.bool_] | None = None
) -> pa.LargeStringArray:
    """Build a large_string array on top of the given arrays, which it keeps alive.

    `data` must be UTF-8.
    """
    import pyarrow as pa

    n_rows = offsets.size - 1
    if n_rows < 0 or offsets.dtype != np.int64 or not offsets.flags.c_contiguous:
        raise ValueError(
            f"string_array: expected contiguous int64 offsets, one more than rows; got {offsets.size} {offsets.dtype}"
        )
    if offsets[0] < 0 or offsets[-1] > data.size:
        raise ValueError(
            f"string_array: offsets reach from {offsets[0]} to {offsets[-1]}, beyond {data.size} bytes of data"
        )
    if validity is not None and validity.size != n_rows:
        raise ValueError(f"string_array: expected the validity of {n_rows} rows, got {validity.size}")
    bitmap, n_nulls = None, 0
    if validity is not None and not bool(validity.all()):
        n_nulls = n_rows - int(np.count_nonzero(validity))
        bitmap = pa.py_buffer(np.packbits(validity, bitorder="little"))
    return pa.LargeStringArray.from_buffers(n_rows, pa.py_buffer(offsets), pa.py_buffer(data), bitmap, n_nulls)

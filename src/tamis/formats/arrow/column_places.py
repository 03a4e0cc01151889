"""Locate the columns of an Arrow file by its footer and the heads of its record batches alone (messages.py).

Arrow's own reader either reads whole record batches or maps the file. Supports only what Tamis itself writes: numbers,
fixed and variable numbers of bytes, uncompressed.
"""

from __future__ import annotations

from typing import Any

from tamis._dataclasses import dataclass
from tamis._lazy import np, pa
from tamis.errors import FormatError, StoreError
from tamis.failures import is_memory_failure
from tamis.formats.arrow.messages import BatchLocation, read_layout
from tamis.formats.scratch.stored_arrays import StoredArray
from tamis.stores.opening import open_arrow


@dataclass(frozen=True)
class BatchPlaces:
    """One record batch. `buffers`: for each column (place in the file, bytes) of its buffers, validity first."""

    path: str
    n_rows: int
    types: dict[str, pa.DataType]
    buffers: dict[str, list[tuple[int, int]]]

    def values(self, name: str) -> StoredArray:
        """Return the stored array of a column of numbers or of fixed-size bytes."""
        return self._array(name, numpy_type(self.types[name]), self.n_rows)

    def ends(self, name: str) -> StoredArray:
        """Return the stored offsets of a text or bytes column.

        They give the offset in the column's data at which each value begins, and the offset at which the last one ends.
        """
        kind = self.types[name]
        large = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
        return self._array(name, np.dtype(np.int64 if large else np.int32), self.n_rows + 1)

    def data_at(self, name: str) -> int:
        """Return the file offset at which the data bytes of a text or bytes column begin."""
        return self.buffers[name][2][0]

    def _array(self, name: str, kind: Any, n: int) -> StoredArray:
        offset, n_bytes = self.buffers[name][1]
        if n * kind.itemsize > n_bytes:
            raise FormatError(
                f"{self.path}: {n_bytes} bytes of {name!r} for {n} values; start over with fresh (--fresh)"
            )
        return StoredArray(self.path, offset, kind, n)


def numpy_type(kind: pa.DataType) -> Any:
    """Return the numpy type of a column of numbers or of a fixed number of bytes."""
    if pa.types.is_fixed_size_binary(kind):
        return np.dtype(f"V{kind.byte_width}")
    return np.dtype(kind.to_pandas_dtype())


def batches_of(path: str) -> list[BatchPlaces]:
    """Return the record batches of an Arrow file that have rows.

    Raises FormatError if the file is not an Arrow file or is damaged.
    """
    try:
        with open_arrow(path) as source:
            schema = pa.ipc.open_file(source).schema
        batches = read_layout(path, with_buffers=True).batches
    except StoreError:  # a store that does not answer says nothing of the file
        raise
    except (pa.ArrowException, ValueError, OSError) as exc:
        if is_memory_failure(exc):
            raise MemoryError(str(exc)) from exc
        raise FormatError(f"{path}: not an Arrow file, or a damaged one ({exc})") from None
    types = dict(zip(schema.names, schema.types, strict=True))
    return [BatchPlaces(path, b.n_rows, types, _by_column(path, types, b)) for b in batches if b.n_rows]


def _by_column(path: str, types: dict[str, pa.DataType], batch: BatchLocation) -> dict[str, list[tuple[int, int]]]:
    if batch.is_compressed:
        raise FormatError(f"{path}: its record batches are compressed; expected none that is")
    spans, position = {}, 0
    for name, kind in types.items():
        if pa.types.is_primitive(kind) or pa.types.is_fixed_size_binary(kind):
            n = 2
        elif any(
            is_kind(kind)
            for is_kind in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
        ):
            n = 3
        else:
            raise FormatError(f"{path}: column {name!r} is {kind}; expected numbers, texts or bytes")
        spans[name] = list(batch.buffers[position : position + n])
        position += n
    if position != len(batch.buffers):
        raise FormatError(f"{path}: {len(batch.buffers)} buffers in a record batch, expected {position}")
    return spans

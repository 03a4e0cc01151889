"""Where the columns of an Arrow file lie, found by reading its footer and the heads of its record batches alone (some 100 bytes each).

Arrow's own reader either reads whole record batches or maps the file. The layout is that of Arrow's IPC format (Footer, Message and
RecordBatch are flatbuffers); only what Tamis writes itself is understood: numbers, fixed and variable numbers of bytes,
uncompressed.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tamis.errors import FormatError
from tamis.formats.scratch.stored_arrays import StoredArray

if TYPE_CHECKING:
    import pyarrow as pa

_MAGIC = b"ARROW1"
_TAIL = struct.Struct("<i6s")
_HEAD = struct.Struct("<Ii")
_BLOCK = struct.Struct("<qi4xq")
_PAIR = struct.Struct("<qq")
_MARK = 0xFFFFFFFF
_RECORD_BATCH = 3


@dataclass(frozen=True)
class BatchPlaces:
    """One record batch. `buffers`: for each column (place in the file, bytes) of its buffers, validity first."""

    path: str
    n_rows: int
    types: dict[str, pa.DataType]
    buffers: dict[str, list[tuple[int, int]]]

    def values(self, name: str) -> StoredArray:
        """A column of numbers, or of a fixed number of bytes."""
        return self._array(name, numpy_type(self.types[name]), self.n_rows)

    def ends(self, name: str) -> StoredArray:
        """Of a column of texts or bytes: where each begins in its data, and where the last one ends."""
        import numpy as np
        import pyarrow as pa

        kind = self.types[name]
        large = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
        return self._array(name, np.dtype(np.int64 if large else np.int32), self.n_rows + 1)

    def data_at(self, name: str) -> int:
        """Where the bytes of a column of texts or bytes begin in the file."""
        return self.buffers[name][2][0]

    def _array(self, name: str, kind: Any, n: int) -> StoredArray:
        at, n_bytes = self.buffers[name][1]
        if n * kind.itemsize > n_bytes:
            raise FormatError(
                f"{self.path}: {n_bytes} bytes of {name!r} for {n} values; start over with fresh (--fresh)"
            )
        return StoredArray(self.path, at, kind, n)


def numpy_type(kind: pa.DataType) -> Any:
    """Numbers as they are; a fixed number of bytes as that."""
    import numpy as np
    import pyarrow as pa

    if pa.types.is_fixed_size_binary(kind):
        return np.dtype(f"V{kind.byte_width}")
    return np.dtype(kind.to_pandas_dtype())


def batches_of(path: str) -> list[BatchPlaces]:
    """The record batches of a file that have rows. FormatError for what is no such file."""
    import pyarrow as pa

    try:
        with pa.OSFile(os.fsencode(path)) as source:
            schema = pa.ipc.open_file(source).schema
        types = dict(zip(schema.names, schema.types, strict=True))
        with open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            found = []
            for at, n_meta, n_body in _blocks(file.fileno(), size):
                n_rows, buffers = _record_batch(os.pread(file.fileno(), n_meta, at), at + n_meta)
                if any(place < at + n_meta or n < 0 or place + n > at + n_meta + n_body for place, n in buffers):
                    raise FormatError(f"{path}: damaged; start over with fresh (--fresh)")
                if n_rows:
                    found.append(BatchPlaces(path, n_rows, types, _by_column(path, types, buffers)))
    except (pa.ArrowException, ValueError, struct.error, OSError) as exc:
        raise FormatError(f"{path}: not an Arrow file, or a damaged one ({exc})") from None
    return found


def _by_column(
    path: str, types: dict[str, pa.DataType], buffers: list[tuple[int, int]]
) -> dict[str, list[tuple[int, int]]]:
    import pyarrow as pa

    found, at = {}, 0
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
        found[name] = buffers[at : at + n]
        at += n
    if at != len(buffers):
        raise FormatError(f"{path}: {len(buffers)} buffers in a record batch, expected {at}")
    return found


# -- the layout ---------------------------------------------------------------------------------------------------------
def _blocks(fd: int, size: int) -> list[tuple[int, int, int]]:
    """(place, bytes of the head, bytes of the body) of each record batch, from the footer."""
    n_footer, magic = _TAIL.unpack(os.pread(fd, _TAIL.size, max(0, size - _TAIL.size)))
    if magic != _MAGIC or not 0 < n_footer <= size - _TAIL.size:
        raise struct.error("no footer")
    footer = os.pread(fd, n_footer, size - _TAIL.size - n_footer)
    first, n = _vector(footer, _field(footer, _root(footer, 0), 3), _BLOCK.size)
    return [_BLOCK.unpack_from(footer, first + i * _BLOCK.size) for i in range(n)]


def _record_batch(head: bytes, body_at: int) -> tuple[int, list[tuple[int, int]]]:
    """Rows, and the places of all buffers, from the head of a record batch."""
    mark, _ = _HEAD.unpack_from(head, 0)
    message = _root(head, _HEAD.size)
    kind = _field(head, message, 1)
    if mark != _MARK or not kind or head[kind] != _RECORD_BATCH:
        raise struct.error("no record batch where the footer says there is one")
    at = _field(head, message, 2)
    batch = at + int(struct.unpack_from("<I", head, at)[0])
    if _field(head, batch, 3):
        raise struct.error("compressed")
    length = _field(head, batch, 0)
    n_rows = int(struct.unpack_from("<q", head, length)[0]) if length else 0
    first, n = _vector(head, _field(head, batch, 2), _PAIR.size)
    pairs = (_PAIR.unpack_from(head, first + i * _PAIR.size) for i in range(n))
    return n_rows, [(body_at + offset, n_bytes) for offset, n_bytes in pairs]


def _root(data: bytes, at: int) -> int:
    return at + int(struct.unpack_from("<I", data, at)[0])


def _field(data: bytes, table: int, i: int) -> int:
    """Where field i of a table lies; 0 if it is not there."""
    about = table - int(struct.unpack_from("<i", data, table)[0])
    if about < 0 or 4 + 2 * i >= int(struct.unpack_from("<H", data, about)[0]):
        return 0
    offset = int(struct.unpack_from("<H", data, about + 4 + 2 * i)[0])
    return table + offset if offset else 0


def _vector(data: bytes, at: int, item_bytes: int) -> tuple[int, int]:
    """Where the items of a vector begin, and how many there are."""
    if not at:
        return 0, 0
    first = at + int(struct.unpack_from("<I", data, at)[0])
    n = int(struct.unpack_from("<I", data, first)[0])
    if first + 4 + n * item_bytes > len(data):
        raise struct.error("a list longer than what holds it")
    return first + 4, n

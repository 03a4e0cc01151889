"""Change a Parquet footer so that Arrow decodes columns of dictionaries to their values.

Arrow stores its own schema in the footer (key `ARROW:schema`). A column declared there as a dictionary is read with all
of its dictionary in every batch: 32 rows of a column with a dictionary of 200 MB took 1 GB and 0.3 s. Declared by its
values, the same rows are decoded from the same pages one by one. No option of Arrow overrules that schema, so the
footer is changed in memory: the entry's value is replaced (Thrift's compact protocol writes a text as its length, a
varint, and its bytes); nothing else in a footer depends on its length.
"""

from __future__ import annotations

import base64
import os

import pyarrow as pa
import pyarrow.parquet as pq

from tamis.failures import is_memory_failure
from tamis.stores.opening import open_buffered

_MAGIC = b"PAR1"
_KEY = b"\x18\x0cARROW:schema\x18"  # a text of 12 bytes, and that another text follows


def plain_metadata(path: str | os.PathLike[str], schema: pa.Schema) -> pq.FileMetaData | None:
    """Return the file's metadata with plain types instead of dictionaries, or None to use it unchanged.

    `schema` is the schema as Arrow reads it; only the columns that it names are considered.
    """
    if not any(pa.types.is_dictionary(field.type) for field in schema):
        return None
    try:
        footer = replaced(_read_footer(path))
        if footer is None:
            return None
        whole = _MAGIC + footer + len(footer).to_bytes(4, "little") + _MAGIC
        return pq.read_metadata(pa.BufferReader(whole))
    except (pa.ArrowException, OSError, ValueError) as exc:
        if is_memory_failure(exc):
            raise MemoryError(str(exc)) from exc
        return None  # whatever is odd about it, the file can be read as it says


def replaced(footer: bytes) -> bytes | None:
    """Return the footer with a different embedded Arrow schema, or None if it has none."""
    key_offset = footer.rfind(_KEY)
    if key_offset < 0:
        return None
    start = key_offset + len(_KEY)
    n_bytes, first = _varint(footer, start)
    value = footer[first : first + n_bytes]
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value)))
    fields = [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema]
    plain = base64.b64encode(pa.schema(fields, schema.metadata).serialize().to_pybytes())
    return footer[:start] + _as_varint(len(plain)) + plain + footer[first + n_bytes :]


def _read_footer(path: str | os.PathLike[str]) -> bytes:
    with open_buffered(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 8))
        n_bytes = int.from_bytes(file.read(4), "little")
        if file.read(4) != _MAGIC or n_bytes > size - 12:
            raise ValueError("no footer")
        file.seek(size - 8 - n_bytes)
        return file.read(n_bytes)


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    """Return (value, offset after it)."""
    value = shift = 0
    while True:
        if offset >= len(data) or shift > 35:
            raise ValueError("no number")
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
        shift += 7


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])

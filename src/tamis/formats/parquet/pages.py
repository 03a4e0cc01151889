"""Check the sizes that the pages of a Parquet file claim, for a reader that failed to allocate them.

A page declares in its header (Thrift, compact protocol) how many bytes and values it holds. Checksums cover what
follows the header, so a damaged one requests up to 2 GB: that is not a lack of memory, and no budget would help. The
footer declares the same of whole columns; a page that claims more than its column has is damaged. Reads headers only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import BinaryIO

import pyarrow.parquet as pq

from tamis.stores.opening import open_buffered

_HEADER_BYTES = 1 << 20  # at most: it may hold the smallest and the largest value
_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, 12
_SIZE, _STORED = 2, 3  # fields of a page header: bytes when decoded, bytes in the file
_KINDS = (5, 8)  # ... and the structure of a data page of either version; its first field is the number of values
_MAX_DEPTH = 8


def damaged_page(
    path: str | os.PathLike[str], metadata: pq.FileMetaData, group: int, columns: Sequence[str]
) -> str | None:
    """Return why a page of these columns of a row group is damaged; None if its sizes are plausible."""
    row_group = metadata.row_group(group)
    with open_buffered(os.fspath(path)) as file:
        for i in range(row_group.num_columns):
            column = row_group.column(i)
            if column.path_in_schema.partition(".")[0] in columns:
                try:
                    _check_column(file, column)
                except ValueError as exc:
                    return f"column {column.path_in_schema!r} of row group {group}: {exc}"
    return None


def _check_column(file: BinaryIO, column: pq.ColumnChunkMetaData) -> None:
    offset: int = column.data_page_offset
    if column.has_dictionary_page and 0 < (column.dictionary_page_offset or 0) < offset:
        offset = column.dictionary_page_offset
    end = offset + column.total_compressed_size
    while offset < end:
        file.seek(offset)
        head = _Header(file.read(min(_HEADER_BYTES, end - offset)))
        fields = head.struct()
        size, stored = fields.get((_SIZE,), -1), fields.get((_STORED,), -1)
        n_values = max(fields.get((kind, 1), 0) for kind in _KINDS)
        if not 0 <= size <= column.total_uncompressed_size:
            raise ValueError(f"the page at byte {offset} claims {size} bytes of {column.total_uncompressed_size}")
        if not 0 <= stored <= end - offset - head.offset:
            raise ValueError(
                f"the page at byte {offset} claims {stored} bytes in the file, and {end - offset - head.offset} are "
                "left"
            )
        if not 0 <= n_values <= column.num_values:
            raise ValueError(f"the page at byte {offset} claims {n_values} values of {column.num_values}")
        offset += head.offset + stored


class _Header:
    """Parser of a structure of Thrift's compact protocol; raises ValueError for anything else."""

    def __init__(self, data: bytes) -> None:
        self._data, self.offset = data, 0

    def struct(self, depth: int = 0) -> dict[tuple[int, ...], int]:
        """Return the whole numbers by the path of their fields; everything else is skipped."""
        if depth > _MAX_DEPTH:
            raise ValueError("a page header is nested too deeply")
        numbers: dict[tuple[int, ...], int] = {}
        field = 0
        while head := self._byte():
            kind = head & 15
            field = field + (head >> 4) if head >> 4 else self._integer()
            if kind == _STRUCT:
                numbers |= {(field, *path): n for path, n in self.struct(depth + 1).items()}
            elif kind in _INTEGERS:
                numbers[field,] = self._integer()
            else:
                self._skip(kind)
        return numbers

    def _skip(self, kind: int) -> None:
        if kind in _BOOLEANS:
            return
        if kind == _BYTE:
            self.offset += 1
        elif kind == _DOUBLE:
            self.offset += 8
        elif kind == _BINARY:
            n_bytes = self._varint()
            self.offset += n_bytes
        else:
            raise ValueError("a page header has a field of an unknown type")

    def _byte(self) -> int:
        if self.offset >= len(self._data):
            raise ValueError("a page header has no end")
        self.offset += 1
        return self._data[self.offset - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 63:
                raise ValueError("a page header has a number that is too long")

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

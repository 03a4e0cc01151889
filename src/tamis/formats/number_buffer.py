"""Long lists of numbers (embeddings) that are read in steps: the numbers of all steps go to one buffer.

Joining the steps then copies nothing, and decoding uses the same memory step after step. The buffer is that of the unit
before (kernels/spare.py). Covers one column, the first one with such lists. A step with a list that is null, or that
has a null, stays where it is, and joining copies as usual.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from tamis.kernels import spare

STEP_BYTES = 1 << 20  # of a step: what is decoded is still in the cache when it is copied
_LEAST_BYTES = 1 << 20  # less is copied as fast as it is arranged
_LIST_OF_NUMBERS = re.compile(r"list<[^<>]*: (halffloat|float|double|u?int[0-9]+)( not null)?>")
_MAX_OFFSET = (1 << 31) - 1
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def have_number_lists(kinds: Iterable[str]) -> bool:
    """Return whether one of these Arrow types, by their names, is a list of numbers.

    >>> have_number_lists(["string", "list<element: float>"]), have_number_lists(["list<item: string>"])
    (True, False)
    """
    return any(_LIST_OF_NUMBERS.search(kind) for kind in kinds)


class NumberBuffer:
    """Holds the numbers of one column of tables that are to be joined. `n_bytes`: what they take, as far as known."""

    def __init__(self, n_bytes: int) -> None:
        self._n_bytes, self._n_used = n_bytes, 0
        self._column = ""
        self._data: Bytes | None = None
        self._buffer: pa.Buffer | None = None

    def hold(self, table: pa.Table) -> pa.Table:
        """Return the table with the numbers of its lists in the buffer, if they fit."""
        if self._n_bytes < _LEAST_BYTES or not len(table):
            return table
        if not self._column:
            self._column = next((field.name for field in table.schema if _is_numbers(field.type)), "")
            if not self._column:
                self._n_bytes = 0
                return table
            self._data = spare.take("numbers", self._n_bytes)
            self._buffer = pa.py_buffer(self._data)
        at = table.schema.get_field_index(self._column)
        column = table.column(at) if at >= 0 else None
        if column is None or column.num_chunks != 1 or not _is_numbers(column.type):
            return table
        lists = self._held(column.chunk(0))
        return table if lists is None else table.set_column(at, table.schema.field(at), lists)

    def _held(self, lists: Any) -> Any:
        assert self._data is not None
        assert self._buffer is not None
        offsets = lists.offsets.to_numpy()
        first, last = int(offsets[0]), int(offsets[-1])
        width, n = lists.type.value_type.bit_width // 8, last - first
        if lists.null_count or lists.values.null_count or not n or self._n_used + n * width > len(self._data):
            return None
        source = lists.values.buffers()[1]
        begin = (lists.values.offset + first) * width
        here = slice(self._n_used, self._n_used + n * width)
        self._data[here] = np.frombuffer(source, np.uint8, n * width, begin)
        self._n_used = here.stop
        return _lists(lists.type, offsets - first, self._buffer.slice(here.start, n * width))


def join_tables(tables: list[pa.Table]) -> pa.Table:
    """Return the rows of tables of one schema as one table, each column in one chunk if its type can hold it."""
    table = pa.concat_tables(tables)
    for i, column in enumerate(table.columns):
        if column.num_chunks > 1 and _is_numbers(column.type):
            lists = _joined(column.chunks)
            if lists is not None:
                table = table.set_column(i, table.schema.field(i), lists)
    return table.combine_chunks()


def _joined(chunks: list[Any]) -> Any:
    """Return lists whose numbers follow each other in memory as one array; None for others."""
    chunks = [chunk for chunk in chunks if len(chunk)]
    buffers = [chunk.values.buffers()[1] for chunk in chunks]
    if not all(map(_is_plain, chunks)) or not _follow_each_other(buffers):
        return None
    kind = chunks[0].type
    ends = np.cumsum([0, *(buffer.size // (kind.value_type.bit_width // 8) for buffer in buffers)])
    if pa.types.is_list(kind) and ends[-1] > _MAX_OFFSET:
        return None
    offsets = [chunk.offsets.to_numpy() + end for chunk, end in zip(chunks, ends.tolist(), strict=False)]
    whole = pa.foreign_buffer(buffers[0].address, sum(buffer.size for buffer in buffers), base=buffers[0])
    return _lists(kind, np.concatenate([offsets[0], *(each[1:] for each in offsets[1:])]), whole)


def _is_plain(chunk: Any) -> bool:
    """Return whether lists have no null, and begin where their buffers do."""
    return not (chunk.null_count or chunk.offset or chunk.values.offset or chunk.values.null_count)


def _follow_each_other(buffers: list[Any]) -> bool:
    return bool(buffers) and all(a.address + a.size == b.address for a, b in pairwise(buffers))


def _lists(kind: pa.DataType, offsets: Any, numbers: pa.Buffer) -> Any:
    values = pa.Array.from_buffers(kind.value_type, numbers.size * 8 // kind.value_type.bit_width, [None, numbers])
    width = np.int32 if pa.types.is_list(kind) else np.int64
    places = pa.py_buffer(np.ascontiguousarray(offsets, width))
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, places], children=[values])


def _is_numbers(kind: pa.DataType) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    return bool(pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type))

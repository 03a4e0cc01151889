"""Arrow IPC: files (.arrow, .feather of version 2) and streams, as Hugging Face datasets store them.

Memory: one record batch, which is read as a whole. See also: messages.py (locations of record batches).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tamis.errors import FormatError
from tamis.failures import is_memory_failure, reason_of
from tamis.files import Closing
from tamis.formats.arrow.messages import FIRST_MESSAGE, BatchLocation, Layout, check_claims, read_layout
from tamis.formats.base import BATCH_BYTES, MAX_BATCH_ROWS, RowGroup, RowsFault, TableInfo
from tamis.formats.table_files import BufferedWriter, empty_tables, named_columns, plain_types, split_table
from tamis.stores.opening import open_arrow, size_of

GROUP_BYTES = 4 * 10**6
_ERRORS = (pa.ArrowException, OSError, ValueError, EOFError)
_BITS = {  # types of which not every pattern of bits is a value, and those of which it is
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
    pa.date64(): pa.int64(),
    pa.time32("s"): pa.int32(),
    pa.time32("ms"): pa.int32(),
    pa.time64("us"): pa.int64(),
    pa.time64("ns"): pa.int64(),
}
_LISTS: list[tuple[Any, Any]] = [
    (pa.types.is_list, pa.list_),
    (pa.types.is_large_list, pa.large_list),
    (pa.types.is_list_view, pa.list_view),
    (pa.types.is_large_list_view, pa.large_list_view),
]
_EXPANSION = 4  # of a compressed body, about; who reads it measures


def describe(path: str | os.PathLike[str]) -> TableInfo:
    """Return the rows and record batches.

    Raises FormatError if the file is empty, truncated, damaged or of another format.
    """
    path = os.fspath(path)
    layout = read_layout(path)
    groups, first = [], 0
    for batch in layout.batches:
        groups.append(RowGroup(first, batch.n_rows, batch.body_bytes * (_EXPANSION if batch.is_compressed else 1)))
        first += batch.n_rows
    with _BatchReader(path, layout, None) as reader:
        return TableInfo(first, groups, named_columns(path, reader.schema), size_of(path))


def read_schema(path: str | os.PathLike[str]) -> pa.Schema:
    path = os.fspath(path)
    with _BatchReader(path, read_layout(path), None) as reader:
        return reader.schema


def iter_rows(
    path: str | os.PathLike[str],
    first_row: int,
    end_row: int,
    columns: Sequence[str] | None = None,
    batch_bytes: int = BATCH_BYTES,
    max_rows: int = MAX_BATCH_ROWS,
) -> Iterator[tuple[int, pa.Table]]:
    path = os.fspath(path)
    layout = read_layout(path)
    with _BatchReader(path, layout, columns) as reader:
        first = 0
        for i, batch in enumerate(layout.batches):
            end = first + batch.n_rows
            start, stop = max(first_row, first), min(end_row, end)
            if start < stop:
                if not reader.names:
                    yield from empty_tables(start, stop)
                else:
                    table = reader.table(i, batch, first).slice(start - first, stop - start)
                    for offset in range(0, len(table), max_rows):
                        part = table.slice(offset, max_rows)
                        # A slice refers to its whole batch, which only a copy releases.
                        yield from split_table(start + offset, plain_types(part), batch_bytes)
            first = end


class _BatchReader(Closing):
    """Record batches by their numbers, only `columns` of them."""

    def __init__(self, path: str, layout: Layout, columns: Sequence[str] | None) -> None:
        self._path, self._layout = path, layout
        self._file = open_arrow(path)
        try:
            self._open(columns)
        except _ERRORS as exc:
            self._file.close()
            if is_memory_failure(exc):
                raise MemoryError(str(exc)) from exc
            raise FormatError(f"{path}: not a readable Arrow file: {exc}") from exc

    def _open(self, columns: Sequence[str] | None) -> None:
        if self._layout.is_stream:
            self._source: Any = pa.ipc.open_stream(self._file)
        else:
            self._source = pa.ipc.open_file(self._file)
            if end := self._layout.schema_end:
                first = pa.ipc.read_schema(pa.py_buffer(self._joined([(FIRST_MESSAGE, end)])))
                if not first.equals(self._source.schema):
                    raise pa.ArrowInvalid("the schema at its beginning is not the one in its footer")
        self.schema: pa.Schema = self._source.schema
        n_nodes = sum(_n_nodes(field.type) for field in self.schema)
        if other := next((b for b in self._layout.batches if b.n_nodes != n_nodes), None):
            raise pa.ArrowInvalid(
                f"its schema has {n_nodes} columns, the record batch at byte {other.offset} {other.n_nodes}"
            )
        names = self.schema.names
        self.names = list(names) if columns is None else [name for name in columns if name in names]
        if not self._layout.is_stream and self.names and columns is not None:
            options = pa.ipc.IpcReadOptions(included_fields=[names.index(n) for n in self.names], use_threads=False)
            self._source = pa.ipc.open_file(self._file, options=options)

    def table(self, i: int, batch: BatchLocation, first_row: int) -> pa.Table:
        try:
            record_batch = self._batch(i, batch)
            if record_batch.num_rows != batch.n_rows:
                raise pa.ArrowInvalid(f"{record_batch.num_rows} rows where {batch.n_rows} were announced")
            _check(record_batch)
            return pa.Table.from_batches([record_batch]).select(self.names)
        except _ERRORS as exc:
            end_row = first_row + batch.n_rows
            if is_memory_failure(exc):
                try:
                    check_claims(self._path, self._layout, batch)
                except FormatError as damage:
                    raise RowsFault(first_row, str(damage), end_row) from None
            raise RowsFault(first_row, reason_of(exc), end_row) from exc

    def _batch(self, i: int, batch: BatchLocation) -> pa.RecordBatch:
        if not self._layout.is_stream:
            return self._source.get_batch(i)
        if not self._layout.dictionaries:
            self._file.seek(batch.offset)
            return pa.ipc.read_record_batch(pa.ipc.read_message(self._file), self.schema)
        # A separate stream: what leads to a batch by way of others cannot pass a damaged one.
        before = [(start, end) for start, end in self._layout.dictionaries if start < batch.offset]
        return pa.ipc.open_stream(
            self._joined([(0, self._layout.schema_end), *before, (batch.offset, batch.end)])
        ).read_next_batch()

    def _joined(self, stretches: list[tuple[int, int]]) -> bytes:
        parts = []
        for start, end in stretches:
            self._file.seek(start)
            parts.append(self._file.read(end - start))
        return b"".join(parts)

    def close(self) -> None:
        self._file.close()


def _n_nodes(kind: pa.DataType) -> int:
    """Return how many columns a record batch holds for one of this type, with those inside of it."""
    if isinstance(kind, pa.BaseExtensionType):
        return _n_nodes(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return 1
    return 1 + sum(_n_nodes(kind.field(i).type) for i in range(kind.num_fields))


def _check(batch: pa.RecordBatch) -> None:
    """Check that offsets and lengths are within the buffers: damaged ones would be followed anywhere.

    Values that their type does not allow (text that is not UTF-8) are left to table_files.py, which judges each row.
    """
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        for column in batch.columns:
            if isinstance(column.type, pa.BaseExtensionType):
                column = column.storage
            kind = _as_bits(column.type)
            (column if kind == column.type else column.view(kind)).validate(full=True)


def _as_bits(kind: pa.DataType) -> pa.DataType:
    """Return the type with bytes or integers in the place of texts, decimals, times and dates, at any depth."""
    if kind in _BITS:
        return _BITS[kind]
    if pa.types.is_decimal(kind):
        return pa.binary(kind.byte_width)
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _as_bits(kind.value_type), kind.ordered)
    if pa.types.is_run_end_encoded(kind):
        return pa.run_end_encoded(kind.run_end_type, _as_bits(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([_field_as_bits(kind.field(i)) for i in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_field_as_bits(kind.key_field), _field_as_bits(kind.item_field), kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_field_as_bits(kind.value_field), kind.list_size)
    for is_list, new_list in _LISTS:
        if is_list(kind):
            return new_list(_field_as_bits(kind.value_field))
    return kind


def _field_as_bits(field: pa.Field) -> pa.Field:
    return field.with_type(_as_bits(field.type))


class TableWriter(BufferedWriter):
    """An Arrow file being written, in record batches of about `group_bytes`."""

    def __init__(
        self, path: str | os.PathLike[str], schema: pa.Schema, compression: str = "zstd", group_bytes: int = GROUP_BYTES
    ) -> None:
        super().__init__(path, schema, group_bytes)
        options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression, use_threads=False)
        self._writer = pa.ipc.new_file(self._sink, schema, options=options)

    def _write_group(self, table: pa.Table) -> None:
        self._writer.write_table(table.combine_chunks())

    def _write_end(self) -> None:
        self._writer.close()

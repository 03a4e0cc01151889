"""What several formats of rows share: plain types, tables cut to a size, and a writer that collects groups of rows. base.py says what a format is."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from tamis.errors import FormatError
from tamis.files import Finishing
from tamis.formats.base import MAX_BATCH_ROWS
from tamis.tasks.columns.casting import cast_table, is_plain, plain_array

_SHORT = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


def counted(start: int, end: int) -> Iterator[tuple[int, pa.Table]]:
    """Tables without columns: the rows are only counted."""
    for at in range(start, end, MAX_BATCH_ROWS):
        yield at, pa.table({"": pa.nulls(min(MAX_BATCH_ROWS, end - at))}).select([])


def named_columns(path: str | os.PathLike[str], schema: pa.Schema) -> list[tuple[str, str]]:
    """(name, type) of the columns of a file. FormatError where two of them have one name."""
    if twice := sorted(name for name, n in Counter(schema.names).items() if n > 1):
        raise FormatError(f"{os.fspath(path)}: column {twice[0]!r} appears more than once; rename one of them")
    return [(field.name, str(field.type)) for field in schema]


def plain_types(table: pa.Table) -> pa.Table:
    """Strings as large_string, binaries as large_binary, dictionaries, runs and views as plain values (columns/plain.py); the rest as it is."""
    table = table.replace_schema_metadata(None)
    fields = list(table.schema)
    odd = [i for i, field in enumerate(fields) if field.type in _SHORT or not is_plain(field.type)]
    if not odd:
        return table
    columns = table.columns
    for i in odd:
        columns[i] = _plain_column(columns[i])
        fields[i] = fields[i].with_type(columns[i].type)
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type) and column.type.value_type in _SHORT:
        return column.cast(
            _SHORT[column.type.value_type]
        )  # in one step: 32-bit offsets may not do for what is repeated
    if not is_plain(column.type):
        kind = plain_array(pa.nulls(0, column.type)).type
        column = pa.chunked_array([plain_array(chunk) for chunk in column.chunks], kind)
    return column.cast(_SHORT[column.type]) if column.type in _SHORT else column


def cut(at: int, table: pa.Table, batch_bytes: int) -> Iterator[tuple[int, pa.Table]]:
    """`table` in slices below `batch_bytes`, each with the number of its first row; usually it is below already."""
    if table.nbytes <= batch_bytes or table.num_rows <= 1:
        yield at, table
        return
    half = table.num_rows // 2
    yield from cut(at, table.slice(0, half), batch_bytes)
    yield from cut(at + half, table.slice(half), batch_bytes)


class BufferedWriter(Finishing, ABC):
    """A file being written in groups of rows of about `group_bytes` (decoded). The same tables in the same order give the same bytes."""

    def __init__(self, path: str | os.PathLike[str], schema: pa.Schema, group_bytes: int) -> None:
        self._path, self._schema, self._group_bytes = path, schema, group_bytes
        self._sink = pa.OSFile(os.fsencode(path), "wb")
        self._waiting: list[pa.Table] = []
        self._n_waiting_bytes = 0
        self._n_rows = 0
        self._closed = False

    @abstractmethod
    def _write_group(self, table: pa.Table) -> None:
        """Append these rows as one group."""

    @abstractmethod
    def _write_end(self) -> None:
        """Write whatever the format has after its last group."""

    def write(self, table: pa.Table) -> None:
        """Append `table`, cast to the schema; columns it lacks are null, columns the schema lacks are an error."""
        table = cast_table(table, self._schema)
        self._n_rows += table.num_rows
        n_parts = max(1, -(-table.nbytes // self._group_bytes))
        n_part_rows = max(1, -(-table.num_rows // n_parts))
        for start in range(0, table.num_rows, n_part_rows):
            part = table.slice(start, n_part_rows)
            self._waiting.append(part)
            self._n_waiting_bytes += part.nbytes
            if self._n_waiting_bytes >= self._group_bytes:
                self._flush()

    def close(self) -> tuple[int, int]:
        """Write what waits and the end of the file; returns (rows, bytes of the file)."""
        if not self._closed:
            self._closed = True
            try:
                self._flush()
                self._write_end()
            finally:
                self._sink.close()
        return self._n_rows, os.path.getsize(self._path)

    def abort(self) -> None:
        """Close without an end: what is on disk is no such file."""
        self._closed, self._waiting = True, []
        self._sink.close()

    def _flush(self) -> None:
        if self._waiting:
            # Not combined into one chunk per column: that copy would double the memory for nothing.
            table = pa.concat_tables(self._waiting)
            self._waiting, self._n_waiting_bytes = [], 0
            self._write_group(table)

"""What several formats of rows share: plain types, tables cut to a size, and a writer that collects groups of rows. base.py says what a format is."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from tamis.errors import FormatError
from tamis.formats.base import MAX_BATCH_ROWS
from tamis.formats.columns.casting import cast_table

_NOT_PLAIN = {
    kind.id
    for kind in (
        pa.string(), pa.binary(), pa.string_view(), pa.binary_view(), pa.dictionary(pa.int8(), pa.int8()),
        pa.run_end_encoded(pa.int16(), pa.int8()),
    )
}  # fmt: skip
"""Types that `plain_types` changes, beside extension types."""


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
    """Strings as large_string, binaries as large_binary, dictionaries and views as plain values; the rest as it is."""
    table = table.replace_schema_metadata(None)
    fields = list(table.schema)
    kinds = [field.type for field in fields]
    odd = [i for i, k in enumerate(kinds) if k.id in _NOT_PLAIN or isinstance(k, pa.BaseExtensionType)]
    if not odd:
        return table
    columns = table.columns
    for i in odd:
        kind = _plain_type(kinds[i])
        fields[i], columns[i] = fields[i].with_type(kind), columns[i].cast(kind)
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_type(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary(kind) or pa.types.is_binary_view(kind):
        return pa.large_binary()
    return kind


def cut(at: int, table: pa.Table, batch_bytes: int) -> Iterator[tuple[int, pa.Table]]:
    """`table` in slices below `batch_bytes`, each with the number of its first row; usually it is below already."""
    if table.nbytes <= batch_bytes or table.num_rows <= 1:
        yield at, table
        return
    half = table.num_rows // 2
    yield from cut(at, table.slice(0, half), batch_bytes)
    yield from cut(at + half, table.slice(half), batch_bytes)


class BufferedWriter(ABC):
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
        """Whatever the format has behind its last group."""

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

    def __enter__(self) -> BufferedWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

"""What a format of rows is: files that hold tables, read by ranges of rows (Parquet, Arrow, one text per file).

A format is a module with the names of `TableFormat`; registry.py lists them. This file also has what several of them need.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import pyarrow as pa

from tamis.errors import FormatError

BATCH_BYTES = 8 * 2**20
MAX_BATCH_ROWS = 2**17
_NOT_PLAIN = {
    kind.id
    for kind in (
        pa.string(), pa.binary(), pa.string_view(), pa.binary_view(), pa.dictionary(pa.int8(), pa.int8()),
        pa.run_end_encoded(pa.int16(), pa.int8()),
    )
}  # fmt: skip
"""Types that `plain_types` changes, beside extension types."""


class TableFormat(Protocol):
    """The module of a format."""

    TableWriter: Any
    """Called with (path, schema, compression=...); has write(table), close() -> (rows, bytes), abort(); a context manager. A format that
    is only read has None."""

    def describe(self, path: str) -> TableInfo:
        """Rows and groups of rows of a file, without decoding any. FormatError where it is no such file, or cannot be read at all."""
        ...

    def read_schema(self, path: str) -> pa.Schema:
        """Columns as the file declares them, metadata too. Errors as those of `describe`, or of Arrow."""
        ...

    def iter_rows(
        self,
        path: str,
        first_row: int,
        end_row: int,
        columns: Sequence[str] | None = None,
        batch_bytes: int = BATCH_BYTES,
        max_rows: int = MAX_BATCH_ROWS,
    ) -> Iterator[tuple[int, pa.Table]]:
        """(number of the first row, table) for exactly these rows, in tables of about `batch_bytes` whose types are plain (`plain_types`).
        RowsFault where rows cannot be decoded, MemoryError where there is no room."""
        ...


class RowsFault(FormatError):
    """Decoding stopped at absolute row `row`; every row before it was delivered.

    `next_row` is where reading may go on: the beginning of the next group of rows (or the end of the file).
    """

    def __init__(self, row: int, reason: str, next_row: int) -> None:
        super().__init__(f"decoding stopped at row {row}: {reason}; rows {row} to {next_row - 1} cannot be read")
        self.row, self.reason, self.next_row = row, reason, next_row

    def __reduce__(self) -> tuple[type[RowsFault], tuple[int, str, int]]:
        return type(self), (self.row, self.reason, self.next_row)


@dataclass(frozen=True)
class RowGroup:
    first_row: int
    n_rows: int
    decoded_bytes: int
    """As the file says: a dictionary-encoded column can take many times this once decoded."""


@dataclass(frozen=True)
class TableInfo:
    n_rows: int
    row_groups: list[RowGroup]
    columns: list[tuple[str, str]]
    """(name, Arrow type) as the file declares them."""
    file_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """A plain structure for JSON; `from_dict` is its inverse."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> TableInfo:
        return cls(
            n_rows=plain["n_rows"],
            row_groups=[RowGroup(**group) for group in plain["row_groups"]],
            columns=[(name, kind) for name, kind in plain["columns"]],
            file_bytes=plain["file_bytes"],
        )


def counted(start: int, end: int) -> Iterator[tuple[int, pa.Table]]:
    """Tables without columns: the rows are only counted."""
    for at in range(start, end, MAX_BATCH_ROWS):
        yield at, pa.table({"": pa.nulls(min(MAX_BATCH_ROWS, end - at))}).select([])


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


class BufferedWriter:
    """A file being written in groups of rows of about `group_bytes` (decoded). The same tables in the same order give the same bytes."""

    def __init__(self, path: str | os.PathLike[str], schema: pa.Schema, group_bytes: int) -> None:
        self._path, self._schema, self._group_bytes = path, schema, group_bytes
        self._sink = pa.OSFile(os.fsencode(path), "wb")
        self._waiting: list[pa.Table] = []
        self._n_waiting_bytes = 0
        self._n_rows = 0
        self._closed = False

    def _write_group(self, table: pa.Table) -> None:
        raise NotImplementedError

    def _write_end(self) -> None:
        raise NotImplementedError

    def _leave_unfinished(self) -> None:
        """What was begun is never finished: nothing must be written by a finaliser."""

    def write(self, table: pa.Table) -> None:
        """Append `table`, cast to the schema; columns it lacks are null, columns the schema lacks are an error."""
        from tamis.formats.schema import cast_table

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
        self._leave_unfinished()

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

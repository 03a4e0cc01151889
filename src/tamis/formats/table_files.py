"""Parts that several formats of rows share; base.py defines what a format is.

Covers: plain types, tables cut to a size, values that their type does not allow, formats whose columns are the same in
every file (text, videos, images), a writer that collects row groups, and rows in chunks that do not depend on the
tables that they come in.
"""

from __future__ import annotations

import itertools
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis.errors import FormatError
from tamis.failures import is_memory_failure
from tamis.files import Finishing
from tamis.formats.base import BATCH_BYTES, MAX_BATCH_ROWS, RowGroup, TableInfo
from tamis.tasks.columns.casting import cast_table, is_plain, is_text, plain_array

Path = str | os.PathLike[str]
_CHUNK_BYTES = 4 << 20  # of rows that are written at once
_SHORT = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


def empty_tables(start: int, end: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield tables without columns, which only count rows."""
    for first_row in range(start, end, MAX_BATCH_ROWS):
        yield first_row, pa.table({"": pa.nulls(min(MAX_BATCH_ROWS, end - first_row))}).select([])


def named_columns(path: str | os.PathLike[str], schema: pa.Schema) -> list[tuple[str, str]]:
    """Return (name, type) of the columns of a file; raise FormatError if two of them have one name."""
    if twice := sorted(name for name, n in Counter(schema.names).items() if n > 1):
        raise FormatError(f"{os.fspath(path)}: column {twice[0]!r} appears more than once; rename one of them")
    return [(field.name, str(field.type)) for field in schema]


def plain_types(table: pa.Table) -> pa.Table:
    """Convert columns to plain types: strings to large_string, binaries to large_binary.

    The rest is converted as `plain_array` does.
    """
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
        )  # in one step: 32-bit offsets may not suffice for repeated values
    if not is_plain(column.type):
        kind = plain_array(pa.nulls(0, column.type)).type
        column = pa.chunked_array([plain_array(chunk) for chunk in column.chunks], kind)
    return column.cast(_SHORT[column.type]) if column.type in _SHORT else column


def split_table(first_row: int, table: pa.Table, batch_bytes: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield `table` in slices below `batch_bytes`, each with the number of its first row; usually there is one."""
    if table.nbytes <= batch_bytes or table.num_rows <= 1:
        yield first_row, table
        return
    half = table.num_rows // 2
    yield from split_table(first_row, table.slice(0, half), batch_bytes)
    yield from split_table(first_row + half, table.slice(half), batch_bytes)


def bad_text_rows(table: pa.Table) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return the rows with a value that its type does not allow, top-level or nested, and a reason for each.

    Text that is not UTF-8, times after midnight, decimals of too many digits: readers do not look at values, and
    kernels and Python rely on them. A bad byte would end as an exception in a stage, and a time of 25 hours as one of 1
    hour in the output. JSONL needs no such check, its scanner validates every record.
    """
    bad: dict[int, str] = {}
    for name in table.column_names:
        offset = 0
        for chunk in table.column(name).chunks:
            if _has_invalid_patterns(chunk.type) and _invalid_reason(chunk):
                for row in range(len(chunk)):
                    # `take`, not `slice`: a slice of a list column is validated with the items of all rows.
                    if reason := _invalid_reason(chunk.take(pa.array([row]))):
                        bad.setdefault(offset + row, f"field {name!r} {reason}")
            offset += len(chunk)
    rows = sorted(bad)
    return np.array(rows, np.int64), [bad[row] for row in rows]


def _has_invalid_patterns(kind: pa.DataType) -> bool:
    """Return True if not every pattern of bits is a value of this type, at any depth."""
    if is_text(kind) or pa.types.is_decimal(kind) or pa.types.is_time(kind) or pa.types.is_date64(kind):
        return True
    return any(_has_invalid_patterns(kind.field(i).type) for i in range(kind.num_fields))


def _invalid_reason(array: pa.Array) -> str:
    """Return why an array has values that its type does not allow, as the end of a sentence; "" if it has none."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as exc:
        if is_memory_failure(exc):
            raise MemoryError(str(exc)) from exc
        message = str(exc).partition("\n")[0]
        return "is not valid UTF-8" if "UTF8" in message else f"is not a valid {array.type}: {message}"
    return ""


# -- formats with the same columns in every file -----------------------------------------------------------------------
class FixedColumns:
    """A format whose schema is the same for every file; its methods are the names of `base.TableFormat`."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def read_schema(self, path: Path) -> pa.Schema:
        return self.schema

    def info(self, row_groups: list[RowGroup], file_bytes: int) -> TableInfo:
        """Return the description of a file with these row groups."""
        columns = [(field.name, str(field.type)) for field in self.schema]
        return TableInfo(sum(group.n_rows for group in row_groups), row_groups, columns, file_bytes)

    def wanted(self, columns: Sequence[str] | None) -> pa.Schema:
        """Return the schema of the requested columns, in their own order; all of them for None."""
        return pa.schema([field for field in self.schema if columns is None or field.name in columns])


class OneRowPerFile(FixedColumns):
    """A format in which a file is one row.

    `read(path, names)` returns the values of these columns, or raises RowsFault; `row_bytes(path, file_bytes)` returns
    the approximate size of the row, `size_of(path)` the size of the file.
    """

    def __init__(
        self,
        schema: pa.Schema,
        read: Callable[[str, Sequence[str]], Mapping[str, Any]],
        row_bytes: Callable[[str, int], int],
        size_of: Callable[[str], int] = os.path.getsize,
    ) -> None:
        super().__init__(schema)
        self._read, self._row_bytes, self._size_of = read, row_bytes, size_of

    def describe(self, path: Path) -> TableInfo:
        path = os.fspath(path)
        file_bytes = self._size_of(path)
        return self.info([RowGroup(0, 1, self._row_bytes(path, file_bytes))], file_bytes)

    def iter_rows(
        self,
        path: Path,
        first_row: int,
        end_row: int,
        columns: Sequence[str] | None = None,
        batch_bytes: int = BATCH_BYTES,
        max_rows: int = MAX_BATCH_ROWS,
    ) -> Iterator[tuple[int, pa.Table]]:
        if first_row > 0 or end_row < 1:
            return
        schema = self.wanted(columns)
        if not schema.names:
            yield from empty_tables(0, 1)
            return
        values = self._read(os.fspath(path), schema.names)
        yield 0, pa.table({field.name: pa.array([values[field.name]], field.type) for field in schema})


# -- writing -----------------------------------------------------------------------------------------------------------
class BufferedWriter(Finishing, ABC):
    """A file being written in groups of rows of about `group_bytes` (decoded).

    The same tables in the same order give the same bytes.
    """

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
        """Write the buffered rows and the end of the file; return (rows, bytes of the file)."""
        if not self._closed:
            self._closed = True
            try:
                self._flush()
                self._write_end()
            finally:
                self._sink.close()
        return self._n_rows, os.path.getsize(self._path)

    def abort(self) -> None:
        """Close without an end: the file on disk is then not readable as a table."""
        self._closed, self._waiting = True, []
        self._sink.close()

    def _flush(self) -> None:
        if self._waiting:
            # Not combined into one chunk per column: that copy would double the memory for nothing.
            table = pa.concat_tables(self._waiting)
            self._waiting, self._n_waiting_bytes = [], 0
            self._write_group(table)


class RowChunks:
    """Passes rows to a writer in tables that end at multiples of a size.

    Groups of rows follow from the tables that a writer gets, and these must not follow from partitions.
    """

    def __init__(self, write: Callable[[pa.Table], Any]) -> None:
        self._write = write
        self._waiting: list[pa.Table] = []  # rows of one chunk
        self._chunk = 0

    def add(self, table: pa.Table, starts: npt.NDArray[np.int64]) -> None:
        """Append rows that begin at these bytes of the file."""
        chunks = starts // _CHUNK_BYTES
        firsts = [0, *(np.flatnonzero(np.diff(chunks)) + 1).tolist(), len(starts)]
        for first, last in itertools.pairwise(firsts):
            if chunks[first] != self._chunk:
                self.flush()
                self._chunk = int(chunks[first])
            self._waiting.append(table.slice(first, last - first))

    def flush(self) -> None:
        if self._waiting:
            # An empty table more: of a single one no copy would be made, and Arrow files show where a slice begins.
            self._write(pa.concat_tables([*self._waiting, self._waiting[0].slice(0, 0)]).combine_chunks())
        self._waiting, self._chunk = [], 0

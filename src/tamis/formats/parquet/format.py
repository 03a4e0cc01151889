"""Parquet files. Covers: describing, reading a range of rows with bounded memory, writing with bounded row groups.

Row groups of any size are streamed: one iterator per row group whose batch size follows the measured bytes per row
(`iter_batches` with a 1 MiB buffer took 33 MB where reading the table took 1,070). A corrupt page ends the stream with
`RowsFault` after every row before it was delivered. See also: `formats/table_block.py` (content hashes of rows).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tamis.errors import FormatError
from tamis.failures import is_memory_failure, reason_of
from tamis.formats.base import BATCH_BYTES, MAX_BATCH_ROWS, RowGroup, RowsFault, TableInfo
from tamis.formats.parquet.footer import plain_metadata
from tamis.formats.parquet.pages import damaged_page
from tamis.formats.table_files import BufferedWriter, empty_tables, named_columns, plain_types, split_table
from tamis.stores.opening import open_arrow, size_of

ROW_GROUP_BYTES = 32 * 10**6
_BUFFER_BYTES = 2**20
_COLUMN_BYTES = 4096  # of a column in a batch, at least: each takes 0.1 ms there, whatever is in it
_FIRST_BATCH_ROWS = 32
_ERRORS = (pa.ArrowException, OSError, ValueError, EOFError)
"""Exceptions of pyarrow for bad files (ArrowInvalid is a ValueError, Thrift and codec errors are OSError)."""


def describe(path: str | os.PathLike[str]) -> TableInfo:
    """Describe a file from its footer.

    Raises FormatError if the file is empty, truncated, corrupt or of another format.
    """
    with _open(path) as file:
        metadata = file.metadata
        row_groups, first_row = [], 0
        for i in range(metadata.num_row_groups):
            group = metadata.row_group(i)
            row_groups.append(RowGroup(first_row, group.num_rows, group.total_byte_size))
            first_row += group.num_rows
        schema, file_bytes = file.schema_arrow, size_of(path)
    if first_row != metadata.num_rows or any(group.n_rows < 0 for group in row_groups):
        raise FormatError(
            f"{os.fspath(path)}: the footer promises {metadata.num_rows} rows, its row groups hold {first_row}; "
            "the file is corrupt, write it again"
        )
    return TableInfo(metadata.num_rows, row_groups, named_columns(path, schema), file_bytes)


def column_bytes(path: str | os.PathLike[str], columns: Sequence[str]) -> list[int]:
    """Return the decoded bytes that each row group declares for some columns, nested ones as a whole."""
    wanted = set(columns)
    with _open(path) as file:
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        names = [column.path.partition(".")[0] for column in file.metadata.schema]
        chosen = [i for i, name in enumerate(names) if name in wanted]
        return [sum(group.column(i).total_uncompressed_size for i in chosen) for group in groups]


def read_schema(path: str | os.PathLike[str]) -> pa.Schema:
    with _open(path) as file:
        return file.schema_arrow


def open_file(path: str | os.PathLike[str], **options: Any) -> pq.ParquetFile:
    """Open a file like pq.ParquetFile, for any name: Arrow itself rejects names that are not UTF-8."""
    return _OwnFile(open_arrow(path), **options)


class _OwnFile(pq.ParquetFile):  # type: ignore[misc]
    """Closes the file that was opened for it."""

    def close(self, force: bool = True) -> None:
        super().close(force=force)


def write_table(table: pa.Table, path: str | os.PathLike[str], **options: Any) -> None:
    """Write a table like pq.write_table, for any file name."""
    with pa.OSFile(os.fsencode(path), "wb") as sink:
        pq.write_table(table, sink, **options)


def iter_rows(
    path: str | os.PathLike[str],
    first_row: int,
    end_row: int,
    columns: Sequence[str] | None = None,
    batch_bytes: int = BATCH_BYTES,
    max_rows: int = MAX_BATCH_ROWS,
) -> Iterator[tuple[int, pa.Table]]:
    """Yield (absolute first row, table) for exactly the rows [first_row, end_row), each of about `batch_bytes`.

    Only `columns` are read, in that order; a name that the file lacks is left out. Strings and binaries come out as
    large_string and large_binary, dictionaries as their values. A single row may exceed `batch_bytes`, and so may a
    read whose rows turn out larger than those before: `max_rows` bounds it.
    """
    with _open(path) as file:
        schema, metadata = file.schema_arrow, file.metadata
        metadata = plain_metadata(path, schema) or metadata
        present = set(schema.names)
        names = list(schema.names) if columns is None else [name for name in columns if name in present]
        batch_bytes = max(batch_bytes, _COLUMN_BYTES * len(names))
        group_first = 0
        for i in range(metadata.num_row_groups):
            group_end = group_first + metadata.row_group(i).num_rows
            if group_first < end_row and group_end > first_row:
                rows = (max(first_row, group_first) - group_first, min(end_row, group_end) - group_first)
                group = _GroupReader(path, metadata, i, group_first, names, batch_bytes, max_rows)
                yield from group.tables(*rows)
            group_first = group_end


class _GroupReader:
    """Rows of one row group, with a batch size that follows the data and a slow second pass around a fault."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        metadata: pq.FileMetaData,
        index: int,
        group_first: int,
        columns: list[str],
        batch_bytes: int,
        max_rows: int,
    ) -> None:
        self._path, self._metadata, self._index = path, metadata, index
        self._columns, self._batch_bytes, self._max_rows = columns, batch_bytes, max_rows
        self._group_first, self._group_end = group_first, group_first + metadata.row_group(index).num_rows
        self._n_requested = 0
        """Rows of the read in progress, where a failure is."""
        self._skipping = False
        """The read in progress is of rows before the first wanted one (a row group has no entry in the middle)."""

    def tables(self, start: int, end: int) -> Iterator[tuple[int, pa.Table]]:
        """Yield rows [start, end) of the group as (absolute first row, table)."""
        next_row, max_rows = start, self._max_rows
        while True:
            try:
                for at_row, table in self._pass(next_row, end, max_rows):
                    yield self._group_first + at_row, table
                    next_row = at_row + table.num_rows
                return
            except _ERRORS as exc:
                damage = (
                    damaged_page(self._path, self._metadata, self._index, self._columns)
                    if is_memory_failure(exc)
                    else None
                )
                reason = damage or reason_of(exc)
                if self._n_requested <= 1 or self._skipping:
                    raise RowsFault(self._group_first + next_row, reason, self._group_end) from exc
                # Reading again in finer steps moves up to the fault: 16 times finer on each pass, down to one row.
                max_rows = max(1, self._n_requested // 16)

    def _pass(self, start: int, end: int, max_rows: int) -> Iterator[tuple[int, pa.Table]]:
        if not self._columns:
            yield from empty_tables(start, end)
            return
        n_rows, next_row = _FIRST_BATCH_ROWS, 0
        self._ask(n_rows, next_row, start, max_rows)
        with _open(self._path, self._metadata) as file:
            batches = file.iter_batches(
                self._n_requested, row_groups=[self._index], columns=self._columns, use_threads=False
            )
            for batch in batches:
                first, last = max(start - next_row, 0), min(end - next_row, batch.num_rows)
                if first < last:
                    table = plain_types(pa.Table.from_batches([batch.slice(first, last - first)]).select(self._columns))
                    yield from split_table(next_row + first, table, self._batch_bytes)
                next_row += batch.num_rows
                if next_row >= end:
                    return
                # Half of `batch_bytes` at the rate just seen, at most 4 times as many rows as before.
                bytes_per_row = max(1.0, batch.nbytes / max(1, batch.num_rows))
                n_rows = max(1, min(int(self._batch_bytes / 2 / bytes_per_row), n_rows * 4, MAX_BATCH_ROWS))
                self._ask(n_rows, next_row, start, max_rows)
                # Takes effect on the next read of the running iterator: no restart to change the size.
                file.reader.set_batch_size(self._n_requested)
        raise RowsFault(
            self._group_first + next_row, f"the row group ends after {next_row} rows, {end} expected", self._group_end
        )

    def _ask(self, n_rows: int, next_row: int, start: int, max_rows: int) -> None:
        self._skipping = next_row < start
        self._n_requested = min(n_rows, min(start - next_row, self._max_rows) if self._skipping else max_rows)


def _open(path: str | os.PathLike[str], metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """Open a file; `metadata` spares the parsing of the footer, which is slow with many row groups."""
    try:
        file = open_file(
            path, metadata=metadata, pre_buffer=False, buffer_size=_BUFFER_BYTES, page_checksum_verification=True
        )
        _ = file.schema_arrow.names  # raises where Arrow has no type for a column
        return file
    except _ERRORS as exc:
        reason_of(exc)  # raises where it is missing, not readable, or there is no memory
        raise FormatError(f"{os.fspath(path)}: not a readable Parquet file: {exc}") from exc


class TableWriter(BufferedWriter):
    """A Parquet file being written in row groups of about `group_bytes` (decoded).

    Memory: one row group decoded, and its encoded pages.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: pa.Schema,
        compression: str = "zstd",
        level: int | None = 3,
        row_group_bytes: int = ROW_GROUP_BYTES,
        row_group_rows: int | None = None,
    ) -> None:
        super().__init__(path, schema, row_group_bytes)
        self._row_group_rows = row_group_rows
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression=compression,
            compression_level=level if compression in ("zstd", "gzip", "brotli") else None,
            write_page_checksum=True,
        )

    def _write_group(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=self._row_group_rows or max(1, table.num_rows))

    def _write_end(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        super().abort()
        self._writer.is_open = False  # or its finaliser would try to write a footer

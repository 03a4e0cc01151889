"""Formats of rows whose columns are the same in every file: texts, videos and images. Two bases, whose methods are the names of a format.

A format makes one object of them and calls its methods by the names of `base.TableFormat` (text/format.py shows how).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tamis.formats.base import BATCH_BYTES, MAX_BATCH_ROWS, RowGroup, TableInfo
from tamis.formats.table_files import counted

Path = str | os.PathLike[str]


class FixedColumns:
    """What follows from the schema alone."""

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
    """A file is one row. `read(path, names)` gives the values of the columns of these names, or raises RowsFault;
    `row_bytes(path, file_bytes)` says how large the row is, about; `size_of(path)` how large the file is."""

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
        wanted = self.wanted(columns)
        if not wanted.names:
            yield from counted(0, 1)
            return
        values = self._read(os.fspath(path), wanted.names)
        yield 0, pa.table({field.name: pa.array([values[field.name]], field.type) for field in wanted})

"""An Arrow table as the origin of rows (Parquet input, results of readers that users wrote)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tamis.formats.row_bytes import row_bytes
from tamis.formats.row_hashes import row_hashes
from tamis.formats.schema.run_schema import NO_FIELDS
from tamis.tasks.columns.exact import shown, taken

Array = np.ndarray[Any, Any]


class TableBlock:
    """Rows of a table; the counterpart of JsonlBlock for input that is decoded already."""

    is_typed = True  # types are those of the input, not of the values that happen to be here
    is_parsed = True
    keeps_bytes = False

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.n_rows = len(table)
        self.record_bytes: Array | None = None  # of what each row stands for, where that is not the row itself
        # Asking the table goes through all names.
        self._at = {name: i for i, name in enumerate(table.column_names) if name != NO_FIELDS}
        # Input file and row number, by row.
        self.places: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None = None

    def field_names(self, rows: Array | None = None) -> list[str]:
        """Columns are declared: every row has them all."""
        return list(self._at)

    def column(self, name: str) -> pa.Array:
        if name not in self._at:
            return pa.nulls(self.n_rows)
        return shown(self._chunk(name))

    def exact(self, name: str, rows: Array) -> pa.Array:
        """Return one column of some rows (null where a row is -1), with every value preserved exactly."""
        if name not in self._at:
            return pa.nulls(len(rows))
        return taken(self._chunk(name), rows)

    def _chunk(self, name: str) -> pa.Array:
        chunks = self.table.column(self._at[name])
        return chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()

    def narrow(self, rows: Array) -> None:
        """Do nothing: columns are decoded one by one, each as a whole, so there is nothing to save."""

    def column_of(self, name: str, rows: Array) -> pa.Array:
        return self.column(name).take(pa.array(rows))

    def kinds(self, name: str) -> None:
        """Columns say it."""

    def sizes(self, rows: Array) -> Array:
        if self.record_bytes is not None:
            return np.where(rows >= 0, self.record_bytes[np.maximum(rows, 0)], 0)
        return np.where(rows >= 0, self.table.nbytes // max(1, self.n_rows), 0)

    def lengths(self, rows: Array) -> Array:
        each = row_bytes(self.table) if self.record_bytes is None else self.record_bytes
        return np.where(rows >= 0, each[np.maximum(rows, 0)], 0) if len(each) else np.zeros(len(rows), np.int64)

    def raw(self, row: int) -> None:
        """Rows are no bytes."""

    def identity(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        return row_hashes(self.table)

"""The Parquet half of `tamis split`: rows over chunks, in bounded memory. Imports pyarrow, hence a file of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

from tamis.cli.data.split_chunks import Chunks, Done, Limit, OpenChunk
from tamis.formats.base import RowsFault
from tamis.formats.compression.codecs import CODECS
from tamis.formats.parquet.format import TableWriter, describe, iter_rows, open_file

_PARQUET_NAMES = {codec.name: codec.parquet_name for codec in CODECS.values() if codec.parquet_name} | {"none": "none"}


def split_rows(source: Path, chunks: Chunks, limit: Limit, compress: str | None) -> Done:
    """Split all readable rows of `source` into chunks, in order.

    Rows after a corrupt page are skipped up to the next row group and reported.
    """
    from tamis.errors import UsageError

    if compress is not None and compress not in _PARQUET_NAMES:
        raise UsageError(f"--compress: Parquet files can use {', '.join(_PARQUET_NAMES)}, got {compress!r}")
    info = describe(source)
    schema, codec = _layout(source)
    done = Done(unit="row")
    with _RowWriter(chunks, limit, schema, _PARQUET_NAMES[compress] if compress else codec, done) as writer:
        at = 0
        while at < info.n_rows:
            try:
                for _, table in iter_rows(source, at, info.n_rows):
                    writer.feed(table.cast(schema))
                break
            except RowsFault as exc:
                done.faults.append(f"rows {exc.row:,} to {exc.next_row - 1:,} cannot be read ({exc.reason})")
                at = exc.next_row
        writer.close_chunk()
    done.paths = chunks.publish()
    return done


def _layout(source: Path) -> tuple[pa.Schema, str]:
    """Return the schema to write and the codec of the first column chunk.

    Dictionary columns get the type of their values; all other columns keep theirs.
    """
    with open_file(source) as file:
        schema, metadata = file.schema_arrow, file.metadata
        codec = (
            metadata.row_group(0).column(0).compression if metadata.num_row_groups and metadata.num_columns else "ZSTD"
        )
    fields = [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema]
    return pa.schema(fields, metadata=schema.metadata), "none" if codec == "UNCOMPRESSED" else codec.lower()


class _RowWriter(OpenChunk):
    def __init__(self, chunks: Chunks, limit: Limit, schema: pa.Schema, codec: str, done: Done) -> None:
        super().__init__(chunks, limit, done)
        self.schema, self.codec = schema, codec
        self._path = Path()

    def feed(self, table: pa.Table) -> None:
        while table.num_rows:
            n_rows = self._fitting(table)
            if n_rows == 0 and self._n_rows:
                self.close_chunk()
                continue
            self._write(table.slice(0, max(n_rows, 1)))
            table = table.slice(max(n_rows, 1))

    def _fitting(self, table: pa.Table) -> int:
        """Return the largest number of leading rows of `table` that fits into the open chunk."""
        room_bytes = self.limit.n_bytes - self._n_bytes
        high = table.num_rows if self.limit.n_rows is None else min(table.num_rows, self.limit.n_rows - self._n_rows)
        low = 0
        while low < high:
            middle = (low + high + 1) // 2
            if table.slice(0, middle).nbytes <= room_bytes:
                low = middle
            else:
                high = middle - 1
        return low

    def _write(self, table: pa.Table) -> None:
        if self._out is None:
            self._path = self.chunks.next_path()
            self._out = TableWriter(self._path, self.schema, self.codec)
        self._out.write(table)
        self._count(table.nbytes, table.num_rows)

    def _sync(self) -> None:
        self._out.close()
        with open(self._path, "rb") as file:
            os.fsync(file.fileno())

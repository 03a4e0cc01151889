"""A whole file as one batch, for small results and for use outside of a run."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tamis.errors import FormatError
from tamis.formats.compression import StreamReader
from tamis.formats.jsonl import JsonlBlock
from tamis.formats.names import is_parquet
from tamis.formats.parquet import describe, iter_rows
from tamis.formats.tables import TableBlock
from tamis.tasks import DocumentBatch


def is_parquet_file(path: str) -> bool:
    """By its name, or by how it begins: a reader may be given files of any name."""
    if is_parquet(path):
        return True
    with open(path, "rb") as file:
        return file.read(4) == b"PAR1"


def read_whole_file(path: str) -> DocumentBatch:
    """All documents of a JSONL or Parquet file. Raises FormatError on the first bad record."""
    if is_parquet_file(path):
        info = describe(path)
        tables = [t for _, t in iter_rows(path, 0, info.n_rows)]
        table = pa.concat_tables(tables).combine_chunks() if tables else pa.table({})
        origin: JsonlBlock | TableBlock = TableBlock(table.replace_schema_metadata(None))
    else:
        with StreamReader.open(path) as stream:
            data = b"".join(iter(lambda: stream.read(1 << 20), b""))
        block = JsonlBlock.parse(np.frombuffer(data.removeprefix(b"\xef\xbb\xbf"), np.uint8))
        if block.bad:
            start, _, reason = block.bad[0]
            raise FormatError(
                f"{path}: record at byte {start}: {reason}; run a pipeline over it to set bad records aside"
            )
        origin = block
    return DocumentBatch.over(origin, np.arange(origin.n_rows))

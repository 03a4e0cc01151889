"""A whole file as one batch, for small results and for use outside of a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tamis.errors import FormatError
from tamis.formats.compression.streams import StreamReader
from tamis.formats.jsonl.block import JsonlBlock
from tamis.formats.registry import TABLES, holds_rows, record_format, table_format
from tamis.formats.table_block import TableBlock
from tamis.stores.opening import open_input
from tamis.tasks import DocumentBatch

MAX_RECORD_BYTES = 64 << 20
_REMEDY = "run a pipeline over it to set bad records aside"


def read_whole_file(path: str, formats: Sequence[str] = ()) -> DocumentBatch:
    """Read all documents of a file; raise FormatError on the first bad record.

    `formats`: the formats that a reader declares for the file.
    """
    if (records := record_format(path)) is not None:
        with open_input(path) as raw:
            decoded, _ = records.first_documents(raw, path, 1 << 62, MAX_RECORD_BYTES)
        if decoded.bad:
            frame = decoded.bad[0][1]
            raise FormatError(f"{path}: record at byte {frame.offset}: {frame.reason}; {_REMEDY}")
        assert decoded.table is not None
        return DocumentBatch.over(TableBlock(decoded.table), np.arange(len(decoded.table)))
    if holds_rows(path) or (formats and all(name in TABLES for name in formats)):
        rows = table_format(path)
        tables = [t for _, t in rows.iter_rows(path, 0, rows.describe(path).n_rows)]
        table = pa.concat_tables(tables).combine_chunks() if tables else pa.table({})
        origin: JsonlBlock | TableBlock = TableBlock(table.replace_schema_metadata(None))
    else:
        with StreamReader.open(path) as stream:
            data = b"".join(iter(lambda: stream.read(1 << 20), b""))
        block = JsonlBlock.parse(np.frombuffer(data.removeprefix(b"\xef\xbb\xbf"), np.uint8))
        if block.bad:
            start, _, reason = block.bad[0]
            raise FormatError(f"{path}: record at byte {start}: {reason}; {_REMEDY}")
        origin = block
    return DocumentBatch.over(origin, np.arange(origin.n_rows))

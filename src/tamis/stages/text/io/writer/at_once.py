"""A batch written at once, by a call of a writer's `process` outside of a run."""

from __future__ import annotations

from dataclasses import dataclass

from tamis._lazy import np, pa
from tamis.stages.text.io.writer.base import BaseWriter
from tamis.tasks import ROW_ID, DocumentBatch


@dataclass(repr=False)
class WriteAtOnce(BaseWriter):
    """`format`: "jsonl" or "parquet"; `codec` and `compression` as the writer that is called has them."""

    format: str = "jsonl"
    codec: str | None = None
    compression: str = "zstd"

    def write_data(self, task: DocumentBatch, file_path: str) -> None:
        write_batch(task, file_path, self.format, self.codec, self.compression)


def write_batch(batch: DocumentBatch, path: str, kind: str, codec: str | None, compression: str) -> None:
    """Write the documents of a batch to one new file."""
    if kind == "parquet":
        from tamis.formats.parquet import format as parquet

        parquet.write_table(_table(batch), path, compression=compression)
        return
    from tamis.formats.compression.streams import StreamWriter
    from tamis.formats.jsonl.encode import encode_jsonl

    with StreamWriter(path, codec) as out:
        out.write(encode_jsonl(_with_records(batch)).data)


def _table(batch: DocumentBatch) -> pa.Table:
    table = batch.to_pyarrow()
    return table.drop_columns([ROW_ID]) if ROW_ID in table.column_names else table


def _with_records(batch: DocumentBatch) -> DocumentBatch:
    if batch.lineage is not None:
        return batch
    from tamis.formats.table_block import TableBlock

    return DocumentBatch.over(TableBlock(_table(batch)), np.arange(batch.num_items), batch.dataset_name)

"""AddId: ids that depend only on the position of a document in the input, not on partitions, workers or block size."""

from __future__ import annotations

from typing import Any

from tamis._dataclasses import dataclass
from tamis._lazy import np, pa, pc
from tamis.errors import PipelineError, UsageError
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch


@dataclass(repr=False)
class AddId(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Writes an id into `id_field`: `{prefix_}{number of the file}_{offset in it}`.

    The offset is that of the record's first byte (decoded, for compressed files), or the row number of a Parquet file.
    Several documents of one record (from a splitter) are numbered: `..._0`, `..._1`. The id of a document without a
    record is the 128-bit hash that identifies it in the engine, and `{id of the task}_{number}` outside of runs. A
    document that already has an id is an error unless `overwrite`.
    """

    id_field: str
    id_prefix: str | None = None
    overwrite: bool = False
    name: str = "add_id"
    columns_in = ()
    columns_out = ("id_field",)

    def __post_init__(self) -> None:
        if not isinstance(self.id_field, str) or not self.id_field:
            raise UsageError(f"AddId(id_field=...): expected the name of a field, got {self.id_field!r}")

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        if not self.overwrite and self.id_field in batch.get_columns():
            n = batch.num_items - batch.column(self.id_field).null_count
            if n:
                raise PipelineError(
                    f"{self.name}: {n} of {batch.num_items} documents already have a field {self.id_field!r}; choose "
                    "another id_field, or replace it with overwrite=True"
                )
        return batch.with_column(self.id_field, self._ids(batch))

    def _ids(self, batch: DocumentBatch) -> pa.Array:
        files, offsets = batch.places()
        number = pc.utf8_lpad(pa.array(np.maximum(files, 0)).cast(pa.large_string()), width=6, padding="0")
        ids = _join(number, pa.array(offsets).cast(pa.large_string()))
        unknown = files < 0
        if unknown.any():
            ids = pc.if_else(pa.array(unknown), pa.array(_identities(batch), pa.large_string()), ids)
        group, rank = _ranks(ids)
        shared = np.bincount(group, minlength=1)[group] > 1
        if shared.any():
            ids = pc.if_else(pa.array(shared), _join(ids, pa.array(rank).cast(pa.large_string())), ids)
        return ids if not self.id_prefix else _join(pa.scalar(self.id_prefix, pa.large_string()), ids)


def _join(left: Any, right: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(left, right, pa.scalar("_", pa.large_string()))


def _identities(batch: DocumentBatch) -> list[str]:
    """Return the identity of every document in hexadecimal; outside of runs the id of the task and a number."""
    if not batch.is_identified:
        return [f"{batch.task_id}_{i}" for i in range(batch.num_items)]
    return [f"{hi:016x}{lo:016x}" for hi, lo in zip(*(half.tolist() for half in batch.identity), strict=True)]


def _ranks(ids: pa.Array) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return for each id the number of its group of equal ids, and its position in that group."""
    group = ids.dictionary_encode().indices.to_numpy()
    order = np.argsort(group, kind="stable")
    sorted_group = group[order]
    first = np.flatnonzero(np.diff(sorted_group, prepend=-1))
    rank = np.empty(len(group), np.int64)
    rank[order] = np.arange(len(group)) - np.repeat(first, np.diff(np.append(first, len(group))))
    return group, rank

"""ColumnKinds: the kinds of JSON values in each field of a batch, from which the types of frames follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tamis._dataclasses import dataclass
from tamis._lazy import np, pa
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch
from tamis.tasks.columns.frame_types import KindCount

_NAME, _FLAGS, _PRESENT, _RECORDS = "name", "flags", "n_present", "n_records"


@dataclass(repr=False)
class ColumnKinds(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Returns one row for each field of JSON records: its kinds, and how many records have it.

    Columns with a type of their own (those of Parquet files) are left out.
    """

    name: str = "column_kinds"

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        kinds = _kinds(batch)
        table = {
            _NAME: pa.array(["", *kinds], pa.large_string()),  # the first row counts records that may have no field
            _FLAGS: pa.array([0, *(k.flags for k in kinds.values())], pa.int64()),
            _PRESENT: pa.array([0, *(k.n_present for k in kinds.values())], pa.int64()),
            _RECORDS: pa.array([batch.num_items, *(0 for _ in kinds)], pa.int64()),
        }
        return DocumentBatch(batch.dataset_name, pa.table(table))


def _kinds(batch: DocumentBatch) -> dict[str, KindCount]:
    lineage = batch.lineage
    if lineage is None or lineage.origin.is_typed:
        return {}
    rows = np.unique(lineage.rows)
    return {name: lineage.origin.count_kinds(name, rows) for name in batch.get_columns()}


def counted(batches: Iterable[DocumentBatch]) -> Iterable[tuple[int, Mapping[str, KindCount]]]:
    """Return the counts that batches of this stage hold, as `joined_types` takes them."""
    for batch in batches:
        kinds: dict[str, KindCount] = {}
        rows = zip(*(batch.values(name) for name in (_NAME, _FLAGS, _PRESENT)), strict=True)
        for is_field, (name, flags, n_present) in enumerate(rows):
            if is_field and n_present:
                kinds.setdefault(name, KindCount()).add(KindCount(flags, n_present))
        yield sum(batch.values(_RECORDS)), kinds

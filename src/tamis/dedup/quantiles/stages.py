"""The stages of choosing by scores: records of scores in the first pass, and buckets or drops in the last."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from tamis._lazy import np, pa, pc
from tamis.dedup.stages import PositionTableStage, without
from tamis.stages.base import ProcessingStage
from tamis.stages.traits import StageTraits
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

NAME_BYTES = 32
"""Of the name of a group in records; the end of a longer one is replaced by its hash."""


@dataclass(repr=False)
class ScoreRecords(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Replaces documents by records: `file`, `offset`, `weight`, `score_0`, ... and `group`, the value of `by`.

    Scores are 32-bit floats, NaN where a field has no number.
    """

    scores: list[str]
    weight: str = "documents"
    by: str | None = None
    text_field: str = "text"
    tokens_field: str | None = None
    name: str = "score_records"

    def inputs(self) -> Any:
        fields = [*self.scores, self.by, self.tokens_field if self.weight == "tokens" else None]
        needs_text = self.weight == "bytes" or (self.weight == "tokens" and self.tokens_field is None)
        return ["data"], [*(f for f in fields if f), *([self.text_field] if needs_text else [])]

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.dedup.keys import numbers_of, position_columns, record_batch

        columns = position_columns(batch) | {"weight": self._weights(batch)}
        for k, name in enumerate(self.scores):
            columns[f"score_{k}"] = numbers_of(batch.column(name)).astype(np.float32)
        records = record_batch(batch, columns)
        if self.by is None:
            return records
        names = [_short(value) for value in batch.values(self.by)]
        group = pa.array(names, pa.binary(NAME_BYTES))
        return records.with_column("group", group).select([*columns, "group"])

    def _weights(self, batch: DocumentBatch) -> Array:
        from tamis.dedup.keys import numbers_of

        if self.weight == "documents":
            return np.ones(batch.num_items, np.int64)
        if self.weight == "tokens" and self.tokens_field is not None:
            counts = numbers_of(batch.column(self.tokens_field))
            weights: Array = np.nan_to_num(np.clip(counts, 0, 2.0**40)).astype(np.int64)
            return weights
        sizes = pc.fill_null(pc.binary_length(batch.texts(self.text_field)), 0)
        n_bytes: Array = np.asarray(sizes.to_numpy(zero_copy_only=False), np.int64)
        if self.weight == "tokens":
            n_bytes = (n_bytes + 3) // 4
        return n_bytes


def _short(value: Any) -> bytes:
    """Return the name of a group in NAME_BYTES bytes; a missing value is the group without a name."""
    import hashlib

    raw = ("" if value is None else str(value)).replace("\0", " ").encode("utf-8", "replace")
    if len(raw) > NAME_BYTES:
        raw = (
            raw[:15].decode("utf-8", "ignore").encode()
            + b"~"
            + hashlib.blake2b(raw, digest_size=8).hexdigest().encode()
        )
    return raw.ljust(NAME_BYTES, b"\0")


@dataclass(repr=False)
class AssignBuckets(PositionTableStage):
    """Adds a field with the bucket that a table lists for each document, null for those without a score."""

    table: str
    bucket_field: str = "quality_bucket"
    name: str = "buckets"
    traits: ClassVar[StageTraits] = StageTraits(only_adds=True)
    columns_out = ("bucket_field",)

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        rows, (buckets,) = self.listed(batch, "bucket")
        found = np.full(batch.num_items, -1, np.int32)
        found[rows] = buckets
        return batch.with_column(self.bucket_field, pa.array(found, mask=found < 0))


@dataclass(repr=False)
class DropBelow(PositionTableStage):
    """Drops the documents that a table lists: their score is below that of the documents that fit into the limit."""

    table: str
    limits: dict[str, Any] = field(default_factory=dict)
    name: str = "keep_top"

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        rows, (scores,) = self.listed(batch, "score")
        values = [None if score != score else float(f"{score:.6g}") for score in scores.tolist()]
        self._note_drops(batch.serial[rows], "below_the_top", values, self.limits)
        return without(batch, rows)

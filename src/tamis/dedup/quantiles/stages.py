"""The stages of choosing by scores: records of scores in the first pass, and buckets or drops in the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

from tamis._dataclasses import dataclass
from tamis._lazy import np, pa, pc
from tamis.dedup.stages import PositionTableStage, without
from tamis.stages.base import ProcessingStage
from tamis.stages.traits import StageTraits
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

_SEED = 0x6D6978
NAME_BYTES = 32
"""Bound for the name of a group in records; the end of a longer one is replaced by its hash."""


@dataclass(repr=False)
class ScoreRecords(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Replaces documents by records: `file`, `offset`, `weight`, `score_0`, ... and `group`, the values of `by`.

    Scores are 32-bit floats, NaN where a field has no number. `draws`: also `draw`, a number drawn from the text.
    """

    scores: list[str]
    weight: str = "documents"
    by: list[str] = field(default_factory=list)
    text_field: str = "text"
    tokens_field: str | None = None
    draws: bool = False
    name: str = "score_records"

    def inputs(self) -> Any:
        fields = [*self.scores, *self.by, self.tokens_field if self.weight == "tokens" else None]
        needs_text = self.draws or self.weight == "bytes" or (self.weight == "tokens" and self.tokens_field is None)
        return ["data"], [*(f for f in fields if f), *([self.text_field] if needs_text else [])]

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.dedup.keys import numbers_of, position_columns, record_batch

        weights = weights_of(batch, self.weight, self.text_field, self.tokens_field)
        columns = position_columns(batch) | {"weight": weights}
        for k, name in enumerate(self.scores):
            columns[f"score_{k}"] = numbers_of(batch.column(name)).astype(np.float32)
        if self.draws:
            columns["draw"] = self._draws(batch)
        records = record_batch(batch, columns)
        if not self.by:
            return records
        names = [_short(values) for values in zip(*(batch.values(name) for name in self.by), strict=True)]
        group = pa.array(names, pa.binary(NAME_BYTES))
        return records.with_column("group", group).select([*columns, "group"])

    def _draws(self, batch: DocumentBatch) -> Array:
        from tamis.kernels.buffers import string_buffers
        from tamis.kernels.records.hash128 import hash_arrow_strings

        parts = string_buffers(batch.texts(self.text_field))
        drawn, _ = hash_arrow_strings(parts.offsets, parts.data, parts.validity, _SEED)
        draws: Array = np.minimum(drawn >> np.uint64(32), np.uint64(0xFFFFFFFE)).astype(np.uint32)
        return draws


def weights_of(batch: DocumentBatch, weight: str, text_field: str, tokens_field: str | None) -> Array:
    """Return what each document counts: 1, the bytes of its text, or its tokens.

    Tokens are in a field, or a quarter of the bytes.
    """
    from tamis.dedup.keys import numbers_of

    if weight == "documents":
        return np.ones(batch.num_items, np.int64)
    if weight == "tokens" and tokens_field is not None:
        counts = numbers_of(batch.column(tokens_field))
        weights: Array = np.nan_to_num(np.clip(counts, 0, 2.0**40)).astype(np.int64)
        return weights
    sizes = pc.fill_null(pc.binary_length(batch.texts(text_field)), 0)
    n_bytes: Array = np.asarray(sizes.to_numpy(zero_copy_only=False), np.int64)
    if weight == "tokens":
        n_bytes = (n_bytes + 3) // 4
    return n_bytes


def _short(values: Sequence[Any]) -> bytes:
    """Return the name of a group, its values with "/" between, in NAME_BYTES bytes; a missing value has no name."""
    import hashlib

    raw = "/".join("" if v is None else str(v) for v in values).replace("\0", " ").encode("utf-8", "replace")
    if len(raw) > NAME_BYTES:
        raw = (
            raw[:15].decode("utf-8", "ignore").encode()
            + b"~"
            + hashlib.blake2b(raw, digest_size=8).hexdigest().encode()
        )
    return raw.ljust(NAME_BYTES, b"\0")


@dataclass(repr=False)
class AddScores(PositionTableStage):
    """Adds the scores that a table lists for each document as fields, null for those that it does not list."""

    table: str
    fields: list[str] = field(default_factory=list)
    name: str = "scores"
    traits: ClassVar[StageTraits] = StageTraits(only_adds=True)

    def outputs(self) -> Any:
        return ["data"], list(self.fields)

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        if not self.fields:
            return batch
        rows, columns = self.listed(batch, *(f"score_{k}" for k in range(len(self.fields))))
        for name, scores in zip(self.fields, columns, strict=True):
            values = np.full(batch.num_items, np.nan, np.float32)
            values[rows] = scores
            batch = batch.with_column(name, pa.array(values, mask=np.isnan(values)))
        return batch


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
        numbers = np.full(batch.num_items, -1, np.int32)
        numbers[rows] = buckets
        return batch.with_column(self.bucket_field, pa.array(numbers, mask=numbers < 0))


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


@dataclass(repr=False)
class WriteCopies(PositionTableStage):
    """Writes each document as often as a table says, and once those that it does not list.

    `copy_field` gets the number of the copy, from 0.
    """

    table: str
    copy_field: str | None = None
    name: str = "mix_by_field"
    columns_out = ("copy_field",)

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        rows, (copies,) = self.listed(batch, "copies")
        times = np.ones(batch.num_items, np.int64)
        times[rows] = copies
        dropped = np.flatnonzero(times == 0)
        self._note_drops(batch.serial[dropped], "not_in_the_mix", None, {"copies": 0})
        mixed = batch if bool((times == 1).all()) else batch.take(np.repeat(np.arange(batch.num_items), times))
        if self.copy_field is None:
            return mixed
        first = np.repeat(np.cumsum(times) - times, times)
        return mixed.with_column(self.copy_field, pa.array((np.arange(len(first)) - first).astype(np.int32)))

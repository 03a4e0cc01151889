"""The first pass of semantic deduplication: one unit vector for every document, in record files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tamis._dataclasses import dataclass
from tamis._lazy import np, pa, pc
from tamis.errors import PipelineError, UsageError
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    Floats = np.ndarray[Any, np.dtype[np.float32]]

VECTOR = "vector"
# What the product of a vector and itself may be away from 1 in float32 (9e-7 was measured for 384 numbers): equal ones
# are found with eps=0, too.
ROUNDING = 2e-6
_NORMALIZED_NUMBERS = 1 << 17  # at a time: what is computed with them stays in the cache


@dataclass(repr=False)
class DocumentVectors(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Replaces documents by records of their location, length, rank and unit vector.

    `length` is the bytes of the record, -1 without a vector; vectors are float32. If no document of a batch has an
    embedding, the size of vectors is unknown, and there is no column of them.

    A document whose embedding is null, empty or all zeros has no direction and is never a duplicate. Embeddings of
    different sizes are an error, which names the document. `rank_field`: the number that ranks documents; of
    duplicates the one with the smallest rank is kept.
    """

    embedding_field: str = "embeddings"
    dimension: int | None = None
    rank_field: str | None = None
    descending: bool = False
    name: str = "document_vectors"

    def inputs(self) -> Any:
        return ["data"], [self.embedding_field, *([self.rank_field] if self.rank_field else [])]

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        from tamis.dedup.keys import position_columns, record_batch
        from tamis.formats.jsonl.record_index import record_columns

        places = position_columns(batch)
        # A field that no document at all has is reported before (engine/worker/fields.py); in some partition it may be
        # missing.
        there = self.embedding_field in batch.get_columns()
        column = batch.column(self.embedding_field) if there else pa.nulls(batch.num_items)
        vectors, has_one = unit_vectors(column, self.embedding_field, self.dimension)
        width = vectors.shape[1] * 4
        length = np.zeros(len(vectors), np.int64) if batch.lineage is None else batch.lineage.lengths()
        columns = places | {"length": np.where(has_one, length, -1), "rank": self._ranks(batch)} | record_columns(batch)
        records = record_batch(batch, columns)
        if not width:
            return records
        raw = pa.Array.from_buffers(pa.binary(width), len(vectors), [None, pa.py_buffer(np.ascontiguousarray(vectors))])
        return records.with_column(VECTOR, raw)

    def _ranks(self, batch: DocumentBatch) -> Any:
        if self.rank_field is None:
            return np.zeros(batch.num_items, np.uint64)
        return rank_numbers(batch.column(self.rank_field), self.rank_field, self.descending)


def unit_vectors(column: pa.Array, field: str, dimension: int | None) -> tuple[Floats, np.ndarray[Any, Any]]:
    """Return rows of length 1 (zeros without an embedding), and which rows have one. Lists must be equally long.

    Rows have no numbers at all where no list has any and no `dimension` is given.
    """
    from tamis.kernels import spare

    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros((len(column), dimension or 0), np.float32), np.zeros(len(column), bool)
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise PipelineError(f"field {field!r}: expected lists of numbers, got {kind}")
    try:
        lists = column.cast(pa.large_list(pa.float32()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        raise PipelineError(f"field {field!r}: expected lists of numbers, got {kind} ({exc})") from None
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    width = _common_size(sizes, field, dimension)
    values = pc.list_flatten(lists)
    if values.null_count:
        raise PipelineError(f"field {field!r}: an embedding has null among its numbers")
    rows = np.flatnonzero(sizes)
    matrix = values.to_numpy(zero_copy_only=False).reshape(len(rows), width)
    is_whole = len(rows) == len(column)
    out = spare.take("vectors", len(column) * width * 4).view(np.float32).reshape(len(column), width)
    if not is_whole:
        out[:] = 0
    norms = np.zeros(len(column))
    per_step = max(1, _NORMALIZED_NUMBERS // max(1, width))
    for first in range(0, len(rows), per_step):
        x = matrix[first : first + per_step]
        norm = np.sqrt(np.einsum("ij,ij->i", x, x, dtype=np.float64))
        if not np.isfinite(norm).all():
            raise PipelineError(f"field {field!r}: an embedding has a number that is not finite")
        divisor = np.where(norm > 0, norm, 1.0)[:, None].astype(np.float32)
        if is_whole:
            np.divide(x, divisor, out=out[first : first + len(x)])
            norms[first : first + len(x)] = norm
        else:
            out[rows[first : first + len(x)]] = x / divisor
            norms[rows[first : first + len(x)]] = norm
    return out, norms > 0


def _common_size(sizes: np.ndarray[Any, Any], field: str, dimension: int | None) -> int:
    """Return the one size of all lists that are not empty; raise PipelineError if they differ."""
    distinct = sorted({int(n) for n in np.unique(sizes)} - {0})
    if len(distinct) > 1 or (dimension is not None and distinct not in ([], [dimension])):
        expected = dimension if dimension is not None else distinct[0]
        row = int(np.flatnonzero((sizes != 0) & (sizes != expected))[0])
        raise PipelineError(
            f"field {field!r}: document {row} of this batch has {int(sizes[row])} numbers, expected {expected}"
        )
    return distinct[0] if distinct else (dimension or 0)


def least_cosine(eps: float) -> float:
    """Return the cosine from which documents are duplicates; an eps below ROUNDING means equal vectors.

    >>> least_cosine(0.25), least_cosine(0)
    (0.75, 0.999998)
    """
    return 1.0 - max(float(eps), ROUNDING)


def check_fraction(owner: str, fraction: float | None) -> None:
    """Validate the share of documents that clusters are computed from, if it is given."""
    if fraction is not None and (isinstance(fraction, bool) or not 0 < float(fraction) <= 1):
        raise UsageError(f"{owner}fit_data_fraction: expected a number above 0, up to 1, got {fraction!r}")


def nothing_to_fit(fraction: float | None, n: int) -> str:
    """Return the message for the case that a share of `n` embeddings is none."""
    return (
        f"fit_data_fraction={fraction} chose none of the {n:,} documents that have an embedding; give a larger one, "
        "or leave it out"
    )


def rank_numbers(column: pa.Array, field: str, descending: bool) -> Any:
    """Return one uint64 per document, smaller for documents preferred to be kept.

    Ranks by the number in a column, as a float64; values that are not numbers come last.
    """
    from tamis.dedup.keys import NO_NUMBER, ordered

    try:
        numbers = np.array(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        raise PipelineError(f"field {field!r}: expected numbers to rank by, got {column.type} ({exc})") from None
    return np.where(np.isnan(numbers), np.uint64(NO_NUMBER), ordered(-numbers if descending else numbers))

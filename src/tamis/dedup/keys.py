"""Columns that key stages share: the facts of each document, and keys sorted within a batch.

Columns of a record file, all of the batch's length. By row: `file`, `offset` (the position of the document in the
input), `hi`, `lo` (128-bit hash of the normalized text), `length` (its bytes; -1 where there is no text), `rank`
(smaller is preferred). By key: `key_K` ascending and `row_K`, the row it belongs to, NO_ROW for documents that have no
such key (they come last). Sorted keys make a prefix one slice.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from tamis.dedup.sorting import sort_pairs
from tamis.errors import PipelineError
from tamis.formats.jsonl.record_index import record_columns
from tamis.kernels.buffers import string_buffers
from tamis.tasks import DocumentBatch
from tamis.tasks.columns.exact import stored

Words = np.ndarray[Any, Any]
NO_ROW = 0xFFFFFFFF
# The rank of a document that has no number in the column of keep_by: after all others.
NO_NUMBER = 0xFFFFFFFFFFFFFFFF
_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"


def text_hashes(texts: pa.Array, hasher: Any = None) -> tuple[Words, Words, Words]:
    """Return (hi, lo, bytes) of XXH3-128 over each text's UTF-8; bytes is -1 and the hash 0 for null.

    `hasher`: does it elsewhere (exact/gpu_hash.py).
    """
    parts = string_buffers(texts)
    if hasher is not None:
        hi, lo = hasher(parts.data, np.asarray(parts.offsets, np.int64))
    else:
        data, offsets = memoryview(parts.data), parts.offsets.tolist()  # type: ignore[arg-type]
        digest = xxhash.xxh3_128_digest
        raw = b"".join([digest(data[a:b]) for a, b in itertools.pairwise(offsets)])
        halves = np.frombuffer(raw, ">u8").astype(np.uint64).reshape(-1, 2)
        hi, lo = halves[:, 0].copy(), halves[:, 1].copy()
    length = np.diff(parts.offsets).astype(np.int64)
    if parts.validity is not None:
        hi[~parts.validity] = lo[~parts.validity] = 0
        length[~parts.validity] = -1
    return hi, lo, length


def ranks(batch: DocumentBatch, keep: str, keep_by: str | None, texts: pa.Array) -> Words:
    """Return one uint64 per document, smaller for documents preferred to be kept; ties are broken later.

    `texts`: as they are written.
    """
    if keep == "first":
        return np.zeros(batch.num_items, np.uint64)
    if keep == "longest":
        length = pc.fill_null(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False)
        return np.asarray(np.uint64(1 << 62) - length.astype(np.uint64))
    numbers = numbers_of(batch.column(str(keep_by)))
    return np.where(np.isnan(numbers), np.uint64(NO_NUMBER), ~ordered(numbers))


def numbers_of(values: pa.Array) -> Words:
    """Return each value as a float64, NaN for values that are not numbers.

    A text that reads as a JSON number is one, too. Booleans, dates, lists and everything else are not. Integers
    beyond 2**53 become the nearest value that a float64 holds: ranks have 64 bits, and must compare across
    batches whose columns are of other types.
    """
    values = stored(values)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        plain = values.cast(pa.float64(), safe=False)
        return np.array(plain.fill_null(np.nan).to_numpy(zero_copy_only=False), np.float64)
    numbers = np.full(len(values), np.nan)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        rows = np.flatnonzero(pc.match_substring_regex(values, _NUMBER).fill_null(False).to_numpy(zero_copy_only=False))
        numbers[rows] = [float(text) for text in values.take(pa.array(rows)).to_pylist()]
    return numbers


def ordered(numbers: Words) -> Words:
    """Map float64 to uint64 in the same order: flip the sign bit, or all bits of negative values."""
    bits = np.ascontiguousarray(numbers + 0.0).view(np.uint64)  # + 0.0: no negative zero
    top = np.uint64(1 << 63)
    return np.where(bits & top, ~bits, bits | top)


def sorted_keys(keys: Words, has_key: Words) -> tuple[Words, Words]:
    """Return (key, row) ascending by key, then by row; documents without a key at the end as NO_ROW."""
    rows = np.flatnonzero(has_key).astype(np.uint32)
    mine = keys[rows]
    sort_pairs(mine, rows)
    out_keys = np.full(len(keys), np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64)
    out_rows = np.full(len(keys), NO_ROW, np.uint32)
    out_keys[: len(rows)], out_rows[: len(rows)] = mine, rows
    return out_keys, out_rows


def hash_columns(
    batch: DocumentBatch, written: pa.Array, texts: pa.Array, keep: str, keep_by: str | None, hasher: Any = None
) -> dict[str, Words]:
    """Return the columns that identify every document.

    These are the hash of its text (`texts`: normalized), its rank, the sorted key 0, and facts of its record.
    """
    hi, lo, length = text_hashes(texts, hasher)
    key, row = sorted_keys(hi, length >= 0)
    columns = {"hi": hi, "lo": lo, "length": length} | record_columns(batch)
    return columns | {"rank": ranks(batch, keep, keep_by, written), "key_0": key, "row_0": row}


def record_batch(batch: DocumentBatch, columns: dict[str, Words]) -> DocumentBatch:
    """Return the batch with these columns alone."""
    for name, values in columns.items():
        batch = batch.with_column(name, pa.array(values))
    return batch.select(list(columns))


def position_columns(batch: DocumentBatch) -> dict[str, Words]:
    file, offset = batch.places()
    if len(file) and int(file.min()) < 0:
        raise PipelineError(
            "deduplication: documents must come straight from a reader, where they have a place in the input"
        )
    return {"file": file, "offset": offset}

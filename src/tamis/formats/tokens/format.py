"""Writer of token ids for the engine (registry.PACKERS): one file of a format of files.py for each partition.

A stage has put the tokens of each document into a column (`options["field"]`), as a list of numbers of the type that
the format has. `options["format"]`: its name. The same documents in the same order give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.formats.tokens.files import Rows, open_file
from tamis.kernels.records import hash128
from tamis.tasks import DocumentBatch

Array = np.ndarray[Any, Any]
WrittenFile = tuple[dict[str, Any], Array, tuple[Array, Array]]


def write(batches: Sequence[DocumentBatch], base: str, options: Mapping[str, Any]) -> Iterator[WrittenFile]:
    """Yield staged files, the first with the bytes and content hashes of its documents."""
    field = str(options["field"])
    dtype = np.dtype(batches[0].column(field).type.value_type.to_pandas_dtype())
    file = open_file(str(options.get("format", "megatron")), base, dtype)
    lengths: list[Array] = []
    hashes: list[tuple[Array, Array]] = []
    for batch in batches:
        rows = rows_of(batch.column(field))
        file.write(rows)
        data = rows.ids.view(np.uint8)
        n_bytes = rows.lengths * dtype.itemsize
        lengths.append(n_bytes)
        hashes.append(hash128.hash_spans(data, np.cumsum(n_bytes) - n_bytes, n_bytes))
    hi, lo = (np.concatenate([pair[i] for pair in hashes]) for i in (0, 1))
    none = np.empty(0, np.uint64)
    for k, (extension, path) in enumerate(file.close()):
        if k == 0:
            yield {"path": path, "extension": extension}, np.concatenate(lengths), (hi, lo)
        else:
            about = {"path": path, "extension": extension, "belongs": True}
            yield about, np.empty(0, np.int64), (none, none)


def rows_of(tokens: pa.Array | pa.ChunkedArray) -> Rows:
    """Return the rows of a column of lists; null is empty."""
    if isinstance(tokens, pa.ChunkedArray):
        tokens = tokens.combine_chunks()
    values = np.ascontiguousarray(tokens.flatten().to_numpy(zero_copy_only=False))
    lengths = np.asarray(pc.fill_null(pc.list_value_length(tokens), 0).to_numpy(zero_copy_only=False), np.int64)
    return Rows(values, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]))


def token_column(ids: Array, offsets: Array, dtype: str) -> pa.Array:
    """Return the tokens of documents as a column for `write`; raise OverflowError for one beyond `dtype`."""
    bounds = np.iinfo(dtype)
    if len(ids) and (int(ids.min()) < bounds.min or int(ids.max()) > bounds.max):
        raise OverflowError(f"token {ids.max()} does not fit into {dtype}")
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(ids.astype(dtype, copy=False)))

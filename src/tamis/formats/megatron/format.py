"""Writer of Megatron's pairs: the tokens of all documents of a partition in `.bin`, where each begins in `.idx`.

A stage has put the tokens of each document into a column (`options["field"]`), as a list of uint16 or int32. The same
documents in the same order give the same bytes. For the engine (registry.PACKERS); index.py has the layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import files
from tamis.formats.megatron.index import write_index
from tamis.kernels.records import hash128
from tamis.tasks import DocumentBatch

Array = np.ndarray[Any, Any]
WrittenFile = tuple[dict[str, Any], Array, tuple[Array, Array]]


def write(batches: Sequence[DocumentBatch], base: str, options: Mapping[str, Any]) -> Iterator[WrittenFile]:
    """Yield staged files `base`.bin and `base`.idx, the first with the bytes and content hashes of its documents."""
    lengths: list[Array] = []
    hashes: list[tuple[Array, Array]] = []
    dtype = np.dtype("int32")
    with files.create(base + ".bin") as file:
        for batch in batches:
            tokens = batch.column(str(options["field"]))
            values = np.ascontiguousarray(tokens.flatten().to_numpy(zero_copy_only=False))
            dtype = values.dtype
            data = values.astype(dtype.newbyteorder("<"), copy=False).view(np.uint8)
            file.write(data.data)
            n_tokens = np.asarray(pc.list_value_length(tokens).to_numpy(zero_copy_only=False), np.int64)
            n_bytes = n_tokens * dtype.itemsize
            lengths.append(n_tokens)
            hashes.append(hash128.hash_spans(data, np.cumsum(n_bytes) - n_bytes, n_bytes))
    counts = np.concatenate(lengths)
    hi, lo = (np.concatenate([pair[i] for pair in hashes]) for i in (0, 1))
    with files.create(base + ".idx") as file:
        write_index(file, counts, dtype.name)
    yield {"path": base + ".bin", "extension": "bin"}, counts * dtype.itemsize, (hi, lo)
    none = np.empty(0, np.uint64)
    yield {"path": base + ".idx", "extension": "idx", "belongs": True}, np.empty(0, np.int64), (none, none)


def token_column(tokens: Sequence[Sequence[int]], dtype: str) -> pa.Array:
    """Return the tokens of documents as a column for `write`; raise OverflowError for one beyond `dtype`."""
    lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
    ids = np.fromiter((token for of_one in tokens for token in of_one), np.int64, int(lengths.sum()))
    bounds = np.iinfo(dtype)
    if len(ids) and (ids.min() < bounds.min or ids.max() > bounds.max):
        raise OverflowError(f"token {ids.max()} does not fit into {dtype}")
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(ids.astype(dtype)))

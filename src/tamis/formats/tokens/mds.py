"""Shards of MDS, the format of mosaicml-streaming, and their index.

A shard: number of samples (uint32), where each begins and the last ends (uint32 each), its settings as JSON, samples.
A sample: the sizes of its columns that have no fixed size (uint32 each), in the order of their names, then their bytes.
An array of one type has a byte for its dimensions (1 << 2 | log2 of the bytes of a length), its length, and its values.
The index (index.json) lists shards with their sizes. All numbers are little-endian. `mds.zstd`: a frame of zstd, which
StreamingDataset decompresses; LocalDataset reads `mds` alone.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tamis.errors import FormatError, UsageError
from tamis.formats.compression.codecs import find_codec
from tamis.formats.compression.zstd import ZstdCompressor, ZstdError, ZstdFile

Array = np.ndarray[Any, Any]
SUFFIX, ZSTD_SUFFIX = ".mds", ".mds.zstd"
INDEX = "index.json"
TOKENS, STARTS = "input_ids", "document_starts"
SIZE_LIMIT = 1 << 26
_MAX_BYTES = (1 << 32) - 1


def _settings(dtype: str, length: int | None, is_compressed: bool) -> dict[str, Any]:
    names, encodings, sizes = [TOKENS], [f"ndarray:{dtype}"], [None]
    if length is not None:
        names, encodings = [STARTS, TOKENS], ["ndarray:int32", f"ndarray:{dtype}:{length}"]
        sizes = [None, length * np.dtype(dtype).itemsize]  # type: ignore[list-item]
    return {
        "version": 2,
        "format": "mds",
        "compression": "zstd" if is_compressed else None,
        "hashes": [],
        "size_limit": SIZE_LIMIT,
        "column_names": names,
        "column_encodings": encodings,
        "column_sizes": sizes,
    }


class MdsShard:
    """The samples of a shard: documents, or sequences of one length with where their documents begin."""

    def __init__(self, dtype: str, length: int | None, is_compressed: bool = True) -> None:
        self._settings, self._is_compressed = _settings(dtype, length, is_compressed), is_compressed
        self._dtype, self._length = np.dtype(dtype).newbyteorder("<"), length
        self._samples: list[bytes] = []

    def add(self, ids: Array, offsets: Array, starts: Array | None, start_offsets: Array | None) -> None:
        data = np.ascontiguousarray(ids).astype(self._dtype, copy=False)
        where = (offsets - offsets[0]).tolist()
        if self._length is None:
            self._samples += [
                struct.pack("<I", len(array)) + array
                for a, b in pairwise(where)
                if b > a and (array := _array(data[a:b]))
            ]
            return
        assert starts is not None
        assert start_offsets is not None
        begins, of = starts.astype("<i4"), start_offsets.tolist()
        for k, (a, b) in enumerate(pairwise(where)):
            array = _array(begins[of[k] : of[k + 1]])
            self._samples.append(struct.pack("<I", len(array)) + array + data[a:b].tobytes())

    def contents(self) -> bytes:
        """Return the shard as its file has it: as it is, or a zstd frame."""
        config = json.dumps(self._settings, sort_keys=True).encode()
        head = 4 + 4 * (len(self._samples) + 1) + len(config)
        ends = head + np.cumsum([0, *map(len, self._samples)], dtype=np.int64)
        if int(ends[-1]) > _MAX_BYTES:
            raise UsageError("a shard of MDS holds 4 GiB at most; give a smaller shard_size")
        parts = [struct.pack("<I", len(self._samples)), ends.astype("<u4").tobytes(), config, *self._samples]
        if not self._is_compressed:
            return b"".join(parts)
        # In one step: the frame then has its size, which readers need.
        return bytes(find_codec("zst").new_encoder().compress(b"".join(parts), ZstdCompressor.FLUSH_FRAME))


def _array(values: Array) -> bytes:
    n = len(values)
    kind = 0 if n < 1 << 8 else 1 if n < 1 << 16 else 2
    return bytes([1 << 2 | kind]) + n.to_bytes(1 << kind, "little") + values.tobytes()


def index_of(paths: Sequence[tuple[str, str]]) -> str:
    """Return the index of these shards, (name, path) each, as JSON; the names are those in the index's folder."""
    shards = []
    for name, path in paths:
        n_samples, n_bytes, settings = _head(path)
        zipped = {"basename": name, "bytes": os.path.getsize(path), "hashes": {}}
        raw = {"basename": name.removesuffix(".zstd"), "bytes": n_bytes, "hashes": {}}
        shards.append(
            {
                **settings,
                "raw_data": raw,
                "zip_data": zipped if name.endswith(ZSTD_SUFFIX) else None,
                "samples": n_samples,
            }
        )
    return json.dumps({"version": 2, "shards": shards}, sort_keys=True)


def _head(path: str) -> tuple[int, int, dict[str, Any]]:
    """Return the samples, the size and the settings of a shard."""
    try:
        with ZstdFile(path) if path.endswith(ZSTD_SUFFIX) else open(path, "rb") as file:
            (n,) = struct.unpack("<I", file.read(4))
            ends = np.frombuffer(file.read(4 * (n + 1)), "<u4")
            settings = json.loads(file.read(int(ends[0]) - 8 - 4 * n))
            return n, int(ends[-1]), settings
    except (struct.error, ValueError, IndexError, EOFError, ZstdError) as exc:
        raise FormatError(f"{path}: no shard of MDS ({exc}); the file is damaged") from None

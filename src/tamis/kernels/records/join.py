"""JSON objects from literals: `{"key":literal,...}` per row.

Literals are byte spans in two buffers seen as one: positions below len(buf) are in `buf` (raw values of the input),
the others in `extra` (values encoded anew). Members are written by rising rank, those of equal rank in the order of
the keys. Two passes over the spans: sizes, then copies. O(members) for ranks that rise already; memory: the output
plus 8 bytes per row, and 8 bytes per key.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, copy_bytes, pointer, put
from tamis.kernels.language.jit import kernel
from tamis.kernels.language.types import I64_IN, I64_OUT, U8_IN, U8_OUT

Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int64]


@kernel(types.int64(types.int64, types.int64, I64_IN, I64_IN, I64_IN, I64_OUT))
def _sizes(n_buf, n_extra, start, length, key_off, out_offsets):
    """Fill `out_offsets`; -1, or the first row with a literal that is not inside one of the buffers."""
    n_keys = key_off.size - 1
    total = 0
    put(out_offsets, 0, 0)
    for i in range(out_offsets.size - 1):
        n_members = 0
        for j in range(n_keys):
            n_bytes = at(length, i * n_keys + j)
            if n_bytes >= 0:
                first = at(start, i * n_keys + j)
                beyond = n_buf if first < n_buf else n_buf + n_extra
                if first < 0 or first + n_bytes > beyond:
                    return i
                total += n_bytes + at(key_off, j + 1) - at(key_off, j)
                n_members += 1
        total += 3 + max(n_members - 1, 0)
        put(out_offsets, i + 1, total)
    return -1


@kernel(types.void(*(U8_IN, U8_IN, I64_IN, I64_IN, I64_IN), *(U8_IN, I64_IN, types.int64, I64_OUT, U8_OUT)))
def _write(buf, extra, start, length, rank, keys, key_off, n_rows, order, out):
    n_keys = key_off.size - 1
    n_buf = buf.size
    buf, extra, keys, out = pointer(buf), pointer(extra), pointer(keys), pointer(out)
    p = 0
    for i in range(n_rows):
        base = i * n_keys
        m = 0
        for j in range(n_keys):
            if at(length, base + j) >= 0:
                k = m
                while k > 0 and at(rank, base + at(order, k - 1)) > at(rank, base + j):
                    put(order, k, at(order, k - 1))
                    k -= 1
                put(order, k, j)
                m += 1
        put(out, p, 123)  # {
        p += 1
        for k in range(m):
            j = at(order, k)
            if k > 0:
                put(out, p, 44)  # ,
                p += 1
            n_bytes = at(key_off, j + 1) - at(key_off, j)
            copy_bytes(out, p, keys, at(key_off, j), n_bytes)
            p += n_bytes
            first = at(start, base + j)
            n_bytes = at(length, base + j)
            if first < n_buf:
                copy_bytes(out, p, buf, first, n_bytes)
            else:
                copy_bytes(out, p, extra, first - n_buf, n_bytes)
            p += n_bytes
        put(out, p, 125)  # }
        put(out, p + 1, 10)
        p += 2


def join_rows(
    buf: Bytes,
    extra: Bytes,
    start: NDArray[Any],
    length: NDArray[Any],
    keys: list[bytes],
    rank: NDArray[Any] | None = None,
) -> tuple[Bytes, Offsets]:
    """Return (out, out_offsets): one object per row of (n, K) literal spans, each ending in a newline.

    A span of length -1 is an absent member. `keys` are encoded: `"name":`. Without `rank` members come by position.
    """
    key_off = np.zeros(len(keys) + 1, np.int64)
    np.cumsum([len(k) for k in keys], out=key_off[1:])
    shape = (start.shape[0], len(keys))
    flat = [np.ascontiguousarray(a, np.int64).reshape(-1) for a in (start, length, start if rank is None else rank)]
    if start.shape != shape or any(a.size != shape[0] * shape[1] for a in flat):
        raise ValueError(f"join_rows: expected spans of shape {shape}, got {start.shape}, {length.shape}")
    offsets = np.empty(shape[0] + 1, np.int64)
    bad = int(_sizes(buf.size, extra.size, flat[0], flat[1], key_off, offsets))
    if bad >= 0:
        raise ValueError(f"join_rows: row {bad} has a literal outside the {buf.size} + {extra.size} bytes given")
    out = np.empty(int(offsets[-1]), np.uint8)
    key_data = np.frombuffer(b"".join(keys), np.uint8)
    _write(buf, extra, flat[0], flat[1], flat[2], key_data, key_off, shape[0], np.empty(len(keys), np.int64), out)
    return out, offsets

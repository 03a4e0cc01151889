"""JSON objects from literals: `{"key":literal,...}` per row.

Literals are byte spans in two buffers seen as one: positions below len(buf) lie in `buf` (raw values of the input), the
others in `extra` (values encoded anew). Members are written in the order of their positions, so raw members keep the order
they had in the record and new ones follow. Two passes over the spans: sizes, then copies. O(members), no scratch beyond
the order of one row (K int64).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types as nt

from tamis.kernels._intrinsics import at, copy_bytes, pointer, put
from tamis.kernels._jit import kernel

_U8 = nt.Array(nt.uint8, 1, "C", readonly=True)
_I64 = nt.Array(nt.int64, 1, "C", readonly=True)
_I64_2 = nt.Array(nt.int64, 2, "C", readonly=True)


@kernel(nt.void(_I64_2, _I64_2, _I64, nt.int64[::1]))
def _sizes(start: Any, length: Any, key_off: Any, out_offsets: Any) -> None:
    n, k = start.shape
    total = 0
    out_offsets[0] = 0
    for i in range(n):
        members = 0
        for j in range(k):
            if length[i, j] >= 0:
                total += length[i, j] + key_off[j + 1] - key_off[j]
                members += 1
        total += 3 + (members - 1 if members > 0 else 0)
        out_offsets[i + 1] = total


@kernel(nt.void(_U8, _U8, _I64_2, _I64_2, _U8, _I64, _I64, nt.uint8[::1]))
def _write(buf: Any, extra: Any, start: Any, length: Any, keys: Any, key_off: Any, out_offsets: Any, out: Any) -> None:
    n, k = start.shape
    n_buf = buf.size
    target, first, second, names = pointer(out), pointer(buf), pointer(extra), pointer(keys)
    order = np.empty(k, np.int64)
    for i in range(n):
        m = 0
        for j in range(k):
            if length[i, j] >= 0:
                slot = m
                while slot > 0 and start[i, order[slot - 1]] > start[i, j]:
                    order[slot] = order[slot - 1]
                    slot -= 1
                order[slot] = j
                m += 1
        p = at(out_offsets, i)
        put(target, p, 123)  # {
        p += 1
        for a in range(m):
            j = order[a]
            if a > 0:
                put(target, p, 44)  # ,
                p += 1
            n_key = at(key_off, j + 1) - at(key_off, j)
            copy_bytes(target, p, names, at(key_off, j), n_key)
            p += n_key
            if start[i, j] < n_buf:
                copy_bytes(target, p, first, start[i, j], length[i, j])
            else:
                copy_bytes(target, p, second, start[i, j] - n_buf, length[i, j])
            p += length[i, j]
        put(target, p, 125)  # }
        put(target, p + 1, 10)


def join_rows(
    buf: np.ndarray[Any, Any],
    extra: np.ndarray[Any, Any],
    start: np.ndarray[Any, Any],
    length: np.ndarray[Any, Any],
    keys: list[bytes],
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Rows of (n, K) literal spans (length -1: no such member) under encoded keys `"name":`; each row ends in a newline."""
    key_off = np.zeros(len(keys) + 1, np.int64)
    np.cumsum([len(k) for k in keys], out=key_off[1:])
    key_data = np.frombuffer(b"".join(keys), np.uint8)
    offsets = np.empty(len(start) + 1, np.int64)
    start, length = np.ascontiguousarray(start, np.int64), np.ascontiguousarray(length, np.int64)
    _sizes(start, length, key_off, offsets)
    out = np.empty(int(offsets[-1]), np.uint8)
    _write(buf, extra, start, length, key_data, key_off, offsets, out)
    return out, offsets

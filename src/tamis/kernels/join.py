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
        total += 3 + max(members - 1, 0)
        out_offsets[i + 1] = total


@kernel(nt.void(_U8, _U8, _I64_2, _I64_2, _U8, _I64, _I64, nt.uint8[::1]))
def _write(buf: Any, extra: Any, start: Any, length: Any, keys: Any, key_off: Any, out_offsets: Any, out: Any) -> None:
    n, k = start.shape
    n_buf = len(buf)
    order = np.empty(k, np.int64)
    for i in range(n):
        m = 0
        for j in range(k):
            if length[i, j] >= 0:
                at = m
                while at > 0 and start[i, order[at - 1]] > start[i, j]:
                    order[at] = order[at - 1]
                    at -= 1
                order[at] = j
                m += 1
        p = out_offsets[i]
        out[p] = 123  # {
        p += 1
        for a in range(m):
            j = order[a]
            if a > 0:
                out[p] = 44  # ,
                p += 1
            n_key = key_off[j + 1] - key_off[j]
            out[p : p + n_key] = keys[key_off[j] : key_off[j + 1]]
            p += n_key
            s, n_lit = start[i, j], length[i, j]
            if s < n_buf:
                out[p : p + n_lit] = buf[s : s + n_lit]
            else:
                s -= n_buf
                out[p : p + n_lit] = extra[s : s + n_lit]
            p += n_lit
        out[p] = 125  # }
        out[p + 1] = 10
        p += 2


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

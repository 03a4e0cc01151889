"""JSON escapes, code points as UTF-8, and keys compared after unescaping.

Helpers for kernels; input is validated JSON.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from tamis.kernels.language.intrinsics import at, put
from tamis.kernels.language.jit import helper

REPLACEMENT = 0xFFFD  # replaces a surrogate without its other half, which UTF-8 cannot hold


@helper
def hex4(buf, p):
    value = 0
    for k in range(p, p + 4):
        c = at(buf, k)
        value = (value << 4) | (c - 48 if c <= 57 else (c | 32) - 87)
    return value


@helper
def read_escape(buf, p, e):
    """Return (code point, position after it) of the escape at p; a lone surrogate reads as U+FFFD."""
    c = at(buf, p + 1)
    if c != 117:
        if c == 110:
            return 10, p + 2
        if c == 116:
            return 9, p + 2
        if c == 114:
            return 13, p + 2
        if c == 98:
            return 8, p + 2
        if c == 102:
            return 12, p + 2
        return int(c), p + 2
    code = hex4(buf, p + 2)
    p += 6
    if code < 0xD800 or code > 0xDFFF:
        return code, p
    if code <= 0xDBFF and p + 6 <= e and at(buf, p) == 92 and at(buf, p + 1) == 117:
        low = hex4(buf, p + 2)
        if 0xDC00 <= low <= 0xDFFF:
            return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00), p + 6
    return REPLACEMENT, p


@helper
def write_utf8(out, p, code):
    """Write one code point at out[p]; the position after it."""
    if code < 0x80:
        put(out, p, code)
        return p + 1
    if code < 0x800:
        put(out, p, 0xC0 | (code >> 6))
        put(out, p + 1, 0x80 | (code & 0x3F))
        return p + 2
    if code < 0x10000:
        put(out, p, 0xE0 | (code >> 12))
        put(out, p + 1, 0x80 | ((code >> 6) & 0x3F))
        put(out, p + 2, 0x80 | (code & 0x3F))
        return p + 3
    put(out, p, 0xF0 | (code >> 18))
    put(out, p + 1, 0x80 | ((code >> 12) & 0x3F))
    put(out, p + 2, 0x80 | ((code >> 6) & 0x3F))
    put(out, p + 3, 0x80 | (code & 0x3F))
    return p + 4


@helper
def escaped_equals(buf, p, e, keys, key_start, key_end, scratch):
    """Return True if the escaped string buf[p:e) reads as keys[key_start:key_end).

    `scratch` holds four bytes.
    """
    k = key_start
    while p < e:
        if at(buf, p) != 92:
            if k >= key_end or at(buf, p) != at(keys, k):
                return False
            p += 1
            k += 1
            continue
        code, p = read_escape(buf, p, e)
        n_bytes = write_utf8(scratch, np.int64(0), code)
        if k + n_bytes > key_end:
            return False
        for j in range(n_bytes):
            if at(scratch, j) != at(keys, k + j):
                return False
        k += n_bytes
    return k == key_end


@helper
def same_bytes(a, i, b, j, n_bytes):
    """Return True if a[i:i + n_bytes) and b[j:j + n_bytes) are equal."""
    k = 0
    while k < n_bytes and at(a, i + k) == at(b, j + k):
        k += 1
    return k == n_bytes


@helper
def key_index(buf, p, e, escaped, keys, key_ends, n_keys, scratch):
    """Return the index of the requested key that the string buf[p:e) equals, or -1.

    Key k is keys[key_ends[k - 1]:key_ends[k]).
    """
    key_start = np.int64(0)
    for k in range(n_keys):
        key_end = at(key_ends, k)
        if escaped:
            if escaped_equals(buf, p, e, keys, key_start, key_end, scratch):
                return k
        elif key_end - key_start == e - p and same_bytes(buf, p, keys, key_start, e - p):
            return k
        key_start = key_end
    return -1

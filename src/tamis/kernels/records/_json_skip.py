"""Walking over validated JSON objects: finds the spans of depth-1 members without checking anything again.

Loops are bounded by the record and the buffer all the same, so that a buffer which is not the one that was scanned
gives wrong spans but never leaves memory.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, lowest_bit, mask_eq, pointer, put
from tamis.kernels.language.jit import helper, kernel
from tamis.kernels.language.types import I64_IN, I64_OUT, U8_IN, U8_OUT
from tamis.kernels.records._json_escape import key_index, same_bytes
from tamis.kernels.records._json_grammar import (
    ALL,
    ARRAY,
    ESCAPED,
    FALSE,
    FLOAT,
    INT,
    NULL,
    OBJECT,
    OK,
    STRING,
    TRUE,
    ZERO,
    skip_space,
)


@helper
def skip_string(buf, last, p):
    """Return (position of the closing quote, has an escape) of a valid string; p is after the opening quote."""
    escaped = False
    while p < last + 64:
        base = p if p < last else last
        stops = (mask_eq(buf, base, 34) | mask_eq(buf, base, 92)) & (ALL << np.uint64(p - base))
        p = base + 64
        while stops != ZERO:
            q = base + lowest_bit(stops)
            if at(buf, q) == 34:
                return q, escaped
            escaped = True
            if q + 2 >= p:
                p = q + 2
                break
            stops &= ALL << np.uint64(q + 2 - base)
    return last + 63, escaped


@helper
def skip_container(buf, last, p):
    """Return the position after the valid object or array that begins at p."""
    level = 0
    while p < last + 64:
        base = p if p < last else last
        stops = mask_eq(buf, base, 34) | mask_eq(buf, base, 91) | mask_eq(buf, base, 93)
        stops = (stops | mask_eq(buf, base, 123) | mask_eq(buf, base, 125)) & (ALL << np.uint64(p - base))
        p = base + 64
        while stops != ZERO:
            q = base + lowest_bit(stops)
            c = at(buf, q)
            if c == 34:
                q, _ = skip_string(buf, last, q + 1)
            else:
                level += 1 if c == 91 or c == 123 else -1
                if level == 0:
                    return q + 1
            if q + 1 >= p:
                p = q + 1
                break
            stops &= ALL << np.uint64(q + 1 - base)
    return last + 64


@helper
def skip_value(buf, last, p, e):
    """Return (position after the valid value at p < e, its type)."""
    c = at(buf, p)
    if c == 34:
        q, escaped = skip_string(buf, last, p + 1)
        return q + 1, (ESCAPED if escaped else STRING)
    if c == 123 or c == 91:
        return skip_container(buf, last, p), (OBJECT if c == 123 else ARRAY)
    if c == 116:
        return p + 4, TRUE
    if c == 102:
        return p + 5, FALSE
    if c == 110:
        return p + 4, NULL
    kind = INT
    while p < e:
        c = at(buf, p)
        if c == 44 or c == 125 or c <= 32:
            break
        if c == 46 or c >= 65:  # a point, an exponent, or any letter of NaN and Infinity
            kind = FLOAT
        p += 1
    return p, kind


@helper
def _first_member(buf, start, e):
    return skip_space(buf, skip_space(buf, start, e) + 1, e)


@helper
def _member(buf, last, p, e):
    """Return (key, its end, has an escape, value or e, its end, its type, next member) of the member at p."""
    q, escaped = skip_string(buf, last, p + 1)
    value = skip_space(buf, skip_space(buf, q + 1, e) + 1, e)
    if value >= e:
        return p + 1, q, escaped, e, e, NULL, e
    after, kind = skip_value(buf, last, value, e)
    following = skip_space(buf, skip_space(buf, after, e) + 1, e)  # over the comma
    return p + 1, q, escaped, value, after, kind, following


@kernel(
    types.void(
        *(U8_IN, U8_IN, I64_IN, U8_OUT, I64_IN, I64_IN, U8_IN),
        *(U8_OUT, I64_OUT, I64_OUT),
    )
)
def rescan_kernel(buf, keys, key_ends, scratch, start, close, status, kinds, val_start, val_len):
    """Find the spans of the given keys in validated records. The outputs must be zero; the last duplicate wins."""
    last = buf.size - 64
    n_keys = key_ends.size
    buf, keys, key_ends, scratch = pointer(buf), pointer(keys), pointer(key_ends), pointer(scratch)
    for row in range(start.size):
        if at(status, row) != OK:
            continue
        e = at(close, row)
        p = _first_member(buf, at(start, row), e)
        while p < e:
            key_at, q, escaped, value, after, kind, p = _member(buf, last, p, e)
            if value >= e:
                break
            k = key_index(buf, key_at, q, escaped, keys, key_ends, n_keys, scratch)
            if k >= 0:
                quote = 1 if STRING <= kind <= ESCAPED else 0
                put(kinds, row * n_keys + k, kind)
                put(val_start, row * n_keys + k, value + quote)
                put(val_len, row * n_keys + k, after - value - 2 * quote)


@kernel(types.int64(U8_IN, I64_IN, I64_IN, U8_IN, I64_OUT, I64_OUT, I64_OUT))
def discover_kernel(buf, start, close, status, slots, first, length):
    """Write the distinct raw spellings of depth-1 keys as spans, in order of appearance.

    Returns their number, or -1 when `first` is full.

    `slots` is an open-addressing table of -1, a power of two larger than twice first.size.
    """
    last = buf.size - 64
    buf = pointer(buf)
    n_found = 0
    slot_mask = np.uint64(slots.size - 1)
    for row in range(start.size):
        if at(status, row) != OK:
            continue
        e = at(close, row)
        p = _first_member(buf, at(start, row), e)
        while p < e:
            key_at, q, _, value, _, _, p = _member(buf, last, p, e)
            if value >= e:
                break
            mixed = np.uint64(q - key_at)
            for k in range(key_at, q):
                mixed = (mixed ^ np.uint64(at(buf, k))) * np.uint64(0x9E3779B97F4A7C15)
                mixed ^= mixed >> np.uint64(29)
            slot = np.int64(mixed & slot_mask)
            while True:
                entry = at(slots, slot)
                if entry < 0:
                    if n_found == first.size:
                        return -1
                    put(slots, slot, n_found)
                    put(first, n_found, key_at)
                    put(length, n_found, q - key_at)
                    n_found += 1
                    break
                if at(length, entry) == q - key_at and same_bytes(buf, key_at, buf, at(first, entry), q - key_at):
                    break
                slot = (slot + 1) & (slots.size - 1)
    return n_found

"""JSON string literals <-> UTF-8 text, and gathering of byte ranges.

`unescape` reads the values that a scan found, `escape` writes what `json.dumps(text, ensure_ascii=False)` writes. Both
move 64 bytes at a time between escapes. Memory: the output plus 9 bytes (unescape) or 8 bytes (escape) per row; 32-bit
offsets are widened first (8 bytes more), because a second version of each kernel would lengthen every cold start.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.kernels import spare
from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import (
    at,
    copy_block,
    copy_bytes,
    count_bits,
    lowest_bit,
    mask_eq,
    mask_lt,
    pointer,
    put,
)
from tamis.kernels.language.jit import helper, kernel
from tamis.kernels.language.types import I64_IN, I64_OUT, U8_IN, U8_OUT
from tamis.kernels.language.vectors import HAS_COMPRESS, store_unescaped
from tamis.kernels.records._json_escape import read_escape, write_utf8
from tamis.kernels.records._json_grammar import ALL, ESCAPED, ONE, STRING, ZERO, escaped_bits

_LAST = np.uint64(1 << 63)
SLACK_BYTES = 64  # whole blocks are stored, so the last one may reach beyond the end of the text

Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int64]


@helper
def copy_until(out, to, buf, p, e, last, stops):
    """Copy up to the first stop bit (of the block at p) or the end of the block; how many bytes that is."""
    n_bytes = lowest_bit(stops) if stops != ZERO else np.int64(64)
    n_bytes = n_bytes if n_bytes < e - p else e - p
    if p <= last:
        copy_block(out, to, buf, p)
    else:
        copy_bytes(out, to, buf, p, n_bytes)
    return n_bytes


@helper
def unescaped_narrow(out, to, buf, p, e, last):
    """Write the text of the string buf[p:e) to out[to:]; return the position after it.

    `last`: the last position followed by 64 bytes.
    """
    while p < e:
        base = p if p < last else last
        n_bytes = copy_until(out, to, buf, p, e, last, mask_eq(buf, base, 92) >> np.uint64(p - base))
        to += n_bytes
        p += n_bytes
        if p < e and at(buf, p) == 92:
            code, p = read_escape(buf, p, e)
            to = write_utf8(out, to, code)
    return to


@helper
def unescaped_wide(out, to, buf, p, e, last):
    r"""Write the text of a string like `unescaped_narrow`, 64 bytes at a time.

    Handles all short escapes of a block at once, and \u escapes one by one.
    """
    while p < e and p <= last:
        valid = ALL if e - p >= 64 else (ONE << np.uint64(e - p)) - ONE
        slashes = mask_eq(buf, p, 92) & valid
        if slashes == ZERO:
            copy_block(out, to, buf, p)
            n_bytes = min(e - p, 64)
            to += n_bytes
            p += n_bytes
            continue
        begins = slashes & ~escaped_bits(slashes)
        valid &= ~(begins & _LAST)  # one whose letter is in the next block waits for that
        begins &= valid
        letters = begins << ONE
        long = letters & mask_eq(buf, p, 117)
        if long != ZERO:
            n_bytes = lowest_bit(long) - 1
            below = (ONE << np.uint64(n_bytes)) - ONE
            store_unescaped(out, to, buf, p, letters & below, valid & ~begins & below)
            code, after = read_escape(buf, p + n_bytes, e)
            to = write_utf8(out, to + count_bits(valid & ~begins & below), code)
            p = after
            continue
        store_unescaped(out, to, buf, p, letters, valid & ~begins)
        to += count_bits(valid & ~begins)
        p += count_bits(valid)
    return unescaped_narrow(out, to, buf, p, e, last)


_unescaped = unescaped_wide if HAS_COMPRESS else unescaped_narrow


@kernel(types.int64(U8_IN, U8_IN, I64_IN, I64_IN, I64_OUT, U8_OUT, U8_OUT))
def _unescape_kernel(buf, kinds, starts, lens, offsets, data, validity):
    """Decode the escapes of values; return the bytes written."""
    last = buf.size - 64
    buf, data = pointer(buf), pointer(data)
    to = np.int64(0)
    put(offsets, 0, 0)
    for row in range(kinds.size):
        kind = at(kinds, row)
        p = at(starts, row)
        e = p + at(lens, row)
        put(validity, row, STRING <= kind <= ESCAPED)
        if kind == STRING:
            copy_bytes(data, to, buf, p, e - p)
            to += e - p
        elif kind == ESCAPED:
            to = _unescaped(data, to, buf, p, e, last)
        put(offsets, row + 1, to)
    return to


def unescape(
    buf: Bytes, kinds: Bytes, val_start: Offsets, val_len: Offsets
) -> tuple[Offsets, Bytes, NDArray[np.bool_]]:
    """Return (offsets, data, validity) of the text of STRING and ESCAPED values; every other type is null.

    A lone surrogate becomes U+FFFD. No value grows by unescaping, so the allocation is the sum of their lengths and is
    shrunk in place afterwards.
    """
    kinds = np.ascontiguousarray(kinds)
    val_start, val_len = np.ascontiguousarray(val_start), np.ascontiguousarray(val_len)
    is_text = (kinds == STRING) | (kinds == ESCAPED)
    outside = is_text & ((val_start < 0) | (val_len < 0) | (val_len > buf.size - val_start))
    if outside.any():
        row = int(outside.argmax())
        raise ValueError(
            f"unescape: the value of row {row} ({val_start[row]}, {val_len[row]} bytes) is outside the "
            f"{buf.size} bytes given"
        )
    data = spare.take("text", int(val_len.sum(where=is_text)) + SLACK_BYTES)
    offsets, validity = np.empty(kinds.size + 1, np.int64), np.empty(kinds.size, np.bool_)
    n_bytes = int(
        _unescape_kernel(at_least_a_block(buf), kinds, val_start, val_len, offsets, data, validity.view(np.uint8))
    )
    return offsets, _shrunk(data, n_bytes), validity


def _shrunk(made: Bytes, n_bytes: int) -> Bytes:
    """Return the first bytes of an array that is not shared yet; release the others if it owns its memory."""
    if made.base is not None:
        return made[:n_bytes]
    made.resize(n_bytes, refcheck=False)
    return made


@helper
def _special(buf, base):
    """Return the bytes that must be escaped in a JSON string, as a mask."""
    return mask_eq(buf, base, 34) | mask_eq(buf, base, 92) | mask_lt(buf, base, 32)


@helper
def _has_short_escape(c):
    return c == 34 or c == 92 or c == 10 or c == 13 or c == 9 or c == 8 or c == 12


@helper
def _literal_size(buf, last, p, e):
    """Count the bytes of buf[p:e) as a JSON literal, quotes included."""
    size = e - p + 2
    while p < e:
        base = p if p < last else last
        live = ALL >> np.uint64(p - base)
        if e - p < 64:
            live &= (ONE << np.uint64(e - p)) - ONE
        specials = (_special(buf, base) >> np.uint64(p - base)) & live
        size += count_bits(specials)
        rare = mask_lt(buf, base, 32) >> np.uint64(p - base) & live
        rare &= ~(mask_eq(buf, base, 10) >> np.uint64(p - base))
        while rare != ZERO:
            k = lowest_bit(rare)
            if not _has_short_escape(at(buf, p + k)):
                size += 4
            rare &= rare - ONE
        p = base + 64
    return size


@helper
def _hex_digit(value):
    return value + 48 if value < 10 else value + 87


@helper
def _write_escape(out, to, c):
    put(out, to, 92)
    if not _has_short_escape(c):
        put(out, to + 1, 117)
        put(out, to + 2, 48)
        put(out, to + 3, 48)
        put(out, to + 4, _hex_digit(np.int64(c) >> 4))
        put(out, to + 5, _hex_digit(np.int64(c) & 15))
        return to + 6
    letter = c
    if c == 10:
        letter = np.uint8(110)
    elif c == 9:
        letter = np.uint8(116)
    elif c == 13:
        letter = np.uint8(114)
    elif c == 8:
        letter = np.uint8(98)
    elif c == 12:
        letter = np.uint8(102)
    put(out, to + 1, letter)
    return to + 2


@helper
def _write_literal(buf, last, p, e, out, to):
    put(out, to, 34)
    to += 1
    while p < e:
        base = p if p < last else last
        n_bytes = copy_until(out, to, buf, p, e, last, _special(buf, base) >> np.uint64(p - base))
        to += n_bytes
        p += n_bytes
        # The block copied may end here without a special byte: look again only at a byte that really is one.
        while p < e and (at(buf, p) < 32 or at(buf, p) == 34 or at(buf, p) == 92):
            to = _write_escape(out, to, at(buf, p))
            p += 1
    put(out, to, 34)
    return to + 1


@kernel(types.int64(I64_IN, U8_IN, types.int64, U8_IN, types.int64, I64_OUT))
def _escape_sizes(offsets, data, n_data_bytes, valid, first, out_offsets):
    """Compute the sizes of literals; return -1, or the first row whose offsets are not inside the data."""
    last = data.size - 64
    all_valid = valid.size == 0
    data = pointer(data)
    to = np.int64(0)
    put(out_offsets, 0, 0)
    for row in range(out_offsets.size - 1):
        p = at(offsets, first + row)
        e = at(offsets, first + row + 1)
        if p < 0 or e < p or e > n_data_bytes:
            return row
        to += _literal_size(data, last, p, e) if all_valid or at(valid, row) != 0 else 4
        put(out_offsets, row + 1, to)
    return -1


@kernel(types.void(I64_IN, U8_IN, U8_IN, types.int64, I64_IN, U8_OUT))
def _escape_kernel(offsets, data, valid, first, out_offsets, out):
    last = data.size - 64
    all_valid = valid.size == 0
    data, out = pointer(data), pointer(out)
    for row in range(out_offsets.size - 1):
        to = at(out_offsets, row)
        if all_valid or at(valid, row) != 0:
            _write_literal(
                *(data, last, at(offsets, first + row), at(offsets, first + row + 1)),
                *(out, to),
            )
        else:
            put(out, to, 110)
            put(out, to + 1, 117)
            put(out, to + 2, 108)
            put(out, to + 3, 108)


def escape(
    offsets: NDArray[np.int32] | Offsets,
    data: Bytes,
    validity: NDArray[np.bool_] | None,
    start_row: int,
    n_rows: int,
) -> tuple[Offsets, Bytes]:
    """Return (out_offsets, out_data): the rows [start_row, start_row + n_rows) as JSON literals; null -> `null`.

    `validity[i]` belongs to the text between offsets[i] and offsets[i + 1].
    """
    if start_row < 0 or n_rows < 0 or start_row + n_rows > max(0, offsets.size - 1):
        raise ValueError(
            f"escape: rows {start_row} to {start_row + n_rows} are outside the {offsets.size - 1} rows given"
        )
    valid = np.zeros(0, np.uint8) if validity is None else validity[start_row : start_row + n_rows].view(np.uint8)
    if validity is not None and valid.size != n_rows:
        raise ValueError(f"escape: expected validity for every row, got {validity.size} entries")
    out_offsets = np.zeros(n_rows + 1, np.int64)
    n_data_bytes, data, valid, ends = (
        data.size,
        at_least_a_block(data),
        np.ascontiguousarray(valid),
        np.ascontiguousarray(offsets, np.int64),
    )
    bad = int(_escape_sizes(ends, data, n_data_bytes, valid, start_row, out_offsets)) if n_rows else -1
    if bad >= 0:
        raise ValueError(f"escape: the offsets of row {start_row + bad} are outside the {n_data_bytes} bytes of data")
    n_bytes = int(out_offsets[-1])
    out = np.empty(n_bytes + SLACK_BYTES, np.uint8)
    _escape_kernel(ends, data, valid, start_row, out_offsets, out)
    return out_offsets, _shrunk(out, n_bytes)


@kernel(types.int64(U8_IN, I64_IN, I64_IN, U8_OUT, I64_IN))
def _copy_spans_kernel(buf, starts, lens, out, out_starts):
    """Copy spans; return -1, or the first span that is not inside both buffers."""
    for i in range(starts.size):
        p = at(starts, i)
        to = at(out_starts, i)
        n = at(lens, i)
        if p < 0 or to < 0 or n < 0 or n > buf.size - p or n > out.size - to:
            return i
        copy_bytes(out, to, buf, p, n)
    return -1


def copy_spans(buf: Bytes, starts: Offsets, lens: Offsets, out: Bytes, out_starts: Offsets) -> None:
    """out[out_starts[i]:][:lens[i]] = buf[starts[i]:][:lens[i]] for every i."""
    if not starts.size == lens.size == out_starts.size:
        raise ValueError(f"copy_spans: expected equal lengths, got {starts.size}, {lens.size} and {out_starts.size}")
    starts, lens, out_starts = (np.ascontiguousarray(array, np.int64) for array in (starts, lens, out_starts))
    bad = int(_copy_spans_kernel(buf, starts, lens, out, out_starts))
    if bad >= 0:
        raise ValueError(
            f"copy_spans: span {bad} ({starts[bad]} to {out_starts[bad]}, {lens[bad]} bytes) is outside "
            f"the {buf.size} bytes given or the {out.size} bytes of the target"
        )


def gather(buf: Bytes, starts: Offsets, lens: Offsets) -> tuple[Bytes, Offsets]:
    """Return (out, out_offsets): buf[starts[i]:][:lens[i]] for every i, one after the other."""
    offsets = np.zeros(len(lens) + 1, np.int64)
    np.cumsum(lens, out=offsets[1:])
    out = np.empty(int(offsets[-1]), np.uint8)
    copy_spans(buf, starts, lens, out, offsets[:-1])
    return out, offsets


def at_least_a_block(buf: Bytes) -> Bytes:
    """Return `buf` itself, or a zero-padded copy of a buffer shorter than one block of 64 bytes."""
    if buf.dtype != np.uint8 or buf.ndim != 1 or not buf.flags.c_contiguous:
        raise ValueError(f"buf: expected a contiguous 1-d uint8 array, got {buf.dtype} with shape {buf.shape}")
    if buf.size >= 64:
        return buf
    padded = np.zeros(64, np.uint8)
    padded[: buf.size] = buf
    return padded

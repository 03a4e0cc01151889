"""Output lines from input records: bytes copied as they are, with small edits spliced in.

Fields that no stage changed are never decoded, so they come out byte for byte. `assemble` sizes exactly, then copies;
`assemble_plain` has no edits and copies runs of neighbouring records at once. Memory: the output plus 8 bytes per row.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, copy_bytes, pointer, put
from tamis.kernels.language.jit import helper, kernel
from tamis.kernels.language.types import I64_IN, I64_OUT, U8_IN, U8_OUT

Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int64]


@helper
def _is_edit_valid(j, p, end, edit_from, edit_to, edit_off, n_edit_bytes):
    """Return True if an edit is within [p, end) of its record, and its bytes are within the bytes of all edits."""
    if at(edit_from, j) < p or at(edit_to, j) < at(edit_from, j) or at(edit_to, j) > end:
        return False
    return 0 <= at(edit_off, j) <= at(edit_off, j + 1) <= n_edit_bytes


@kernel(types.int64(*(I64_IN, I64_IN, I64_IN), *(I64_IN, I64_IN, I64_IN, I64_IN, types.int64), *(types.int64, I64_OUT)))
def _sizes(start, end, rows, edit_ptr, edit_from, edit_to, edit_off, n_edit_bytes, n_bytes, out_offsets):
    """Fill `out_offsets`; return -1, or the first output row whose record or edits are not where they should be."""
    total = 0
    put(out_offsets, 0, 0)
    n_edits = edit_from.size
    for i in range(rows.size):
        row = at(rows, i)
        if row < 0 or row >= start.size:
            return i
        p = at(start, row)
        e = at(end, row)
        if p < 0 or e > n_bytes or p > e:
            return i
        total += e - p + 1
        first = at(edit_ptr, i)
        beyond = at(edit_ptr, i + 1)
        if first < 0 or beyond < first or beyond > n_edits:
            return i
        for j in range(first, beyond):
            if not _is_edit_valid(j, p, e, edit_from, edit_to, edit_off, n_edit_bytes):
                return i
            p = at(edit_to, j)
            total += at(edit_off, j + 1) - at(edit_off, j) - (p - at(edit_from, j))
        put(out_offsets, i + 1, total)
    return -1


@kernel(types.void(*(U8_IN, I64_IN, I64_IN, I64_IN), *(I64_IN, I64_IN, I64_IN, I64_IN, U8_IN), U8_OUT))
def _splice(buf, start, end, rows, edit_ptr, edit_from, edit_to, edit_off, edit_data, out):
    to = 0
    for i in range(rows.size):
        p = at(start, at(rows, i))
        for j in range(at(edit_ptr, i), at(edit_ptr, i + 1)):
            n_kept = at(edit_from, j) - p
            copy_bytes(out, to, buf, p, n_kept)
            to += n_kept
            n_new = at(edit_off, j + 1) - at(edit_off, j)
            copy_bytes(out, to, edit_data, at(edit_off, j), n_new)
            to += n_new
            p = at(edit_to, j)
        n_kept = at(end, at(rows, i)) - p
        copy_bytes(out, to, buf, p, n_kept)
        to += n_kept
        put(out, to, 10)
        to += 1


@kernel(types.void(U8_IN, I64_IN, I64_IN, I64_IN, U8_OUT))
def _splice_plain(buf, start, end, rows, out):
    source = pointer(buf)
    target = pointer(out)
    n_rows = rows.size
    to = 0
    i = 0
    while i < n_rows:
        p = at(start, at(rows, i))
        e = at(end, at(rows, i))
        # A run: the next record wanted begins right after this one's line feed.
        while i + 1 < n_rows and at(start, at(rows, i + 1)) == e + 1 and e < buf.size and at(source, e) == 10:
            i += 1
            e = at(end, at(rows, i))
        copy_bytes(target, to, source, p, e - p)
        to += e - p
        put(target, to, 10)
        to += 1
        i += 1


def assemble(
    buf: Bytes,
    start: Offsets,
    end: Offsets,
    rows: Offsets,
    edit_row_ptr: Offsets,
    edit_from: Offsets,
    edit_to: Offsets,
    edit_off: Offsets,
    edit_data: Bytes,
) -> tuple[Bytes, Offsets]:
    """Return (out, out_offsets): the records `rows`, each with its edits applied and one line feed after it.

    The edits of output row i are edit_row_ptr[i] to edit_row_ptr[i + 1], ascending and apart: buf[edit_from:edit_to) is
    replaced by edit_data[edit_off[j]:edit_off[j + 1]), and edit_from == edit_to inserts.
    """
    out_offsets = np.empty(rows.size + 1, np.int64)
    if edit_row_ptr.size != rows.size + 1 or edit_to.size != edit_from.size or edit_off.size != edit_from.size + 1:
        raise ValueError(
            f"assemble: expected {rows.size + 1} row pointers and offsets for {edit_from.size} edits, got "
            f"{edit_row_ptr.size} pointers, {edit_to.size} ends and {edit_off.size} offsets"
        )
    bad = int(
        _sizes(
            *(start, end, rows, edit_row_ptr, edit_from, edit_to, edit_off),
            *(edit_data.size, buf.size, out_offsets),
        )
    )
    if bad >= 0:
        raise ValueError(f"assemble: output row {bad}: a record or an edit lies outside its buffer, or edits overlap")
    out = np.empty(int(out_offsets[-1]), np.uint8)
    _splice(buf, start, end, rows, edit_row_ptr, edit_from, edit_to, edit_off, edit_data, out)
    return out, out_offsets


def assemble_plain(buf: Bytes, start: Offsets, end: Offsets, rows: Offsets) -> tuple[Bytes, Offsets]:
    """Return (out, out_offsets): the records `rows` as they are, one line feed after each."""
    if rows.size and (int(rows.min()) < 0 or int(rows.max()) >= start.size):
        raise ValueError(f"assemble_plain: rows must be between 0 and {start.size - 1}")
    first, beyond = start[rows], end[rows]
    if rows.size and (int(first.min()) < 0 or int(beyond.max()) > buf.size or bool((beyond < first).any())):
        raise ValueError(f"assemble_plain: a record lies outside the buffer of {buf.size} bytes")
    out_offsets = np.zeros(rows.size + 1, np.int64)
    np.cumsum(beyond - first + 1, out=out_offsets[1:])
    out = np.empty(int(out_offsets[-1]), np.uint8)
    _splice_plain(buf, start, end, rows, out)
    return out, out_offsets

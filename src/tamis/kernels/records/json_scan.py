"""JSON Lines: where records and their wanted fields are, and which records are not JSON objects.

`scan_records` splits at line feeds, validates every line in full and notes the spans of wanted depth-1 fields, in one
pass. Memory per record: 29 bytes plus 17 per wanted key. Time is linear in bytes; 64 bytes are compared at once (the
idea of simdjson: bit masks of quotes, backslashes and control characters). `rescan` finds other keys in validated
records. Two keys that differ only in lone surrogates are the same key: a lone surrogate reads as U+FFFD everywhere in
Tamis.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tamis.errors import FormatError
from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, count_bits, mask_eq, pointer, put
from tamis.kernels.language.jit import helper, kernel
from tamis.kernels.language.types import I32_OUT, I64_IN, I64_OUT, U8_IN, U8_OUT, U64_OUT
from tamis.kernels.records._json_escape import key_index
from tamis.kernels.records._json_grammar import (
    ARRAY,
    BAD,
    DEEP,
    ESCAPED,
    FALSE,
    FLOAT,
    INT,
    INVALID_JSON,
    INVALID_UTF8,
    MAX_DEPTH,
    MISSING,
    N_STACK_WORDS,
    NOT_OBJECT,
    NULL,
    OBJECT,
    OK,
    STRING,
    TOO_DEEP,
    TOO_LARGE,
    TRUE,
    is_utf8,
    line_end,
    skip_space,
    string_end,
    value_end,
)
from tamis.kernels.records._json_skip import discover_kernel, rescan_kernel
from tamis.kernels.records.json_text import at_least_a_block

__all__ = [
    "ARRAY",
    "ESCAPED",
    "FALSE",
    "FLOAT",
    "INT",
    "INVALID_JSON",
    "INVALID_UTF8",
    "MAX_DEPTH",
    "MISSING",
    "NOT_OBJECT",
    "NULL",
    "OBJECT",
    "OK",
    "STATUS_NAMES",
    "STRING",
    "TOO_DEEP",
    "TOO_LARGE",
    "TRUE",
    "Scan",
    "count_lines",
    "discover_keys",
    "rescan",
    "scan_records",
]

STATUS_NAMES = ("ok", "not_object", "invalid_json", "invalid_utf8", "too_deep", "too_large")

Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int64]


@dataclass(frozen=True)
class Scan:
    """What one pass over a buffer found. Offsets are into the buffer; a row whose status is not OK has no fields."""

    keys: tuple[str, ...]
    n_records: int
    n_blank: int
    start: Offsets  # record bytes are buf[start:end): without line end, with surrounding white space
    end: Offsets
    close: Offsets  # offset of the final '}', -1 unless OK
    n_fields: NDArray[np.int32]  # members at depth 1, duplicates counted
    status: Bytes
    types: Bytes  # (n_records, n_keys)
    val_start: Offsets  # (n_records, n_keys); strings without their quotes
    val_len: Offsets

    @classmethod
    def of_lines(
        cls, start: Offsets, end: Offsets, close: Offsets, n_fields: NDArray[np.int32], status: Bytes, n_blank: int = 0
    ) -> Scan:
        """Build the scan of records whose positions are known and whose fields are not."""
        kinds, spans = np.zeros((len(start), 0), np.uint8), np.zeros((len(start), 0), np.int64)
        return cls((), len(start), n_blank, start, end, close, n_fields, status, kinds, spans, spans)

    def only(self, rows: Offsets) -> Scan:
        """Return the scan of some of the records."""
        names = ("start", "end", "close", "n_fields", "status", "types", "val_start", "val_len")
        return replace(self, n_records=len(rows), **{name: getattr(self, name)[rows] for name in names})


@kernel(types.int64(U8_IN, types.int64))
def count_lines(buf, n):
    """Line feeds in buf[:n), plus one for a last line without."""
    n_lines = 1
    last = buf.size - 64
    p = 0
    while p < n:
        base = p if p < last else last
        n_lines += count_bits(mask_eq(buf, base, 10) >> np.uint64(p - base))
        p = base + 64
    return n_lines


@helper
def _object(buf, last, p, e, keys, key_ends, n_keys, stack, scratch, row, kinds, val_start, val_len):
    """Scan the object whose '{' is at p. (offset of its '}', number of members), or (BAD or DEEP, 0)."""
    n_fields = 0
    p = skip_space(buf, p + 1, e)
    if p < e and at(buf, p) == 125:
        return p, n_fields
    while p < e and at(buf, p) == 34:
        key_at = p + 1
        q, escaped = string_end(buf, last, key_at, e)
        if q < 0:
            return BAD, 0
        k = key_index(buf, key_at, q, escaped, keys, key_ends, n_keys, scratch)
        p = skip_space(buf, q + 1, e)
        if p >= e or at(buf, p) != 58:
            return BAD, 0
        p = skip_space(buf, p + 1, e)
        if p >= e:
            return BAD, 0
        after, kind = value_end(buf, last, p, e, np.int64(1), stack)
        if after < 0:
            return after, 0
        n_fields += 1
        if k >= 0:
            quote = 1 if STRING <= kind <= ESCAPED else 0
            put(kinds, row * n_keys + k, kind)
            put(val_start, row * n_keys + k, p + quote)
            put(val_len, row * n_keys + k, after - p - 2 * quote)
        p = skip_space(buf, after, e)
        if p >= e:
            return BAD, 0
        c = at(buf, p)
        if c == 125:
            return p, n_fields
        if c != 44:
            return BAD, 0
        p = skip_space(buf, p + 1, e)
    return BAD, 0


@helper
def _clear_row(row, n_keys, kinds, val_start, val_len):
    for j in range(row * n_keys, row * n_keys + n_keys):
        put(kinds, j, MISSING)
        put(val_start, j, 0)
        put(val_len, j, 0)


@kernel(
    types.void(
        *(U8_IN, types.int64, U8_IN, I64_IN, types.int64, U64_OUT, U8_OUT),
        *(I64_OUT, I64_OUT, I64_OUT, I32_OUT, U8_OUT, U8_OUT, I64_OUT, I64_OUT, I64_OUT),
    )
)
def _scan_kernel(
    buf, n, keys, key_ends, max_record_bytes, stack, scratch,
    start, end, close, n_fields, status, kinds, val_start, val_len, totals,
):  # fmt: skip
    last = buf.size - 64
    n_keys = key_ends.size
    buf, keys, key_ends, stack, scratch = (
        pointer(buf), pointer(keys), pointer(key_ends), pointer(stack), pointer(scratch),
    )  # fmt: skip
    kinds, val_start, val_len = pointer(kinds), pointer(val_start), pointer(val_len)
    row, n_blank, p = np.int64(0), np.int64(0), np.int64(0)
    while p < n:
        s = p
        feed, high = line_end(buf, last, p, n)
        p = feed + 1
        first = skip_space(buf, s, feed)
        if first == feed:
            n_blank += 1
            continue
        e = feed - 1 if at(buf, feed - 1) == 13 else feed
        closing = BAD
        n_members = 0
        _clear_row(row, n_keys, kinds, val_start, val_len)
        if e - s > max_record_bytes:
            verdict = TOO_LARGE
        elif high and not is_utf8(buf, last, s, e):
            verdict = INVALID_UTF8
        elif at(buf, first) == 123:
            closing, n_members = _object(
                *(buf, last, first, e, keys, key_ends, n_keys, stack, scratch),
                *(row, kinds, val_start, val_len),
            )
            if closing < 0:
                verdict = TOO_DEEP if closing == DEEP else INVALID_JSON
            elif skip_space(buf, closing + 1, e) != e:
                verdict = INVALID_JSON
            else:
                verdict = OK
            if verdict != OK:
                closing = BAD
                n_members = 0
                _clear_row(row, n_keys, kinds, val_start, val_len)
        else:
            after, _ = value_end(buf, last, first, e, np.int64(0), stack)
            if after == DEEP:
                verdict = TOO_DEEP
            elif after < 0 or skip_space(buf, after, e) != e:
                verdict = INVALID_JSON
            else:
                verdict = NOT_OBJECT
        put(start, row, s)
        put(end, row, e)
        put(close, row, closing)
        put(n_fields, row, n_members)
        put(status, row, verdict)
        row += 1
    put(totals, 0, row)
    put(totals, 1, n_blank)


def scan_records(buf: Bytes, keys: Sequence[str], max_record_bytes: int) -> Scan:
    """Find, validate and index the records of `buf`, which must begin at the start of a line."""
    names = tuple(keys)
    if len(set(names)) != len(names):
        raise ValueError(f"scan_records: keys must differ, got {names!r}; ask for each key once")
    n_bytes, block = buf.size, at_least_a_block(buf)
    packed, key_ends = _pack_keys(names)
    n_lines = int(count_lines(block, n_bytes))
    start, end, close, val_start, val_len = (
        np.empty(n_lines * width, np.int64) for width in (1, 1, 1, len(names), len(names))
    )
    n_fields, status = np.empty(n_lines, np.int32), np.empty(n_lines, np.uint8)
    kinds, totals = np.empty(n_lines * len(names), np.uint8), np.zeros(2, np.int64)
    _scan_kernel(
        *(
            block,
            n_bytes,
            packed,
            key_ends,
            max_record_bytes,
            np.zeros(N_STACK_WORDS, np.uint64),
            np.empty(4, np.uint8),
        ),
        *(start, end, close, n_fields, status, kinds, val_start, val_len, totals),
    )
    n = int(totals[0])
    shape = (n, len(names))
    return Scan(
        keys=names,
        n_records=n,
        n_blank=int(totals[1]),
        start=_trim(start, n),
        end=_trim(end, n),
        close=_trim(close, n),
        n_fields=_trim(n_fields, n),
        status=_trim(status, n),
        types=_trim(kinds, n * len(names)).reshape(shape),
        val_start=_trim(val_start, n * len(names)).reshape(shape),
        val_len=_trim(val_len, n * len(names)).reshape(shape),
    )


def rescan(buf: Bytes, scan: Scan, keys: Sequence[str]) -> tuple[Bytes, Offsets, Offsets]:
    """Return (types, val_start, val_len) of other keys in the records of `scan`; rows that are not OK give MISSING."""
    _check_same(buf, scan)
    packed, key_ends = _pack_keys(tuple(keys))
    shape = (scan.n_records, len(keys))
    kinds, val_start, val_len = np.zeros(shape, np.uint8), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    rescan_kernel(
        *(at_least_a_block(buf), packed, key_ends, np.empty(4, np.uint8), scan.start, scan.close, scan.status),
        *(kinds.reshape(-1), val_start.reshape(-1), val_len.reshape(-1)),
    )
    return kinds, val_start, val_len


def discover_keys(buf: Bytes, scan: Scan, limit: int = 10_000) -> list[str]:
    """Distinct depth-1 keys of all OK records in order of first appearance. More than `limit` is a FormatError."""
    _check_same(buf, scan)
    n_slots = 1 << (2 * limit + 1).bit_length()
    first, length = np.zeros(limit, np.int64), np.zeros(limit, np.int64)
    n_keys = int(
        discover_kernel(
            *(at_least_a_block(buf), scan.start, scan.close, scan.status),
            *(np.full(n_slots, -1, np.int64), first, length),
        )
    )
    if n_keys < 0:
        raise FormatError(
            f"discover_keys: expected at most {limit} different field names, got more; "
            "name the fields to keep, or nest the varying ones in one field"
        )
    names: dict[str, None] = {}
    for k in range(n_keys):
        raw = buf[first[k] : first[k] + length[k]].tobytes()
        names[_whole_characters(json.loads(b'"' + raw + b'"'))] = None
    return list(names)


def _check_same(buf: Bytes, scan: Scan) -> None:
    if scan.n_records and int(scan.end[-1]) > buf.size:
        raise ValueError(
            f"expected the buffer that was scanned, of {int(scan.end[-1])} bytes or more, got one of {buf.size} bytes"
        )


def _whole_characters(text: str) -> str:
    """Return `text` with every lone surrogate replaced by U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _pack_keys(names: tuple[str, ...]) -> tuple[Bytes, Offsets]:
    encoded = [_whole_characters(name).encode("utf-8") for name in names]
    ends = np.cumsum([len(key) for key in encoded], dtype=np.int64) if encoded else np.zeros(0, np.int64)
    return np.frombuffer(b"".join(encoded) + b"\0", np.uint8), ends


def _trim(array: NDArray[Any], n: int) -> NDArray[Any]:
    """Return the first n entries; release the rest unless it is small (blank lines are rare)."""
    return array[:n] if array.size - n <= max(64, n // 8) else array[:n].copy()

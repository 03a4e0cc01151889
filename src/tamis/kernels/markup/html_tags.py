"""How many tags a web page has, and how deeply its elements nest at most, as a parser would count that has no memory.

An end tag closes the innermost open element of its name, and all inside it; one without such an element closes
nothing. Start tags count; elements that do not nest in themselves (`FLAT`) hold no others. Comments, and the contents
of scripts and the like (`RAW`), have no tags; only in drawings (svg, math) a tag can end itself. Names are compared by
64-bit hashes of their ASCII lower case.

One pass; memory: 8 bytes per level, and 8 KiB. Looking in vain for what end tags close takes a bounded number of steps:
beyond it, an end tag far from its element closes nothing, which can only make the depth larger.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, lowest_bit, mask_eq, pointer, put
from tamis.kernels.language.jit import helper, kernel
from tamis.kernels.language.types import I64_OUT, U8_IN, U64_IN, U64_OUT
from tamis.kernels.records.json_text import at_least_a_block

FLAT = (
    *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"),
    *("colgroup", "dd", "dt", "li", "optgroup", "option", "p", "rb", "rp", "rt", "rtc"),
    *("tbody", "td", "tfoot", "th", "thead", "tr"),
)
"""Elements without content, and those that the next of their kind ends."""
RAW = ("script", "style", "textarea", "title", "xmp", "iframe")
_DRAWINGS = ("svg", "math")
FINE, TOO_MANY, TOO_DEEP = range(3)
OTHER, FLAT_NAME, DRAWING, FIRST_RAW = range(4)
ZERO, ALL = np.uint64(0), np.uint64(2**64 - 1)
_BASIS, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # FNV-1a
_N_SLOTS = 1024
_SLOT = np.uint64(_N_SLOTS - 1)  # no two of the names above share a slot
_MAX_STEPS, _NEAR = 10_000_000, 16


@helper
def _next(page, last, p, n, byte):
    """Return where `byte` is next, from p on; n if nowhere."""
    while p < n:
        base = p if p < last else last
        found = mask_eq(page, base, byte) & (ALL << np.uint64(p - base))
        if found != ZERO:
            q = base + lowest_bit(found)
            return q if q < n else n
        p = base + 64
    return n


@helper
def _lower(byte):
    return byte + 32 if 65 <= byte <= 90 else byte


@helper
def _comment_end(page, last, p, n):
    q = _next(page, last, p, n, 62)
    while q < n:
        if q - 2 >= p and at(page, q - 1) == 45 and at(page, q - 2) == 45:
            return q - 2
        q = _next(page, last, q + 1, n, 62)
    return n


@helper
def _raw_end(page, last, p, n, codes, k):
    """Return where the end tag begins whose name begins with that of RAW[k]; n if nowhere."""
    q = _next(page, last, p, n, 60)
    while q < n:
        if q + 2 < n and at(page, q + 1) == 47:
            code, length = at(codes, k), np.int64(0)
            while code != ZERO and q + 2 + length < n:
                if np.uint64(_lower(np.int64(at(page, q + 2 + length)))) != code & np.uint64(255):
                    break
                code >>= np.uint64(8)
                length += 1
            if code == ZERO:
                return q
        q = _next(page, last, q + 1, n, 60)
    return n


@helper
def _name(page, p, n):
    """Return the hash of the name that begins at p, and its end."""
    value = _BASIS
    while p < n:
        c = np.int64(at(page, p))
        if c == 62 or c == 47 or c == 32 or 9 <= c <= 13 or 28 <= c <= 31:
            break
        value = (value ^ np.uint64(_lower(c))) * _PRIME
        p += 1
    return value, p


@helper
def _kind(names, kinds, name):
    """Return FLAT_NAME, DRAWING, FIRST_RAW + the number in RAW, or OTHER."""
    slot = np.int64(name & _SLOT)
    return np.int64(at(kinds, slot)) if at(names, slot) == name else np.int64(OTHER)


@kernel(types.int64(U8_IN, types.int64, types.int64, types.int64, U64_IN, U8_IN, U64_IN, U64_OUT, I64_OUT, I64_OUT))
def _tags(page, n, max_tags, max_depth, names, kinds, codes, stack, counts, totals):
    # names, kinds: by slot; codes: RAW as numbers; stack: max_depth + 1 hashes; counts: of open names, by slot
    last = page.size - 64
    page, names, kinds, codes = pointer(page), pointer(names), pointer(kinds), pointer(codes)
    stack, counts = pointer(stack), pointer(counts)
    p, n_tags, depth, n_drawings, n_steps = np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    outcome, end = np.int64(FINE), np.int64(-1)
    while True:
        q = _next(page, last, p, n, 60)
        p = q + 1
        if p >= n:
            break
        c = np.int64(at(page, p))
        if c == 33:
            if q + 3 < n and at(page, q + 2) == 45 and at(page, q + 3) == 45:
                p = _comment_end(page, last, q + 4, n)
            continue
        is_end = c == 47
        begin = p + 1 if is_end else p
        if begin >= n:
            break
        first = _lower(np.int64(at(page, begin)))
        if first < 97 or first > 122:
            continue
        name, p = _name(page, begin, n)
        kind = _kind(names, kinds, name)
        if kind == DRAWING:
            n_drawings += -1 if is_end else 1
            n_drawings = n_drawings if n_drawings > 0 else np.int64(0)
        slot = np.int64(name & _SLOT)
        if is_end:
            if kind != FLAT_NAME and at(counts, slot) > 0:
                lowest = depth - _NEAR if n_steps > _MAX_STEPS and depth > _NEAR else np.int64(0)
                k = depth - 1
                while k >= lowest and at(stack, k) != name:
                    k -= 1
                if k < lowest:
                    n_steps += depth - lowest
                    continue
                while depth > k:
                    depth -= 1
                    closed = np.int64(at(stack, depth) & _SLOT)
                    put(counts, closed, at(counts, closed) - 1)
            continue
        n_tags += 1
        if n_tags > max_tags:
            outcome = np.int64(TOO_MANY)
            break
        if depth + 1 > max_depth:
            outcome = np.int64(TOO_DEEP)
            break
        if kind == FLAT_NAME:
            continue
        if n_drawings > 0:
            end = end if end >= p else _next(page, last, p, n, 62)
            if end >= n:
                break
            if at(page, end - 1) == 47:
                continue
        put(stack, depth, name)
        put(counts, slot, at(counts, slot) + 1)
        depth += 1
        if n_drawings == 0 and kind >= FIRST_RAW:
            p = _raw_end(page, last, p, n, codes, kind - FIRST_RAW)
    put(totals, 0, n_tags)
    return outcome


class TagCount(NamedTuple):
    """`outcome`: FINE, or TOO_MANY or TOO_DEEP, and then counting ended there."""

    n_tags: int
    outcome: int


def count_tags(page: bytes, max_tags: int, max_depth: int) -> TagCount:
    """Count the tags of a page in UTF-8, up to more than `max_tags` or elements nested more than `max_depth` deep."""
    names, kinds, codes = _names()
    stack, counts, totals = np.empty(max_depth + 1, np.uint64), np.zeros(_N_SLOTS, np.int64), np.zeros(1, np.int64)
    data = np.frombuffer(page, np.uint8)
    limits = (max_tags, max_depth)
    outcome = _tags(at_least_a_block(data), len(page), *limits, names, kinds, codes, stack, counts, totals)
    return TagCount(int(totals[0]), int(outcome))


@cache
def _names() -> tuple[NDArray[np.uint64], NDArray[np.uint8], NDArray[np.uint64]]:
    names, kinds = np.zeros(_N_SLOTS, np.uint64), np.zeros(_N_SLOTS, np.uint8)
    of_names = {**dict.fromkeys(FLAT, FLAT_NAME), **dict.fromkeys(_DRAWINGS, DRAWING)}
    of_names |= {name: FIRST_RAW + k for k, name in enumerate(RAW)}
    for name, kind in of_names.items():
        slot = _hash_of(name) & int(_SLOT)
        assert not kinds[slot], f"{name} shares a slot: choose more slots"
        names[slot], kinds[slot] = _hash_of(name), kind
    return names, kinds, np.array([int.from_bytes(name.encode(), "little") for name in RAW], np.uint64)


def _hash_of(name: str) -> int:
    value = int(_BASIS)
    for byte in name.encode():
        value = (value ^ byte) * int(_PRIME) % 2**64
    return value

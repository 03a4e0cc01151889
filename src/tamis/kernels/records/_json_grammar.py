"""The JSON grammar of one line as compiled helpers: lines, UTF-8, strings, numbers, nested values.

Accepts exactly what `json.loads(line.decode("utf-8"))` accepts, with two differences: nesting is limited to MAX_DEPTH
(no recursion: one bit per open container) and integers may have any number of digits. Every helper works on
`buf[p:e)`, where e is the end of the line; the byte at e, if any, is a line feed or carriage return, which no string
can contain. Blocks of 64 bytes are compared at once: `last` (not negative) is where the last whole block of the buffer
begins, and a block that would begin later is shifted back to there.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from tamis.kernels.language.intrinsics import at, lowest_bit, mask_eq, mask_ge, mask_lt, put
from tamis.kernels.language.jit import helper

MAX_DEPTH = 1000
N_STACK_WORDS = (MAX_DEPTH + 64) // 64

OK, NOT_OBJECT, INVALID_JSON, INVALID_UTF8, TOO_DEEP, TOO_LARGE = range(6)
MISSING, NULL, FALSE, TRUE, INT, FLOAT, STRING, ESCAPED, OBJECT, ARRAY = range(10)

BAD = -1  # in place of an end: not JSON
DEEP = -2  # in place of an end: nested deeper than MAX_DEPTH

ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
ZERO = np.uint64(0)
ONE = np.uint64(1)
_EVEN = np.uint64(0x5555555555555555)


@helper
def line_end(buf, last, p, n):
    """Return the position of the next line feed in buf[p:n) or n, and whether a byte before it is not ASCII."""
    high = ZERO
    while p < n:
        base = p if p < last else last
        live = ALL << np.uint64(p - base)
        feeds = mask_eq(buf, base, 10) & live
        highs = mask_ge(buf, base, 128) & live
        if feeds != ZERO:
            k = lowest_bit(feeds)
            high |= highs & ((ONE << np.uint64(k)) - ONE)
            return base + k, high != ZERO
        high |= highs
        p = base + 64
    return n, high != ZERO


@helper
def is_utf8(buf, last, p, e):
    """Return True if buf[p:e) is UTF-8 as Unicode defines it.

    No overlong forms, no surrogates, nothing above U+10FFFF.

    Works on bit masks of 64 bytes: lead bytes shifted left by 1, 2 and 3 mark where continuation bytes must be. Bits
    that
    leave the mask at the top are carried into the next block.
    """
    carry = ZERO
    after_e0 = ZERO  # 1 when the last byte of the block before was this lead byte
    after_ed = ZERO
    after_f0 = ZERO
    after_f4 = ZERO
    while p < e:
        base = p if p < last else last
        shift = np.uint64(p - base)
        live = ALL >> shift
        if e - p < 64:
            live &= (ONE << np.uint64(e - p)) - ONE
        high = (mask_ge(buf, base, 0x80) >> shift) & live
        if high == ZERO:
            if carry != ZERO:
                return False
        else:
            lead2 = (mask_ge(buf, base, 0xC0) >> shift) & live
            lead3 = (mask_ge(buf, base, 0xE0) >> shift) & live
            lead4 = (mask_ge(buf, base, 0xF0) >> shift) & live
            wrong = lead2 & ((mask_lt(buf, base, 0xC2) | mask_ge(buf, base, 0xF5)) >> shift)
            due = (lead2 << ONE) | (lead3 << np.uint64(2)) | (lead4 << np.uint64(3)) | carry
            wrong |= due ^ (high & ~lead2)
            carry = (lead2 >> np.uint64(63)) | (lead3 >> np.uint64(62)) | (lead4 >> np.uint64(61))
            e0 = (mask_eq(buf, base, 0xE0) >> shift) & live
            ed = (mask_eq(buf, base, 0xED) >> shift) & live
            f0 = (mask_eq(buf, base, 0xF0) >> shift) & live
            f4 = (mask_eq(buf, base, 0xF4) >> shift) & live
            below_90 = mask_lt(buf, base, 0x90) >> shift
            below_a0 = mask_lt(buf, base, 0xA0) >> shift
            wrong |= ((e0 << ONE) | after_e0) & below_a0
            wrong |= ((ed << ONE) | after_ed) & ~below_a0
            wrong |= ((f0 << ONE) | after_f0) & below_90
            wrong |= ((f4 << ONE) | after_f4) & ~below_90
            if wrong != ZERO:
                return False
            after_e0 = e0 >> np.uint64(63)
            after_ed = ed >> np.uint64(63)
            after_f0 = f0 >> np.uint64(63)
            after_f4 = f4 >> np.uint64(63)
        p = base + 64
    return carry == ZERO


@helper
def skip_space(buf, p, e):
    while p < e:
        c = at(buf, p)
        if c > 32 or not (c == 32 or c == 9 or c == 13):
            break
        p += 1
    return p


@helper
def is_hex(c):
    return 48 <= c <= 57 or 65 <= c <= 70 or 97 <= c <= 102


@helper
def escaped_bits(slashes):
    """Return a mask of the bytes that follow a backslash that is not escaped itself.

    These are the bytes after runs of odd length, and every second one inside a run.

    The block must not begin right after such a backslash. Adding carries a bit through every run
    (Langdale and Lemire, 2019).
    """
    follows = slashes << ONE
    odd_starts = slashes & ~_EVEN & ~follows
    return (_EVEN ^ ((odd_starts + slashes) << ONE)) & follows


@helper
def _are_long_escapes(buf, p, e, letters):
    """Return True if all of these bytes of the block at p are a `u` followed by four hex digits."""
    while letters != ZERO:
        q = p + lowest_bit(letters)
        letters &= letters - ONE
        if at(buf, q) != 117 or q + 5 > e:
            return False
        for k in range(q + 1, q + 5):
            if not is_hex(at(buf, k)):
                return False
    return True


@helper
def string_end(buf, last, p, e):
    """Return (position of the closing quote, whether there is an escape); p is after the opening quote.

    64 bytes at a time. A block that reaches beyond e holds the line feed there, which ends the search.
    """
    found = ZERO
    while p < e and p <= last:
        quotes, slashes = mask_eq(buf, p, 34), mask_eq(buf, p, 92)
        letters = escaped_bits(slashes)
        stops = (quotes & ~letters) | mask_lt(buf, p, 32)
        before = (stops - ONE) & ~stops  # all bits below the first; all where there is none
        begins = slashes & ~letters & before
        found |= begins
        letters &= before
        if letters != ZERO:
            short = quotes | slashes | mask_eq(buf, p, 110) | mask_eq(buf, p, 116) | mask_eq(buf, p, 114)
            short |= mask_eq(buf, p, 47) | mask_eq(buf, p, 98) | mask_eq(buf, p, 102)
            if letters & ~short != ZERO and not _are_long_escapes(buf, p, e, letters & ~short):
                return BAD, True
        if stops != ZERO:
            q = p + lowest_bit(stops)
            return (q if at(buf, q) == 34 else BAD), found != ZERO
        p += 64 - np.int64(begins >> np.uint64(63))  # one whose letter is in the next block is looked at again there
    end, escaped = _string_end_near_last(buf, last, p, e)
    return end, escaped or found != ZERO


@helper
def _string_end_near_last(buf, last, p, e):
    """Return the same as `string_end` at the end of the buffer, where a whole block cannot be read from p."""
    escaped = False
    while p < e:
        base = p if p < last else last
        stops = mask_eq(buf, base, 34) | mask_eq(buf, base, 92) | mask_lt(buf, base, 32)
        stops &= ALL << np.uint64(p - base)
        p = base + 64
        while stops != ZERO:
            q = base + lowest_bit(stops)
            c = at(buf, q)
            if c == 34:
                return q, escaped
            if c != 92 or q + 1 >= e:
                return BAD, escaped
            escaped = True
            c = at(buf, q + 1)
            after = q + 2
            if c == 117:
                after = q + 6
                if after > e:
                    return BAD, escaped
                for k in range(q + 2, after):
                    if not is_hex(at(buf, k)):
                        return BAD, escaped
            elif not (c == 110 or c == 34 or c == 92 or c == 116 or c == 114 or c == 47 or c == 98 or c == 102):
                return BAD, escaped
            if after >= p:
                p = after
                break
            stops &= ALL << np.uint64(after - base)
    return BAD, escaped


@helper
def digits_end(buf, p, e):
    while p < e and 48 <= at(buf, p) <= 57:
        p += 1
    return p


@helper
def spells(buf, p, e, n_bytes, word):
    """Return True if the n_bytes at p are those of `word`, lowest byte first."""
    if p + n_bytes > e:
        return False
    k = 0
    while k < n_bytes and at(buf, p + k) == (word >> np.uint64(8 * k)) & np.uint64(255):
        k += 1
    return k == n_bytes


TRUE_WORD = np.uint64(int.from_bytes(b"true", "little"))
NULL_WORD = np.uint64(int.from_bytes(b"null", "little"))
FALSE_WORD = np.uint64(int.from_bytes(b"false", "little"))
NAN_WORD = np.uint64(int.from_bytes(b"NaN", "little"))
INFINITY_WORD = np.uint64(int.from_bytes(b"Infinity", "little"))


@helper
def scalar_end(buf, p, e):
    """Return (end, type) of a number or literal that begins at p < e."""
    c = at(buf, p)
    if c == 45:
        p += 1
        if p >= e:
            return BAD, MISSING
        c = at(buf, p)
        if c != 73 and not 48 <= c <= 57:
            return BAD, MISSING
    if 48 <= c <= 57:
        p = p + 1 if c == 48 else digits_end(buf, p + 1, e)
        kind = INT
        if p < e and at(buf, p) == 46:
            q = digits_end(buf, p + 1, e)
            if q == p + 1:
                return BAD, MISSING
            p = q
            kind = FLOAT
        if p < e and (at(buf, p) | 32) == 101:
            p += 1
            if p < e and (at(buf, p) == 43 or at(buf, p) == 45):
                p += 1
            q = digits_end(buf, p, e)
            if q == p:
                return BAD, MISSING
            p = q
            kind = FLOAT
        return p, kind
    # Literals: the length is typed, because numba compiles a helper anew for every constant it is called with.
    word, n_bytes, kind = TRUE_WORD, np.int64(4), TRUE
    if c == 110:
        word, kind = NULL_WORD, NULL
    elif c == 102:
        word, n_bytes, kind = FALSE_WORD, np.int64(5), FALSE
    elif c == 78:
        word, n_bytes, kind = NAN_WORD, np.int64(3), FLOAT
    elif c == 73:
        word, n_bytes, kind = INFINITY_WORD, np.int64(8), FLOAT
    return (p + n_bytes, kind) if spells(buf, p, e, n_bytes, word) else (BAD, MISSING)


FIRST_KEY, NEXT_KEY, FIRST_VALUE, NEXT_VALUE, AFTER_VALUE = range(5)


@helper
def container_end(buf, last, p, e, n_open, stack):
    """End of the object or array that begins at p, inside `n_open` others; BAD or DEEP.

    `stack` has one bit per level.
    """
    level = n_open
    in_object = False
    state = NEXT_VALUE
    while p < e:
        c = at(buf, p)
        closes = False
        if c == 32 or c == 9 or c == 13:
            p += 1
            continue
        if state == AFTER_VALUE:
            if c == 44:
                state = NEXT_KEY if in_object else NEXT_VALUE
                p += 1
                continue
            closes = c == 125 if in_object else c == 93
            if not closes:
                return BAD
        elif state <= NEXT_KEY:
            if c == 34:
                q, _ = string_end(buf, last, p + 1, e)
                if q < 0:
                    return BAD
                p = skip_space(buf, q + 1, e)
                if p >= e or at(buf, p) != 58:
                    return BAD
                p += 1
                state = NEXT_VALUE
                continue
            closes = c == 125 and state == FIRST_KEY
            if not closes:
                return BAD
        elif c == 34:
            q, _ = string_end(buf, last, p + 1, e)
            if q < 0:
                return BAD
            p = q + 1
            state = AFTER_VALUE
            continue
        elif c == 123 or c == 91:
            level += 1
            if level > MAX_DEPTH:
                return DEEP
            in_object = c == 123
            bit = ONE << np.uint64(level & 63)
            word = at(stack, level >> 6)
            put(stack, level >> 6, word | bit if in_object else word & ~bit)
            state = FIRST_KEY if in_object else FIRST_VALUE
            p += 1
            continue
        else:
            closes = c == 93 and state == FIRST_VALUE
            if not closes:
                p, _ = scalar_end(buf, p, e)
                if p < 0:
                    return BAD
                state = AFTER_VALUE
                continue
        p += 1
        level -= 1
        if level == n_open:
            return p
        in_object = (at(stack, level >> 6) >> np.uint64(level & 63)) & ONE != ZERO
        state = AFTER_VALUE
    return BAD


@helper
def value_end(buf, last, p, e, n_open, stack):
    """Return (end, type) of the value at p < e; end is BAD or DEEP when there is none.

    The end of a string is after its quote.
    """
    c = at(buf, p)
    if c == 34:
        q, escaped = string_end(buf, last, p + 1, e)
        return (q + 1 if q >= 0 else BAD), (ESCAPED if escaped else STRING)
    if c == 123 or c == 91:
        return container_end(buf, last, p, e, n_open, stack), (OBJECT if c == 123 else ARRAY)
    return scalar_end(buf, p, e)

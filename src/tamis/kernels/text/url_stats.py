r"""URLs in each document, exactly as re.findall finds them with the original's pattern, in one pass of linear time.

NARROW is the pattern of release 1.4.0: https?:// and one or more of letters, digits, $-_@.&+/:=?#~!*(), or %hh. WIDE
is that of the releases before: its [$-_] was a range, so that a URL also took in <>;[]^\ and the like. Both take each
character without looking back, so a scan from every "://" finds the same matches.
"""
# Compiled functions carry their types in the signatures of the kernels.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import string

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, lowest_bit, mask_eq, pointer
from tamis.kernels.language.jit import helper, kernel
from tamis.kernels.language.types import I64_IN, I64_OUT, U8_IN, U8_OUT
from tamis.kernels.records._json_grammar import is_hex
from tamis.kernels.text._blocks import ONE, PAD, ZERO, block_at, valid_mask
from tamis.kernels.text._counts import by_name, put_counts, room_for

COUNTS = {
    "urls": "URLs, by the pattern of the original's release 1.4.0.",
    "url_chars": "Characters of those URLs.",
    "porn_urls": "Those URLs that contain 'porn'.",
}
WIDE_COUNTS = {
    "wide_urls": "URLs, by the pattern of the releases before, which goes on over <>;[]^ and the like.",
    "wide_url_chars": "Characters of those URLs.",
    "wide_porn_urls": "Those URLs that contain 'porn'.",
}


def _table(chars: str) -> NDArray[np.uint8]:
    table = np.zeros(256, np.uint8)
    table[[ord(c) for c in chars]] = 1
    return table


NARROW = _table(string.ascii_letters + string.digits + "$-_@.&+/:=?#~!*(),")
WIDE = _table(string.ascii_letters + "!" + "".join(map(chr, range(0x24, 0x60))))


@helper
def _url_begin(source, s, q):
    """Return the position of the http or https before the colon at q, at s or later, or -1 if there is none."""
    if q - s >= 5 and at(source, q - 1) == 115:
        q -= 1
    if q - s < 4 or at(source, q - 1) != 112 or at(source, q - 2) != 116:
        return np.int64(-1)
    return q - 4 if at(source, q - 3) == 116 and at(source, q - 4) == 104 else np.int64(-1)


@kernel(types.void(U8_IN, I64_IN, I64_IN, U8_IN, U8_OUT, I64_OUT))
def _urls(data, starts, ends, allowed_in, pad_out, out):
    source, pad, allowed = pointer(data), pointer(pad_out), pointer(allowed_in)
    size = data.size
    for row in range(starts.size):
        free = at(starts, row)  # the next match begins here or later
        p = free
        e = at(ends, row)
        n_urls = n_chars = n_porn = 0
        while p < e:
            block, i = block_at(source, size, p, e, pad)
            colons = mask_eq(block, i, 58) & mask_eq(block, i + 1, 47) & mask_eq(block, i + 2, 47) & valid_mask(p, e)
            while colons != ZERO:
                q = p + lowest_bit(colons)
                colons &= colons - ONE
                begin = _url_begin(source, free, q)
                if begin < 0 or q + 3 >= e:
                    continue
                q += 3
                n_porn_here = 0
                body = q
                while q < e:
                    c = at(source, q)
                    if at(allowed, c) != 0:
                        if c == 110 and q - 3 >= begin and at(source, q - 1) == 114:
                            n_porn_here += at(source, q - 2) == 111 and at(source, q - 3) == 112
                        q += 1
                    elif c == 37 and q + 3 <= e and is_hex(at(source, q + 1)) and is_hex(at(source, q + 2)):
                        q += 3
                    else:
                        break
                if q > body:
                    n_urls += 1
                    n_chars += q - begin
                    n_porn += n_porn_here > 0
                    free = q
            p += 64
        put_counts(out, row, (n_urls, n_chars, n_porn))


def url_counts(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], wide: bool = False
) -> dict[str, NDArray[np.int64]]:
    """Return one array per name of COUNTS, or of WIDE_COUNTS with `wide`."""
    out = room_for(COUNTS, starts.size)
    _urls(data, starts, ends, WIDE if wide else NARROW, np.zeros(PAD, np.uint8), out)
    return by_name(WIDE_COUNTS if wide else COUNTS, out)

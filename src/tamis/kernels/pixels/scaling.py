"""The square in the middle of an image, scaled: bicubic and antialiased, in fixed point.

First down the columns, then along the rows, 32 rows of the result at a time: they are transposed in between, so that
both steps add whole vectors. The result is made in tiles of 32 x 32 pixels, which stay in the nearest cache. Bytes
are brightness; between the steps it has seven bits below the point, so that the result is exact but for rounding (a
hundredth of one level on average, before it is rounded to whole ones).
"""
# Compiled functions carry their types in the signatures of the kernels; numbers there change from int to int64.
# mypy: disable-error-code="no-untyped-def, assignment"

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tamis.kernels.language import types
from tamis.kernels.language.intrinsics import at, pointer, prefetch, put
from tamis.kernels.language.jit import kernel
from tamis.kernels.language.lanes import AT_ONCE, LANES, POINT_BITS, store_weighted, turn_eight
from tamis.kernels.language.types import I16_IN, I16_OUT, I64_IN, U8_IN, U8_OUT

_SHARPNESS = -0.5  # of the cubic: what Pillow and torch take where they antialias
_ONE = 1 << 14
_HALF = np.int64(1 << (POINT_BITS - 1))
_BITS = np.int64(POINT_BITS)
_MOST = np.int64(255)


@kernel(
    types.void(
        U8_IN, types.int64, types.int64, types.int64, I64_IN, I16_IN, types.int64, I16_OUT, I16_OUT, I16_OUT, U8_OUT
    )
)
def _scale(pixels, first, row_bytes, n_columns, starts, weights_in, n_taps, rows_out, turned_out, tiles, out):
    source, weights, turned, target = pointer(pixels), pointer(weights_in), pointer(turned_out), pointer(out)
    rows, tile = pointer(rows_out), pointer(tiles)
    other = LANES * AT_ONCE  # a second tile follows the first
    side = starts.size
    width = n_columns * 3
    padded = (width + 7) // 8 * 8
    for top in range(0, side, LANES):
        n_rows = min(LANES, side - top)
        for y in range(n_rows):  # whole rows: memory is read ahead of them
            begin = first + at(starts, top + y) * row_bytes
            ahead = begin + n_taps * row_bytes
            x = np.int64(0)
            while x < width:
                x = min(x, width - AT_ONCE)  # the last ones once more, rather than what follows them
                for place in (ahead + x, ahead + x + row_bytes):  # two rows that the next one needs first
                    prefetch(source, place)
                    prefetch(source, place + 64)
                store_weighted(rows, y * padded + x, source, begin + x, row_bytes, weights, (top + y) * n_taps, n_taps)
                x += AT_ONCE
        for x in range(0, padded, 8):
            for y in range(0, LANES, 8):
                turn_eight(turned, x * LANES + y, LANES, rows, y * padded + x, padded)
        for left in range(0, side, LANES):
            n = min(LANES, side - left)
            for k in range(n):
                begin = at(starts, left + k) * AT_ONCE
                store_weighted(tile, k * AT_ONCE, turned, begin, AT_ONCE, weights, (left + k) * n_taps, n_taps)
            for i in range(0, n * 3, 8):
                for y in range(0, LANES, 8):
                    turn_eight(tile, other + y * AT_ONCE + i, AT_ONCE, tile, i * LANES + y, LANES)
            for y in range(n_rows):
                to, begin = ((top + y) * side + left) * 3, other + y * AT_ONCE
                for i in range(n * 3):
                    put(target, to + i, (at(tile, begin + i) + _HALF) >> _BITS)


def scaled_square(
    pixels: np.ndarray[Any, np.dtype[np.uint8]], side: int, room: Any
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """uint8 [side, side, 3] of uint8 [height, width, 3].

    `room(name, n)`: n bytes for passing use, whatever is in them.
    """
    height, width = pixels.shape[:2]
    short = min(height, width)
    left, top = (width - short) // 2, (height - short) // 2
    if short < LANES or not pixels.flags.c_contiguous:
        square = np.zeros((short, max(short, LANES), 3), np.uint8)
        square[:, :short] = pixels[top : top + short, left : left + short]
        pixels, left, top = square, 0, 0
    row_bytes = pixels.shape[1] * 3
    starts, weights, n_taps = weights_of(short, side)
    n_columns = max(short, LANES)
    n = LANES * (n_columns * 3 + 8)
    space = room("scaling", 4 * n + 4 * LANES * AT_ONCE).view(np.int16)
    made = np.empty((side, side, 3), np.uint8)
    _scale(
        pixels.reshape(-1), top * row_bytes + left * 3, row_bytes, n_columns, starts, weights, n_taps,
        space[:n], space[n : 2 * n], space[2 * n :], made.reshape(-1),
    )  # fmt: skip
    return made


@lru_cache(maxsize=64)
def weights_of(n_from: int, n_to: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], int]:
    """Return, for each of n_to pixels, the first source pixel and the weights of its source pixels, and n_taps.

    There are n_from source pixels; each target pixel has n_taps weights, which sum to 2**14.
    """
    scale = n_from / n_to
    stretch = max(scale, 1.0)
    centres = (np.arange(n_to) + 0.5) * scale
    begins = np.maximum(0, np.floor(centres - 2 * stretch + 0.5)).astype(np.int64)
    ends = np.minimum(n_from, np.floor(centres + 2 * stretch + 0.5)).astype(np.int64)
    n_taps = int((ends - begins).max())
    begins = np.minimum(begins, n_from - n_taps)
    place = begins[:, None] + np.arange(n_taps)
    share = np.where(place < ends[:, None], _cubic((place + 0.5 - centres[:, None]) / stretch), 0.0)
    share /= share.sum(1, keepdims=True)
    fixed = np.rint(share * _ONE).astype(np.int64)
    largest = fixed.argmax(1)
    fixed[np.arange(n_to), largest] += _ONE - fixed.sum(1)
    return begins, fixed.astype(np.int16).reshape(-1), n_taps


def _cubic(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    x, a = np.abs(x), _SHARPNESS
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))

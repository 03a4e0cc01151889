"""Scores in two bytes: enough to say on which side of a limit a document lies.

A score is kept as the code of a small interval that holds it: zero by itself, else its sign, its power of two (from 2**-24 up to
2**40) and the first nine bits behind that. So an interval is 0.2 % wide at most, a whole number up to 1,024 has one to itself, and
codes are in the order of the scores. A limit that falls inside an interval leaves the documents in it undecided, and only those.

code 0         exactly 0                                    codes 2-32763   2**-24 up to 2**40 less a little, 512 per power of two
code 1         above 0, below 2**-24                        code 32764      what is beyond
code -k        mirrors code k                               code 32767      no number (NaN); -32768: not measured
"""

from __future__ import annotations

from typing import Any

import numpy as np

NO_NUMBER, MISSING = 32767, -32768
BEYOND = 32764
RELATIVE_WIDTH = 2.0**-9
_MANTISSA = 9
_SMALLEST = -24
_SHIFT = np.uint64(52 - _MANTISSA)
_SIGNLESS = np.uint64((1 << 63) - 1)
_BASE = np.int64(((1023 + _SMALLEST) << _MANTISSA) - 2)
Array = np.ndarray[Any, Any]


def codes_of(numbers: Array) -> Array:
    """Return the code of each number (64-bit floats), as 16-bit integers."""
    bits = np.ascontiguousarray(numbers, np.float64).view(np.uint64) & _SIGNLESS
    codes = (bits >> _SHIFT).view(np.int64)
    codes -= _BASE
    np.clip(codes, 1, BEYOND, out=codes)
    codes -= bits == 0
    made = codes.astype(np.int16)
    if len(numbers) and not numbers.min() >= 0.0:
        np.negative(made, out=made, where=numbers < 0.0)
        made[np.isnan(numbers)] = NO_NUMBER
    return made


def ends_of(codes: Array) -> tuple[Array, Array]:
    """Return the least and the greatest score that each code may represent, both inclusive; NaN if there is none."""
    size = np.abs(codes.astype(np.int64))
    low, high = _edge(size), np.nextafter(_edge(size + 1), -np.inf)
    low[size == 1] = np.nextafter(0.0, 1.0)
    low[size == 0] = high[size == 0] = 0.0
    high[size == BEYOND] = np.inf
    low[size > BEYOND] = high[size > BEYOND] = np.nan
    return np.where(codes < 0, -high, low), np.where(codes < 0, -low, high)


def _edge(index: Array) -> Array:
    """Return the lower end of each code from 2 on."""
    at = np.clip(index, 2, BEYOND) - 2
    power, part = at >> _MANTISSA, at & ((1 << _MANTISSA) - 1)
    edges: Array = np.ldexp(1.0 + part * RELATIVE_WIDTH, power + _SMALLEST)
    return edges

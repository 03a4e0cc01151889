"""Polynomial hashes of byte strings, rolled from one position to the next. Helpers for the kernels of this group.

The hash of n bytes x is the sum of TABLE[x[i]] * BASE**(n-1-i) modulo 2**64. It only proposes: unequal strings of some
thousand bytes can be made that share it (Thue and Morse), so kernels compare bytes before they call strings equal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
BASE_NUMBER = 0x9E6C63D0676A9A99  # odd, 1 modulo 4 plus 4: its powers repeat late
BASE = np.uint64(BASE_NUMBER)
BASE2, BASE3, BASE4 = (np.uint64(pow(BASE_NUMBER, k, 1 << 64)) for k in (2, 3, 4))


def _mixed(x: int) -> int:
    """Return SplitMix64's output for the counter x."""
    x = (x * 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


TABLE: NDArray[np.uint64] = np.array([_mixed(byte + 1) for byte in range(256)], np.uint64)


def power(n: int) -> np.uint64:
    """Return BASE**n modulo 2**64."""
    return np.uint64(pow(BASE_NUMBER, n, 1 << 64))


def leaving(n: int) -> NDArray[np.uint64]:
    """Return what each byte contributes to a hash when it is n positions behind the last one."""
    with np.errstate(over="ignore"):
        return TABLE * power(n)

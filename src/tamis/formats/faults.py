"""Tells a failed allocation from bad data. Covers: Python, zlib, lzma, zstd and Arrow. Imports none of them.

A worker runs under a hard memory cap, so any decoder may fail for want of memory at any instant. Calling that
"corrupt data" would quarantine good records; every decoder therefore asks here before it blames its input.
"""

from __future__ import annotations

import errno

_SIGNS = (
    "malloc of size",
    "realloc of size",
    "cannot allocate memory",
    "allocation error",
    "allocation failed",
    "failed to allocate",
    "could not allocate",
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "bad_alloc",
    "error -4 while",
)
"""Lower case. "error -4 while" is how zlib says Z_MEM_ERROR; "allocation error" is zstd's."""


def is_memory_failure(exc: BaseException) -> bool:
    """True when `exc` (or what it was raised from) is a failed allocation, whatever its class.

    >>> is_memory_failure(OSError("malloc of size 64 failed")), is_memory_failure(OSError("Corrupt snappy data"))
    (True, False)
    """
    seen: set[int] = set()
    current: BaseException | None = exc
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        if isinstance(current, MemoryError):
            return True
        if isinstance(current, OSError) and current.errno == errno.ENOMEM:
            return True
        text = str(current).lower()
        if any(sign in text for sign in _SIGNS):
            return True
        current = current.__cause__
    return False

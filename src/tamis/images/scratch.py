"""Bytes that a thread uses for one image after the other.

Memory of this size comes from the kernel anew each time (workers give back everything above 128 kB at once, so that the
budget holds), page by page: for an image of 500 x 375 pixels that took as long as half of its decoding.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from tamis._lazy import np

if TYPE_CHECKING:
    Bytes = np.ndarray[Any, np.dtype[np.uint8]]

MOST_BYTES = 4 << 20  # a larger piece is made for once, and not kept


class Scratch(threading.local):
    """Pieces of memory by name, of which each thread has its own.

    Whoever asks for a name again overwrites what was in it.
    """

    def __init__(self) -> None:
        self._held: dict[str, Bytes] = {}

    def bytes(self, name: str, n: int) -> Bytes:
        """`n` bytes, whatever is in them. MemoryError where they cannot be had."""
        held = self._held.get(name)
        if held is None or len(held) < n:
            held = np.empty(n if n > MOST_BYTES else 1 << max(16, (n - 1).bit_length()), np.uint8)
            if n <= MOST_BYTES:
                self._held[name] = held
        return held[:n]

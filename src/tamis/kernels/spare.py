"""Large buffers that the next unit of a worker uses again.

The kernel clears every page that it hands out: for a worker that reads a block and unescapes its texts that is twice the input,
a tenth of its CPU time. So between two units that follow each other at once a worker keeps its block and its text buffer. They
are not counted as held: who is idle gives them back (`drop`), and in the next unit they are part of what it takes anyway.

A buffer is used again only if nothing refers to it any more: whatever a stage keeps, it keeps.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_LEAST_BYTES = 1 << 20  # what is smaller costs little
_kept: dict[str, Bytes] = {}
_active = False


def activate() -> None:
    """From now on buffers are kept in this process: one that works unit after unit, in one thread."""
    global _active
    _active = True


def take(name: str, n_bytes: int) -> Bytes:
    """An array of so many bytes, with anything in it. `name`: what it is for, so that each purpose has its own."""
    import numpy as np

    if not _active or n_bytes < _LEAST_BYTES:
        return np.empty(n_bytes, np.uint8)
    kept = _kept.get(name)
    # Three: the table's, this function's and the call's own. One that is much too large would be counted as if it were not.
    if kept is not None and n_bytes <= kept.size <= n_bytes + n_bytes // 8 and sys.getrefcount(kept) == 3:
        return kept[:n_bytes]
    _kept.pop(name, None)
    kept = None
    made = np.empty(n_bytes + n_bytes // 16, np.uint8)  # the next one may be a little larger
    _kept[name] = made
    return made[:n_bytes]


def held_bytes() -> int:
    return sum(buffer.nbytes for buffer in _kept.values())


def drop() -> None:
    _kept.clear()

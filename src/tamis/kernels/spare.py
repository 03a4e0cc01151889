"""A pool of large buffers that the next unit of a worker reuses.

The kernel clears every page that it gives out: for a worker that reads a block and unescapes its texts that is twice
the input, a tenth of its CPU time. So between two units that follow each other at once a worker keeps its block and
its text buffer.

A buffer comes back when the array that was given out, and with it every slice, view and Arrow buffer made from it, is
garbage (`weakref.finalize`). What a stage keeps is not in the pool. The pool does not count as memory held by stages:
an idle worker returns it to the system (`drop`), and in the next unit it is part of what that takes anyway.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_LEAST_BYTES = 1 << 20  # what is smaller costs little
_pool: dict[str, Bytes] = {}  # by purpose, the one that came back last
_active = False


def activate() -> None:
    """Keep buffers in this process from now on.

    For a process that works unit after unit, in one thread.
    """
    global _active
    _active = True


def take(name: str, n_bytes: int) -> Bytes:
    """Return an array of this many bytes with arbitrary contents.

    `name`: the purpose of the array, so that each purpose has its own.
    """
    import numpy as np

    if not _active or n_bytes < _LEAST_BYTES:
        return np.empty(n_bytes, np.uint8)
    memory = _pool.pop(name, None)
    # One that is much too large would be counted as if it were not.
    if memory is None or not n_bytes <= memory.size <= n_bytes + n_bytes // 8:
        del memory  # before there is another one
        memory = np.empty(n_bytes + n_bytes // 16, np.uint8)  # the next one may be a little larger
    # Over a memoryview, not a slice: numpy lets views of a slice refer to the whole, and nothing would show that the
    # slice is in use.
    lent = np.frombuffer(memoryview(memory), np.uint8, n_bytes)  # type: ignore[arg-type]
    weakref.finalize(lent, _hand_back, name, memory).atexit = False
    return lent


def _hand_back(name: str, memory: Bytes) -> None:
    if _active:
        _pool[name] = memory


def held_bytes() -> int:
    """Return the bytes in the pool: not in use, and not given back to the system."""
    return sum(memory.nbytes for memory in _pool.values())


def drop() -> None:
    _pool.clear()

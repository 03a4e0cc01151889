"""What memory that grew is made of: Python objects, Arrow buffers, native allocations, shared memory, or nothing that anybody counts.

`counts()` is read in a worker after every partition (40 us): Python's allocator counts its blocks, Arrow its bytes, glibc what
malloc has handed out. That tells most leaks apart, but not a large Python object (which is malloc's too) from a native
allocation that some Python object points to. `census()` does: it weighs the Python objects themselves, in up to half a second,
so only a worker under suspicion is asked for it. tracemalloc would tell the line too, but slows every allocation and takes
memory inside the cap while it watches: it is for the user to start.

Does not decide whether anything leaks: see leaks.py.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

PYTHON, ARROW, NATIVE = "Python objects", "Arrow buffers", "native memory"
SHARED, UNEXPLAINED = "shared memory", "unexplained memory"
_SMALL_BLOCK_BYTES = 64  # the usual block of Python's allocator, whose arenas malloc does not count
_MAX_OBJECTS = 200_000
_NOT_WEIGHED = (ModuleType, type, FunctionType, BuiltinFunctionType, MethodType, CodeType, FrameType)


def counts() -> dict[str, int]:
    """What the allocators of this process say they have handed out: python_blocks, arrow_bytes and, where the C library tells,
    malloc_bytes (which includes Arrow's and large Python objects)."""
    arrow = getattr(sys.modules.get("pyarrow"), "total_allocated_bytes", None)
    malloc = _malloc_counter()
    known = {"python_blocks": sys.getallocatedblocks(), "arrow_bytes": arrow() if arrow is not None else 0}
    return known if malloc is None else {**known, "malloc_bytes": malloc()}


@functools.cache
def _malloc_counter() -> Callable[[], int] | None:
    import ctypes

    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    function = getattr(ctypes.CDLL(None), "mallinfo2", None)  # glibc 2.33 and later
    if function is None:
        return None

    class _Mallinfo(ctypes.Structure):
        _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

    function.argtypes, function.restype = [], _Mallinfo

    def in_use() -> int:
        told = function()
        return int(told.uordblks) + int(told.hblkhd)

    return in_use


@dataclass(frozen=True)
class Census:
    """Bytes of Python objects, in all and by type."""

    n_bytes: int
    by_type: Mapping[str, int]

    def largest_growth(self, before: Census) -> str:
        """The type that grew most since `before`."""
        grown = {name: n - before.by_type.get(name, 0) for name, n in self.by_type.items()}
        return max(grown, key=lambda name: grown[name], default="")


def census(roots: Iterable[Any] = (), max_objects: int = _MAX_OBJECTS) -> Census | None:
    """Weigh the objects that the collector watches, those reachable from `roots`, and what they hold directly.

    `roots` is for what the collector does not list any more (objects from before gc.freeze()). None when there are more than
    `max_objects`: such a walk would take long and copy pages that processes share.
    """
    watched = gc.get_objects()
    if len(watched) > max_objects:
        return None
    by_type: dict[str, int] = {}
    stack: list[Any] = [*watched, *roots]
    own = {id(watched), id(stack), id(by_type)}
    seen: set[int] = set(own)
    own.add(id(seen))
    seen |= own
    # An earlier census is not what grew, nor its dict, which the collector lists by itself from Python 3.14 on.
    seen.update(id(item.by_type) for item in watched if type(item) is Census)
    not_weighed = (*_NOT_WEIGHED, Census)
    del watched
    while stack:
        item = stack.pop()
        if id(item) in seen or issubclass(type(item), not_weighed):  # objects may answer anything for __class__
            continue
        seen.add(id(item))
        if len(seen) > max_objects:
            return None
        name = type(item).__name__
        by_type[name] = by_type.get(name, 0) + _weight(item)
        stack += gc.get_referents(item)
    return Census(sum(by_type.values()), by_type)


def _weight(item: Any) -> int:
    kind = type(item)
    if kind.__module__.partition(".")[0] == "pyarrow":  # says its buffers, which are Arrow's
        return int(kind.__basicsize__)
    try:
        return sys.getsizeof(item, 0)
    except Exception:  # a __sizeof__ that a user wrote
        return 0


@dataclass(frozen=True)
class Shares:
    """Growth in bytes by what it is made of."""

    python: float = 0.0
    arrow: float = 0.0
    native: float = 0.0
    unexplained: float = 0.0
    shared: float = 0.0  # pages that other processes could use too: anonymous, or of files in /dev/shm

    @property
    def main(self) -> str:
        """What most of it is."""
        named = {PYTHON: self.python, ARROW: self.arrow, NATIVE: self.native, SHARED: self.shared}
        named[UNEXPLAINED] = self.unexplained
        return max(named, key=lambda name: named[name])


def attribute(
    grown_bytes: float,
    *,
    blocks: float = 0.0,
    arrow_bytes: float = 0.0,
    malloc_bytes: float | None = None,
    python_bytes: float | None = None,
    shared_bytes: float = 0.0,
) -> Shares:
    """Divide growth among its causes, given how the counters grew; `python_bytes` is what a census found.

    Without a census, memory from malloc counts as Python's where blocks are many and small (up to 4 KB each), else as native.
    """
    left = max(0.0, grown_bytes)
    shared = min(max(0.0, shared_bytes), left)
    left -= shared
    arrow = min(max(0.0, arrow_bytes), left)
    left -= arrow
    malloc = left if malloc_bytes is None else max(0.0, malloc_bytes - max(0.0, arrow_bytes))
    if python_bytes is None:
        small = max(0.0, blocks) * _SMALL_BLOCK_BYTES
        python = small + malloc if blocks > 0 and malloc / blocks <= 4096 else small
    else:
        python = max(0.0, python_bytes)
    python = min(python, left)
    left -= python
    native = 0.0 if malloc_bytes is None else min(max(0.0, malloc - python), left)
    return Shares(python, arrow, native, left - native, shared)

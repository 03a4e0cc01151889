"""Attribution of growth: Python objects, Arrow buffers, native allocations, shared memory, or uncounted memory.

`counts()` is read in a worker after every partition (40 us): Python's allocator counts its blocks, Arrow its bytes,
glibc what malloc has handed out. That separates most leaks, but not a large Python object (which is malloc's too)
from typing import NamedTuple
from a native allocation that some Python object points to. `count_objects()` does: it measures the Python objects
themselves, in up to half a second, so only a worker under suspicion does it. tracemalloc would report the line too, but
slows every allocation and takes memory inside the cap while it runs: it is for the user to start.

Does not decide whether anything leaks: see leaks.py.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from tamis._dataclasses import dataclass

PYTHON, ARROW, NATIVE = "Python objects", "Arrow buffers", "native memory"
SHARED, UNEXPLAINED = "shared memory", "unexplained memory"
_SMALL_BLOCK_BYTES = 64  # the usual block of Python's allocator, whose arenas malloc does not count
_MAX_OBJECTS = 200_000
_NOT_MEASURED = (ModuleType, type, FunctionType, BuiltinFunctionType, MethodType, CodeType, FrameType)


def counts() -> dict[str, int]:
    """Return what the allocators of this process report as allocated.

    Keys: python_blocks, arrow_bytes and, where the C library reports it, malloc_bytes (which includes Arrow's
    and large Python objects).
    """
    arrow = getattr(sys.modules.get("pyarrow"), "total_allocated_bytes", None)
    malloc = _malloc_counter()
    counters = {"python_blocks": sys.getallocatedblocks(), "arrow_bytes": arrow() if arrow is not None else 0}
    return counters if malloc is None else {**counters, "malloc_bytes": malloc()}


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
        stats = function()
        return int(stats.uordblks) + int(stats.hblkhd)

    return in_use


@dataclass(frozen=True)
class ObjectCounts:
    """Bytes of Python objects and of the Arrow buffers they pin: in total, by type, and by the leading variable."""

    n_bytes: int
    by_type: Mapping[str, int]
    arrow_bytes: int = 0
    arrow_by_type: Mapping[str, int] = field(default_factory=dict)
    by_variable: Mapping[str, int] = field(default_factory=dict)

    def largest_growth(self, before: ObjectCounts) -> str:
        """Return the type that grew most since `before`."""
        return _largest(self.by_type, before.by_type)[0]

    def growth(self, before: ObjectCounts) -> Growth:
        """Return what grew since `before`."""
        variable, n_bytes = _largest(self.by_variable, before.by_variable)
        return Growth(
            self.n_bytes - before.n_bytes,
            self.largest_growth(before),
            self.arrow_bytes - before.arrow_bytes,
            _largest(self.arrow_by_type, before.arrow_by_type)[0],
            variable if n_bytes > 0 else "",
            max(0, n_bytes),
        )


class Growth(NamedTuple):
    """Growth between two censuses. `variable`: the one that grew most, with its growth in bytes."""

    python_bytes: int
    python_type: str
    arrow_bytes: int
    arrow_type: str
    variable: str
    variable_bytes: int


def _largest(now: Mapping[str, int], before: Mapping[str, int]) -> tuple[str, int]:
    grown = {name: n - before.get(name, 0) for name, n in now.items()}
    name = max(grown, key=lambda name: grown[name], default="")
    return name, grown.get(name, 0)


def count_objects(
    roots: Iterable[Any] = (), max_objects: int = _MAX_OBJECTS, variables: Mapping[str, Any] | None = None
) -> ObjectCounts | None:
    """Weigh the objects that the collector watches and those reachable from `roots` and `variables`.

    `roots` and `variables` are for what the collector does not list any more (objects from before gc.freeze()); what
    `variables` lead to is also counted by their names. None when there are more than `max_objects`: such a walk would
    take long and copy pages that processes share.
    """
    collected = gc.get_objects()
    if len(collected) > max_objects:
        return None
    walk = _Walk(max_objects)
    # An earlier count is not what grew, nor its dicts, which the collector lists by itself from Python 3.14 on.
    earlier = [item for item in collected if type(item) is ObjectCounts]
    walk.skip(collected, earlier, variables, *(d for c in earlier for d in (c.by_type, c.arrow_by_type, c.by_variable)))
    by_variable: dict[str, int] = {}
    walk.skip(by_variable)
    for name, value in (variables or {}).items():
        before = walk.total_bytes
        if not walk.measure([value]):
            return None
        by_variable[name] = walk.total_bytes - before
    del earlier
    if not walk.measure([*collected, *roots]):
        return None
    return ObjectCounts(
        sum(walk.by_type.values()), walk.by_type, sum(walk.arrow_by_type.values()), walk.arrow_by_type, by_variable
    )


class _Walk:
    """A walk over objects in which each is weighed once, and each piece of memory that several of them share, too."""

    def __init__(self, max_objects: int) -> None:
        self.by_type: dict[str, int] = {}
        self.arrow_by_type: dict[str, int] = {}
        self._visited_ids: set[int] = set()
        self._addresses: set[int] = set()
        self._max_objects = max_objects
        self.skip(self, self.by_type, self.arrow_by_type, self._visited_ids, self._addresses, self.__dict__)
        self._ndarray: Any = getattr(sys.modules.get("numpy"), "ndarray", None)
        self._pyarrow: Any = sys.modules.get("pyarrow")

    @property
    def total_bytes(self) -> int:
        return sum(self.by_type.values()) + sum(self.arrow_by_type.values())

    def skip(self, *items: Any) -> None:
        """Leave these out: what the count itself is made of."""
        self._visited_ids.update(map(id, items))

    def measure(self, stack: list[Any]) -> bool:
        """Weigh everything that these lead to; False when that is too much."""
        self.skip(stack)
        while stack:
            item = stack.pop()
            kind = type(item)
            if id(item) in self._visited_ids or issubclass(
                kind, _NOT_MEASURED
            ):  # objects may answer anything for __class__
                continue
            self._visited_ids.add(id(item))
            if len(self._visited_ids) > self._max_objects:
                return False
            name = kind.__name__
            self.by_type[name] = self.by_type.get(name, 0) + self._weight(item, kind)
            if self._ndarray is not None and issubclass(kind, self._ndarray):
                stack += self._array_bytes(item)
            elif kind.__module__.partition(".")[0] == "pyarrow":
                self.arrow_by_type[name] = self.arrow_by_type.get(name, 0) + self._pinned_bytes(item)
            stack += gc.get_referents(item)
        return True

    def _weight(self, item: Any, kind: type) -> int:
        if kind.__module__.partition(".")[0] == "pyarrow":  # says its buffers, which are Arrow's
            return int(kind.__basicsize__)
        if self._ndarray is not None and issubclass(kind, self._ndarray):
            return int(kind.__basicsize__) + self._owned_bytes(item)
        try:
            return sys.getsizeof(item, 0)
        except Exception:  # a __sizeof__ that a user wrote
            return 0

    def _owned_bytes(self, array: Any) -> int:
        """Return the bytes of an array that refers to no other object for them, once."""
        if self._ndarray.base.__get__(array) is not None:
            return 0
        address = int(self._ndarray.__array_interface__.__get__(array)["data"][0])
        return self._once(address, int(self._ndarray.nbytes.__get__(array)))

    def _array_bytes(self, array: Any) -> list[Any]:
        """Return what an array keeps alive and the collector does not list: what it is a view of, and its objects."""
        base = self._ndarray.base.__get__(array)
        if base is not None:
            return [base]
        if not self._ndarray.dtype.__get__(array).hasobject or array.size > self._max_objects:
            return []
        return list(self._ndarray.flat.__get__(array)) if self._ndarray.dtype.__get__(array).kind == "O" else []

    def _pinned_bytes(self, item: Any) -> int:
        """Return the bytes of the buffers of an Arrow object, whole: a slice of one row keeps all of its table."""
        try:
            return sum(self._root_bytes(buffer) for buffer in _buffers(item, self._pyarrow) if buffer is not None)
        except Exception:  # a type without buffers (an extension of the user's, a closed file)
            return 0

    def _root_bytes(self, buffer: Any) -> int:
        while buffer.parent is not None:
            buffer = buffer.parent
        return self._once(int(buffer.address), int(buffer.size)) if buffer.is_cpu else 0

    def _once(self, address: int, n_bytes: int) -> int:
        """Return `n_bytes` the first time that memory at this address is met, else 0."""
        if address in self._addresses:
            return 0
        self._addresses.add(address)
        return n_bytes


def _buffers(item: Any, pyarrow: Any) -> Iterator[Any]:
    """Yield the buffers of an Arrow object, as it refers to them."""
    if isinstance(item, pyarrow.Buffer):
        yield item
    elif isinstance(item, pyarrow.Array):
        yield from item.buffers()
        if isinstance(item, pyarrow.DictionaryArray):
            yield from item.dictionary.buffers()
    elif isinstance(item, pyarrow.ChunkedArray):
        for chunk in item.chunks:
            yield from _buffers(chunk, pyarrow)
    elif isinstance(item, (pyarrow.Table, pyarrow.RecordBatch)):
        for column in item.columns:
            yield from _buffers(column, pyarrow)


def variables_of(owners: Iterable[Any]) -> dict[str, Any]:
    """Return what objects, and the code of their classes, can keep something in, by dotted name.

    That is their attributes, those of their classes, and the globals of the modules that these are defined in. Modules
    of the user's own that they import count too; installed packages and the standard library do not. A class of the
    user's script is sent to workers by value, so its globals are those of its functions: no module has them.
    """
    variables = _Variables()
    for owner in owners:
        kind = type(owner)
        for name, value in getattr(owner, "__dict__", {}).items():
            variables.note(f"{kind.__name__}.{name}", value)
        for base in kind.__mro__:
            if base is kind or _is_users(base.__module__):
                variables.add_class(base)
    variables.finish()
    return variables.values


class _Variables:
    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._spaces: list[Mapping[str, Any]] = []
        self._visited_ids: set[int] = set()

    def note(self, name: str, value: Any) -> None:
        if not isinstance(value, (ModuleType, type)):
            self.values.setdefault(name, value)

    def add_class(self, kind: type) -> None:
        if id(kind) in self._visited_ids:
            return
        self._visited_ids.add(id(kind))
        for name, value in list(vars(kind).items()):
            function = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
            function = function.fget if isinstance(function, property) else function
            if isinstance(function, FunctionType):
                self.add_function(f"{kind.__name__}.{name}", function)
            elif not name.startswith("__"):
                self.note(f"{kind.__name__}.{name}", value)

    def add_function(self, name: str, function: FunctionType) -> None:
        if id(function) in self._visited_ids:
            return
        self._visited_ids.add(id(function))
        self._spaces.append(function.__globals__)
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            self.values.setdefault(f"{name}.{variable}", cell)
        self.values.setdefault(f"{name}.__defaults__", (function.__defaults__, function.__kwdefaults__))

    def finish(self) -> None:
        """Follow globals into other modules of the user's."""
        while self._spaces:
            space = self._spaces.pop()
            if id(space) in self._visited_ids:
                continue
            self._visited_ids.add(id(space))
            module = str(space.get("__name__", "__main__"))
            for name, value in list(space.items()):
                if name.startswith("__"):
                    continue
                if isinstance(value, ModuleType):
                    if _is_users(value.__name__):
                        self._spaces.append(vars(value))
                elif isinstance(value, FunctionType):
                    if _is_users(value.__module__):
                        self.add_function(f"{module}.{name}", value)
                elif isinstance(value, type):
                    if _is_users(value.__module__):
                        self.add_class(value)
                else:
                    self.note(f"{module}.{name}", value)


def _is_users(module: object) -> bool:
    """Return True for modules that are neither installed nor Python's nor ours.

    What no module is known of came by value.
    """
    name = str(module)
    if name.partition(".")[0] in {"tamis", *sys.stdlib_module_names} - {"__main__"}:
        return False
    path = getattr(sys.modules.get(name), "__file__", None)
    return (
        name == "__main__"
        or name not in sys.modules
        or (path is not None and "site-packages" not in path and "dist-packages" not in path)
    )


class Shares(NamedTuple):
    """Growth in bytes by what it is made of."""

    python: float = 0.0
    arrow: float = 0.0
    native: float = 0.0
    unexplained: float = 0.0
    shared: float = 0.0  # pages that other processes could use too: anonymous, or of files in /dev/shm

    @property
    def main(self) -> str:
        """The type that most of it is."""
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
    pinned_bytes: float = 0.0,
) -> Shares:
    """Divide growth among its causes, given how the counters grew; `python_bytes` is what `count_objects` reported.

    `pinned_bytes`: Arrow buffers that it found; those over memory of others are in no counter of Arrow's.

    Without a count, memory from malloc counts as Python's where blocks are many and small (up to 4 KB each), else as
    native.
    """
    unattributed = max(0.0, grown_bytes)
    shared = min(max(0.0, shared_bytes), unattributed)
    unattributed -= shared
    arrow = min(max(0.0, arrow_bytes, pinned_bytes), unattributed)
    unattributed -= arrow
    malloc = unattributed if malloc_bytes is None else max(0.0, malloc_bytes - arrow)
    if python_bytes is None:
        small = max(0.0, blocks) * _SMALL_BLOCK_BYTES
        python = small + malloc if blocks > 0 and malloc / blocks <= 4096 else small
    else:
        python = max(0.0, python_bytes)
    python = min(python, unattributed)
    unattributed -= python
    native = 0.0 if malloc_bytes is None else min(max(0.0, malloc - python), unattributed)
    return Shares(python, arrow, native, unattributed - native, shared)

"""Distinguish failed allocations from bad data and from a user's own errors.

Covers: Python, numpy, zlib, zstd, Arrow, torch, the loader of shared libraries and threads. Imports none of them.

A worker runs under a hard memory cap, so any library may fail to allocate at any instant. Calling that "corrupt data"
would quarantine good records; calling a stage's own error a failed allocation would end the run with a request for a
budget that cannot exist. So the class of the exception decides. Its text decides only where a library has no better way
to report it, and only in an exception that this library made: by its class, or by the code that raised it.
"""

from __future__ import annotations

import errno
import math
import re
import traceback
from collections.abc import Iterator

_CLASSES = {"torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError"}
"""By full name, of the class or of one it is derived from. Not MemoryErrors, unlike those of numpy, Arrow and cupy."""

_NO_THREAD = "can't start new thread"
_TOO_MANY_OPEN = "too many open files"
_NO_MAP = ("failed to map segment", "cannot allocate memory")
_WORDS: dict[str, tuple[str, ...]] = {
    "zlib": ("error -4 while",),  # Z_MEM_ERROR
    "backports": ("allocation error", "not enough memory"),  # zstd, before Python 3.14
    "compression": ("allocation error", "not enough memory"),
    "zstandard": ("allocation error", "not enough memory"),  # what stages of users may use
    # An OSError without a number: what a codec or a file system inside Arrow said.
    "pyarrow": (
        "malloc of size",
        "allocation error",
        "allocation failed",
        "failed to allocate",
        "not enough memory",
        "out of memory",
        "cannot allocate memory",
        "bad_alloc",
        "error -4 while",
        "failed to launch worker thread",
    ),
    "ctypes": _NO_MAP,
    # Its stack did not fit. A thread that hits a limit on their number says the same, and is no fault of the data
    # either.
    "threading": (_NO_THREAD,),
}
"""Messages of libraries, in lower case, by package."""

_TORCH = "defaultcpuallocator: can't allocate memory"  # a plain RuntimeError, raised where the user's code calls torch
# Weights that are mapped.
_TORCH_FILE = re.compile(r"unable to mmap [0-9]{1,18} bytes from file <.*>: cannot allocate memory \(12\)", re.DOTALL)

_REQUESTED = re.compile(
    r"(?:alloc of size|tried to allocate|^unable to mmap) (?P<n>[0-9]{1,18}(?:\.[0-9]{1,6})?)(?: (?P<unit>[KMGT])iB)?",
    re.IGNORECASE,
)
"""Arrow and torch say it in words."""


def is_memory_failure(exc: BaseException) -> bool:
    """Return True if `exc`, or an exception behind it (raised from, or while handling), is a failed allocation.

    >>> is_memory_failure(MemoryError()), is_memory_failure(ValueError("the text speaks of being out of memory"))
    (True, False)
    """
    return any(_is_failed_allocation(e) for e in _chain(exc))


def is_descriptor_failure(exc: BaseException) -> bool:
    """Return True if `exc`, or an exception behind it, is a failed open: too many open files.

    >>> is_descriptor_failure(OSError(errno.EMFILE, "Too many open files"))
    True
    >>> is_descriptor_failure(OSError("Too many open files"))
    False
    """
    return any(_is_failed_opening(e) for e in _chain(exc))


def is_thread_failure(exc: BaseException) -> bool:
    """Return True if `exc`, or an exception behind it, is the failed start of a thread."""
    return any(type(e) is RuntimeError and _NO_THREAD in str(e) and _raised_in(e) == "threading" for e in _chain(exc))


def reason_of(exc: BaseException) -> str:
    """Return in one line why data cannot be decoded; raise if the data is not at fault.

    Raises MemoryError for a failed allocation, and the error itself if the file vanished, the disk fails or no file can
    be opened.
    """
    if is_memory_failure(exc):
        raise MemoryError(str(exc)) from exc
    if is_descriptor_failure(exc):
        raise exc
    if isinstance(exc, OSError) and exc.errno is not None:
        raise exc
    return (str(exc).strip() or type(exc).__name__).splitlines()[0]


def clear_frames(exc: BaseException) -> None:
    """Free the locals of the frames that failed: reporting a failed allocation takes memory, too."""
    for failed in _chain(exc):
        traceback.clear_frames(failed.__traceback__)


def requested_bytes(exc: BaseException) -> int:
    """Return how many bytes a failed allocation requested, or 0 if that is unknown.

    >>> requested_bytes(MemoryError("malloc of size 64 failed")), requested_bytes(MemoryError())
    (64, 0)
    """
    return max((_requested(e) for e in _chain(exc) if _is_failed_allocation(e)), default=0)


def _requested(exc: BaseException) -> int:
    shape, item = getattr(exc, "shape", None), getattr(getattr(exc, "dtype", None), "itemsize", None)
    if isinstance(shape, tuple) and isinstance(item, int):  # numpy's
        return math.prod((int(n) for n in shape), start=item)
    match = _REQUESTED.search(str(exc))
    if match is None:
        return 0
    number, unit = match["n"], (match["unit"] or "").lower()
    return int(float(number) * 1024 ** " kmgt".index(unit[0])) if unit else int(float(number))


def _chain(exc: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its causes, as a traceback would show them."""
    seen: set[int] = set()
    current: BaseException | None = exc
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def _is_failed_allocation(exc: BaseException) -> bool:
    if isinstance(exc, MemoryError) or (isinstance(exc, OSError) and exc.errno == errno.ENOMEM):
        return True
    if any(f"{kind.__module__}.{kind.__qualname__}" in _CLASSES for kind in type(exc).__mro__):
        return True
    text = str(exc).lower()
    if type(exc) is RuntimeError and (
        (text.startswith("[enforce fail at") and _TORCH in text) or _TORCH_FILE.match(text)
    ):
        return True
    if isinstance(exc, ImportError) and exc.path is not None:  # the loader's: one that a program raises names no file
        return any(words in text for words in _NO_MAP)
    makers = {type(exc).__module__.partition(".")[0], _raised_in(exc)}
    return any(words in text for maker in makers for words in _WORDS.get(maker, ()))


def _is_failed_opening(exc: BaseException) -> bool:
    if isinstance(exc, OSError) and exc.errno in (errno.EMFILE, errno.ENFILE):
        return True
    if _TOO_MANY_OPEN not in str(exc).lower():
        return False
    if isinstance(exc, ImportError):
        return exc.path is not None
    return bool({type(exc).__module__.partition(".")[0], _raised_in(exc)} & {"pyarrow", "torch"})


def _raised_in(exc: BaseException) -> str:
    """Return the package whose code raised the exception: that of the innermost frame.

    Returns "" for an exception that was never raised.
    """
    at = exc.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return "" if at is None else str(at.tb_frame.f_globals.get("__name__", "")).partition(".")[0]

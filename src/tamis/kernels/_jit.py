"""The only place that sets numba policy: how kernels are compiled and where the machine code is kept.

`kernel(signature, ...)` compiles at import, for exactly these signatures, and takes the result from the private cache
folder when it is there: nothing ever compiles inside a worker. `helper` is for functions that only kernels call; they
become part of their callers' machine code and are never cached or called on their own.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba import types
from numba.core.registry import cpu_target
from numba.core.runtime.nrt import rtsys

from tamis.kernels.cache import READY, cache_dir, group_of

F = TypeVar("F", bound=Callable[..., Any])

# Read-only inputs: numba refuses a read-only array for a writable signature, so wrappers pass read-only views always.
U8_IN = types.Array(types.uint8, 1, "C", readonly=True)
I64_IN = types.Array(types.int64, 1, "C", readonly=True)
U64_IN = types.Array(types.uint64, 1, "C", readonly=True)
U8_OUT = types.Array(types.uint8, 1, "C")
I32_OUT = types.Array(types.int32, 1, "C")
I64_OUT = types.Array(types.int64, 1, "C")
U64_OUT = types.Array(types.uint64, 1, "C")

# Wrappers that nobody calls are left out: they were a third of the compile time.
_POLICY: dict[str, Any] = {"nogil": True, "boundscheck": False, "error_model": "numpy", "no_cfunc_wrapper": True}
uncached: list[str] = []  # kernels of this process whose machine code could not be kept
settings: Any = numba.config
_njit: Any = numba.njit


@contextlib.contextmanager
def _loading(ready: bool) -> Iterator[None]:
    """While kernels are loaded and none is compiled, numba need not declare to itself all that it can compile: 0.1 s.

    Where an entry is missing after all, compiling fails for want of declarations and is tried again with them (`_cached`).
    """
    context = cpu_target.target_context
    if not ready or "refresh" in vars(context):
        yield
        return
    context.refresh = functools.partial(rtsys.initialize, context)
    try:
        yield
    finally:
        del context.refresh


def kernel(*signatures: Any) -> Callable[[F], F]:
    """Compile now for `signatures`; a cache that cannot be used costs time, never correctness."""

    def decorate(function: F) -> F:
        folder = cache_dir(group_of(function.__module__))
        if folder is not None:
            # Only while decorating: numba reads it then, and other numba code of this process keeps its own setting.
            before, settings.CACHE_DIR = settings.CACHE_DIR, str(folder)
            try:
                return _cached(function, list(signatures), folder)
            except OSError:  # disk full, folder gone
                pass
            finally:
                settings.CACHE_DIR = before
        uncached.append(function.__qualname__)
        return cast(F, _njit(list(signatures), **_POLICY)(function))

    return decorate


def _cached(function: F, signatures: list[Any], folder: Path) -> F:
    try:
        with _loading((folder / READY).is_file()):
            return cast(F, _njit(signatures, cache=True, **_POLICY)(function))
    except Exception:
        # A damaged entry fails in any way that unpickling can; remove it and compile again. A mistake in the kernel
        # itself fails the same way the second time.
        for entry in folder.rglob(f"*{function.__name__}-{function.__code__.co_firstlineno}.*"):
            entry.unlink(missing_ok=True)
        return cast(F, _njit(signatures, cache=True, **_POLICY)(function))


def helper(function: F) -> F:
    """A function that kernels call. Compiled only together with them."""
    return cast(F, _njit(no_cpython_wrapper=True, **_POLICY)(function))

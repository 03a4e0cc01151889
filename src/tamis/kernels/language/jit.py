"""How kernels become machine code; no other module knows it.

`kernel(signature)` marks a function that Python calls: compiled beforehand for exactly that signature by a separate
process (kernels/compile.py), and called through kernels/loading/native.py. `helper` marks functions that only kernels
call; they become part of their callers' machine code. `intrinsic` marks those that generate LLVM code themselves.
Where nothing is compiled, the last two are never called, and numba is not imported. With TAMIS_KERNELS=python all of
them are plain Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import tamis.kernels
from tamis.kernels.language.types import Signature
from tamis.kernels.loading.levels import named, runs_python
from tamis.kernels.loading.library import group_of
from tamis.kernels.loading.native import Kernel, PythonKernel, name_of

F = TypeVar("F", bound=Callable[..., Any])

COMPILING = tamis.kernels.compiling.level != ""
# Wrappers that are never called are left out: they were half of the compile time.
_POLICY: dict[str, Any] = {
    "nogil": True, "boundscheck": False, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True,
}  # fmt: skip
if COMPILING:
    import numba
    from numba.extending import intrinsic as _numba_intrinsic

    from tamis.kernels.building.codegen import Compiled
    from tamis.kernels.language.types import Array, Scalar

    _njit: Any = numba.njit
    FLAGS = named(tamis.kernels.compiling.level).flags
    compiled: list[Compiled] = []  # by this process

    def _numba_type(kind: Scalar | Array) -> Any:
        if isinstance(kind, Array):
            # numba refuses a read-only array for a writable signature.
            return numba.types.Array(_numba_type(kind.dtype), 1, "C", readonly=kind.readonly)
        return getattr(numba.types, kind.name)

    def kernel(signature: Signature) -> Callable[[F], Any]:
        wanted = _numba_type(signature.returns)(*map(_numba_type, signature.arguments))

        def decorate(function: F) -> Any:
            if function.__module__ not in tamis.kernels.compiling.modules:
                return _njit(**_POLICY)(function)  # imported by another module, which may call it
            made = _njit([wanted], **_POLICY)(function)
            (overload,) = made.overloads.values()
            code = overload.library.optimized_code()
            compiled.append(Compiled(name_of(function), signature, overload.fndesc.llvm_func_name, code))
            return made

        return decorate

    def helper(function: F) -> Any:
        """Declare a function that kernels call; it is compiled only together with them."""
        return _njit(**_POLICY)(function)

    def warm_up() -> None:
        """Compile a function, for which numba loads all that it otherwise loads with the first kernel."""
        signature = numba.void(numba.types.Array(numba.uint8, 1, "C"), numba.int64)
        _njit([signature], **_POLICY)(_touch)

    def _touch(array: Any, n: Any) -> None:
        for i in range(n):
            array[i] = array[i] + 1 if i < array.size else 0

    def intrinsic(plain: Callable[..., Any] | None = None) -> Callable[[F], Any]:
        """Declare a function that generates its own LLVM code.

        `plain` is its Python equivalent, where that has its own body.
        """
        return _numba_intrinsic

else:
    FLAGS = frozenset()

    def kernel(signature: Signature) -> Callable[[F], Any]:
        """Compiled for `signature`; the machine code is looked for when it is first called."""
        if runs_python():
            return lambda function: PythonKernel(function, signature)
        return lambda function: Kernel(function, signature, group_of(function.__module__))

    def helper(function: F) -> Any:
        """Declare a function that kernels call; it is compiled only together with them."""
        return function

    def intrinsic(plain: Callable[..., Any] | None = None) -> Callable[[F], Any]:
        """Declare a function that generates its own LLVM code.

        `plain` is its Python equivalent, where that has its own body.
        """
        return lambda function: plain or function

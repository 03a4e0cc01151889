"""Compiled kernels, loaded from shared libraries and called by ctypes, without numba.

See building/codegen.py for the arguments.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import operator
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tamis.errors import TamisError
from tamis.kernels.language.types import Array, Signature, entry_symbol
from tamis.kernels.loading import library
from tamis.kernels.loading.levels import this_level
from tamis.kernels.loading.library import import_all

_SLOTS = {"boolean": "?7x", "float32": "f4x", "float64": "d", "uint64": "Q"}  # others as signed numbers of 8 bytes
_NUMBERS: dict[str, Callable[[Any], Any]] = {"boolean": bool, "float32": float, "float64": float}
_RESULTS: dict[str, Callable[[int], Any]] = {"void": lambda _: None, "boolean": bool, "int64": int}
_kernels: list[Kernel] = []  # all of this process


class Kernel:
    """A compiled function. Its arguments are checked against its signature; it runs without the interpreter's lock."""

    def __init__(self, function: Callable[..., Any], signature: Signature, group: str) -> None:
        functools.update_wrapper(self, function)
        self.name, self.signature, self.group = name_of(function), signature, group
        self._result = _RESULTS[signature.returns.name]
        self._arguments: list[
            tuple[Any, bool, Any]
        ] = []  # of an array its type and whether it is only read; or of a number
        slots = "=q"
        for kind in signature.arguments:
            if isinstance(kind, Array):
                self._arguments.append((np.dtype(kind.dtype.name), kind.readonly, None))
                slots += "qq"
            else:
                self._arguments.append((None, True, _NUMBERS.get(kind.name, operator.index)))
                slots += _SLOTS.get(kind.name, "q")
        self._pack = struct.Struct(slots).pack
        self._entry: Any = None
        _kernels.append(self)

    def __call__(self, *arguments: Any) -> Any:
        if self._entry is None:
            self.load()
        if len(arguments) != len(self._arguments):
            raise TypeError(f"{self.name}: {len(arguments)} arguments given, {self.signature} expected")
        result = ctypes.c_int64()
        slots = [ctypes.addressof(result)]
        for (dtype, readonly, number), value in zip(self._arguments, arguments, strict=True):
            if number is not None:
                slots.append(number(value))
                continue
            if not _is_array(value, dtype, readonly):
                raise _refusal(self, value)
            slots += (_address(value), value.size)
        status = self._entry(self._pack(*slots))
        if status:
            raise RuntimeError(f"{self.name}: the compiled code failed ({status})")
        return self._result(result.value)

    def load(self) -> None:
        """Find the machine code, which compiles the whole group where there is no library of it."""
        entry = loaded(self.group)[entry_symbol(self.name, self.signature)]
        entry.restype, entry.argtypes = ctypes.c_int32, [ctypes.c_char_p]
        self._entry = entry


class PythonKernel:
    """The Python function itself, with the checks and the arithmetic of a compiled kernel (`runs_python`)."""

    def __init__(self, function: Callable[..., Any], signature: Signature) -> None:
        functools.update_wrapper(self, function)
        self.name, self.signature, self._function = name_of(function), signature, function

    def __call__(self, *arguments: Any) -> Any:
        if len(arguments) != len(self.signature.arguments):
            raise TypeError(f"{self.name}: {len(arguments)} arguments given, {self.signature} expected")
        values: list[Any] = []
        for kind, value in zip(self.signature.arguments, arguments, strict=True):
            if not isinstance(kind, Array):
                number = _NUMBERS.get(kind.name, operator.index)(value)
                values.append(number if kind.name == "boolean" else np.dtype(kind.name).type(number))
            elif _is_array(value, np.dtype(kind.dtype.name), kind.readonly):
                values.append(value)
            else:
                raise _refusal(self, value)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            result = self._function(*values)
        return _RESULTS[self.signature.returns.name](result)


def _is_array(value: Any, dtype: np.dtype[Any], readonly: bool) -> bool:
    """Return True if machine code may receive this value as an array.

    Given another kind, it would read beyond the end.
    """
    if type(value) is not np.ndarray or value.ndim != 1 or (value.dtype is not dtype and value.dtype != dtype):
        return False
    flags = value.flags
    return flags.c_contiguous and (readonly or flags.writeable)


def _refusal(kernel: Kernel | PythonKernel, value: Any) -> TypeError:
    received = f"an array of {value.dtype}, shape {value.shape}" if isinstance(value, np.ndarray) else repr(type(value))
    return TypeError(f"{kernel.name}: expected {kernel.signature}, without gaps, got {received}")


def name_of(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


_Address = Callable[[np.ndarray[Any, Any]], int]


def _fastest_address() -> _Address:
    """Return the function for the address of an array: Arrow's is five times as fast as numpy's.

    Arrow is absent only where packages are built.
    """
    try:
        from pyarrow import py_buffer
    except ImportError:
        return lambda array: array.ctypes.data
    return lambda array: py_buffer(array).address or 0


_address: _Address = lambda array: array.ctypes.data  # noqa: E731 - until the first library is loaded


# -- the machine code of a group --------------------------------------------------------------------------------------
class Library:
    """A shared library of kernels; every entry is a function of the C kind."""

    def __init__(self, path: Path) -> None:
        global _address
        with contextlib.suppress(OSError):  # where it is part of the C library, all of it is there already
            ctypes.CDLL("libm.so.6", ctypes.RTLD_GLOBAL)
        self._library = ctypes.CDLL(str(path))
        _address = _fastest_address()

    def __getitem__(self, symbol: str) -> Any:
        try:
            return self._library[symbol]
        except AttributeError:
            raise TamisError(f"kernels: {symbol} was not compiled with its group") from None


def load(group: str) -> None:
    """Load everything that kernels of this group in imported modules need; call it before processes are forked."""
    for kernel in _kernels:
        if kernel.group == group:
            kernel.load()


def load_all(group: str) -> None:
    """Import and load every kernel of a group, so that processes forked later share them."""
    import_all(group)
    load(group)


_loaded: dict[str, Library] = {}
_loading = threading.Lock()


def use(group: str, path: Path) -> None:
    """Take the kernels of a group from this file: for who has to find out whether it is any good."""
    _loaded[group] = Library(path)


def loaded(group: str) -> Library:
    """Return the kernels of a group from their library.

    If there is none, another process compiles it now.
    """
    with _loading:
        if group not in _loaded:
            _loaded[group] = _stored(group) or _compiled(group)
        return _loaded[group]


def _stored(group: str) -> Library | None:
    path = library.find(group)
    if path is None:
        return None
    if library.is_whole(path):
        return Library(path)
    if library.BUILT in path.parents:
        raise TamisError(f"kernels: {path} is damaged; install tamis again")
    path.unlink(missing_ok=True)
    return None


def _compiled(group: str) -> Library:
    from tamis.kernels.loading.first_use import compiled_elsewhere

    with compiled_elsewhere(group, this_level()) as path:
        return Library(path)

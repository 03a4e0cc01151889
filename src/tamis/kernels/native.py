"""Compiled kernels, loaded and called without numba.

numba takes 0.3 s and 60 MB to import, and all it does for a kernel that was compiled before is to check arguments. So compiling
happens in a process of its own (compile.py), which keeps the machine code of a group of kernels in one file; here LLVM links it
into this process, in some milliseconds. How arguments are handed over: _entries.py.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import operator
import os
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from tamis.errors import TamisError
from tamis.kernels._types import Array, Signature
from tamis.kernels.cache import cache_dir

FILE = "native"
_DIGEST_BYTES = 32
_SLOTS = {"boolean": "?7x", "float32": "f4x", "float64": "d", "uint64": "Q"}  # others as signed numbers of 8 bytes
_NUMBERS: dict[str, Callable[[Any], Any]] = {"boolean": bool, "float32": float, "float64": float}
_RESULTS: dict[str, Callable[[int], Any]] = {"void": lambda _: None, "boolean": bool, "int64": int}
_kernels: list[Kernel] = []  # all of this process

try:  # Arrow tells the address of an array in a fifth of the time that numpy takes; it is absent only while a wheel is built
    from pyarrow import py_buffer
except ImportError:  # pragma: no cover

    def _address(array: np.ndarray[Any, Any]) -> int:
        return array.ctypes.data
else:

    def _address(array: np.ndarray[Any, Any]) -> int:
        return py_buffer(array).address or 0


def runs_python() -> bool:
    """Whether kernels are to run as the Python functions that they are written as: slow, but every step can be looked at."""
    return os.environ.get("TAMIS_KERNELS") == "python"


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
        """Find the machine code, which compiles the whole group where it was not done before."""
        address = library(self.group).address(self.name, str(self.signature))
        self._entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p)(address)


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
    """Whether machine code may be given this for an array: it would read another kind beyond its end."""
    if type(value) is not np.ndarray or value.ndim != 1 or (value.dtype is not dtype and value.dtype != dtype):
        return False
    flags = value.flags
    return flags.c_contiguous and (readonly or flags.writeable)


def _refusal(kernel: Kernel | PythonKernel, value: Any) -> TypeError:
    told = f"an array of {value.dtype}, shape {value.shape}" if isinstance(value, np.ndarray) else repr(type(value))
    return TypeError(f"{kernel.name}: expected {kernel.signature}, without gaps, got {told}")


def name_of(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


# -- the machine code of a group ----------------------------------------------------------------------------------------
class Library:
    """`data`: as `pack` made it."""

    def __init__(self, data: bytes) -> None:
        import llvmlite.binding as llvm

        self._kernels, objects = _unpacked(data)
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        # Ends what the owner of an array holds. No array has an owner here, so it is never called.
        llvm.add_symbol("NRT_MemInfo_call_dtor", ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value)
        machine = llvm.Target.from_default_triple().create_target_machine()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        for machine_code in objects:
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(machine_code))
        self._engine.finalize_object()

    def address(self, name: str, signature: str) -> int:
        known, symbol = self._kernels.get(name, ("", ""))
        address = self._engine.get_function_address(symbol) if known == signature else 0
        if not address:
            raise TamisError(f"kernels: {name}{signature} was not compiled with its group")
        return int(address)


def pack(kernels: dict[str, tuple[str, str]], objects: list[bytes]) -> bytes:
    """Signature and symbol of every kernel of a group by name, and their machine code, as one file."""
    head = {"kernels": kernels, "sizes": [len(code) for code in objects]}
    data = json.dumps(head).encode() + b"\n" + b"".join(objects)
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest() + data


def _unpacked(data: bytes) -> tuple[dict[str, list[str]], list[bytes]]:
    digest, data = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest() != digest:
        raise ValueError("kernels: the file is damaged")
    first, _, rest = data.partition(b"\n")
    head, objects, at = json.loads(first), [], 0
    for n_bytes in head["sizes"]:
        objects.append(rest[at : at + n_bytes])
        at += n_bytes
    return head["kernels"], objects


def load(group: str) -> None:
    """Everything that kernels of this group need, of modules that are imported: before processes are forked."""
    for kernel in _kernels:
        if kernel.group == group:
            kernel.load()


may_compile = True  # false where it is to be seen whether everything is there
_loaded: dict[str, Library] = {}
_loading = threading.Lock()


def library(group: str) -> Library:
    """The kernels of a group, out of the cache, or compiled now by another process."""
    with _loading:
        if group not in _loaded:
            _loaded[group] = _kept(group) or Library(_compiled(group))
        return _loaded[group]


def _kept(group: str) -> Library | None:
    folder = cache_dir(group)
    if folder is None:
        return None
    try:
        return Library((folder / FILE).read_bytes())
    except (OSError, ValueError):
        return None


def _compiled(group: str) -> bytes:
    """By another process. A file handed to it takes what it compiled, whether or not it can keep it somewhere."""
    if not may_compile:
        raise TamisError(f"kernels: group {group!r} is not in the cache, or damaged")
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from tamis.kernels.compile import main; sys.exit(main())"
    with tempfile.TemporaryFile() as made:
        command = [sys.executable, "-P", "-c", code, source, f"--into={made.fileno()}", group]
        done = subprocess.run(command, pass_fds=[made.fileno()], capture_output=True, text=True, check=False)
        made.seek(0)
        data = made.read()
    if not data:
        raise TamisError(f"kernels cannot be compiled: {done.stderr[-2000:].strip() or f'exit code {done.returncode}'}")
    return data

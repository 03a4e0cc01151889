"""A failed allocation is told from bad data, and from errors of stages that only speak of memory."""

from __future__ import annotations

import ctypes
import errno
import lzma
import traceback
import weakref
import zlib

import numpy as np
import pyarrow as pa
import pytest
import zstandard

from tamis.failures import (
    clear_frames,
    is_descriptor_failure,
    is_memory_failure,
    is_thread_failure,
    reason_of,
    requested_bytes,
)
from tamis.formats.compression import zstd


def made_by(package: str, exc: Exception) -> Exception:
    """Return the exception as raised by code of that package (frames of compiled modules are named, too)."""
    try:
        exec("raise exc", {"__name__": f"{package}.lib", "exc": exc})
    except Exception as raised:
        return raised
    raise AssertionError


def of_class(module: str, name: str, *args: object) -> Exception:
    return type(name, (RuntimeError,), {"__module__": module})(*args)


@pytest.mark.parametrize(
    "exc",
    [
        MemoryError(),
        pa.ArrowMemoryError("malloc of size 1048576 failed"),
        pa.ArrowException("Unknown error: Failed to launch worker thread: Resource temporarily unavailable"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        made_by("pyarrow", OSError("IOError: zstd: Allocation error : not enough memory")),
        zlib.error("Error -4 while decompressing data"),
        zstandard.ZstdError("zstd decompress error: Allocation error : not enough memory"),
        zstd.ZstdError("Unable to decompress Zstandard data: Allocation error : not enough memory"),
        of_class("torch", "OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB"),
        of_class("torch.cuda", "OutOfMemoryError"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
            "allocate 5 bytes."
        ),
        RuntimeError("unable to mmap 2105611000 bytes from file </models/a.safetensors>: Cannot allocate memory (12)"),
        ImportError("/lib/x.so: failed to map segment from shared object", path="/lib/x.so"),
        made_by("ctypes", OSError("libx.so: failed to map segment from shared object")),
        made_by("threading", RuntimeError("can't start new thread")),
    ],
)
def test_failed_allocations(exc: Exception) -> None:
    assert is_memory_failure(exc) is True


@pytest.mark.parametrize(
    "exc",
    [
        OSError(errno.EIO, "Input/output error"),
        OSError("Corrupt snappy compressed data."),
        made_by("pyarrow", OSError("Corrupt snappy compressed data.")),
        zlib.error("Error -3 while decompressing data: invalid distance code"),
        lzma.LZMAError("Memory usage limit exceeded"),
        ValueError(""),
    ],
)
def test_bad_data(exc: Exception) -> None:
    assert is_memory_failure(exc) is False


@pytest.mark.parametrize(
    "words",
    [
        "out of memory",
        "malloc of size 5 failed",
        "std::bad_alloc",
        "not enough memory",
        "Cannot allocate memory",
        "Error -4 while",
    ],
)
@pytest.mark.parametrize("kind", [ValueError, RuntimeError, OSError, ImportError, KeyError])
def test_words_in_an_error_of_a_stage_say_nothing(kind: type[Exception], words: str) -> None:
    assert is_memory_failure(kind(f"row 7 speaks of being {words}")) is False
    assert is_memory_failure(made_by("my_stages", kind(words))) is False


def test_causes_of_an_error_count_as_a_traceback_shows_them() -> None:
    error = ValueError("cannot decode")
    error.__cause__ = MemoryError()
    assert is_memory_failure(error) is True
    error = ValueError("cannot decode")
    error.__context__ = MemoryError()  # raised while a MemoryError was handled
    assert is_memory_failure(error) is True
    error.__suppress_context__ = True  # `from None`: whoever raised it says that it has nothing to do with it
    assert is_memory_failure(error) is False
    error.__cause__ = error
    assert is_memory_failure(error) is False


def test_what_libraries_really_raise() -> None:
    with pytest.raises(MemoryError) as numpy:
        np.empty(1 << 62, np.uint8)
    assert is_memory_failure(numpy.value) is True
    with pytest.raises(OSError, match=r"(?i)zstd") as corrupt:
        pa.Codec("zstd").decompress(b"abcdef" * 10, decompressed_size=1000)
    corrupt.value.args = ("ZSTD decompression failed: Allocation error : not enough memory",)
    assert is_memory_failure(corrupt.value) is True
    with pytest.raises(OSError, match="no-such") as missing:
        ctypes.CDLL("/no-such.so")
    assert is_memory_failure(missing.value) is False
    missing.value.args = ("/x.so: failed to map segment from shared object",)
    assert is_memory_failure(missing.value) is True


def test_the_bytes_requested_are_known_where_a_library_says_them() -> None:
    with pytest.raises(MemoryError) as numpy:
        np.empty((1 << 40, 1 << 20), np.int16)
    assert requested_bytes(numpy.value) == 1 << 61
    wrapped = ValueError("my stage failed, malloc of size 99 failed")
    wrapped.__cause__ = pa.ArrowMemoryError("malloc of size 1048576 failed")
    assert requested_bytes(wrapped) == 1 << 20
    assert (
        requested_bytes(of_class("torch", "OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.50 GiB."))
        == 5 << 29
    )
    assert (
        requested_bytes(
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:1] . DefaultCPUAllocator: can't allocate memory: you tried to "
                "allocate 77 bytes."
            )
        )
        == 77
    )
    mapped = "unable to mmap 2105611000 bytes from file </models/a.safetensors>: Cannot allocate memory (12)"
    assert requested_bytes(RuntimeError(mapped)) == 2_105_611_000
    assert requested_bytes(ValueError("malloc of size 99 failed")) == 0
    assert requested_bytes(MemoryError()) == 0


def test_what_failed_frames_held_is_let_go_and_the_traceback_stays() -> None:
    class Hoard:
        pass

    held: list[weakref.ref[Hoard]] = []

    def hoards() -> None:
        hoard = Hoard()
        held.append(weakref.ref(hoard))
        raise MemoryError("malloc of size 64 failed")

    def fails() -> None:
        other = Hoard()
        held.append(weakref.ref(other))
        try:
            hoards()
        except MemoryError as exc:
            raise ValueError("no") from exc

    with pytest.raises(ValueError, match="no") as caught:
        fails()
    exc = caught.value
    assert [r() is None for r in held] == [False, False]
    clear_frames(exc)
    assert [r() is None for r in held] == [True, True]
    assert (is_memory_failure(exc), requested_bytes(exc)) == (True, 64)
    shown = "".join(traceback.format_exception(exc))
    assert "in fails" in shown
    assert "in hoards" in shown


@pytest.mark.parametrize(
    "exc",
    [
        OSError(errno.EMFILE, "Too many open files"),
        OSError(errno.ENFILE, "Too many open files in system"),
        made_by("pyarrow", OSError("Failed to open local file. Detail: [errno 24] Too many open files")),
        made_by("torch", RuntimeError("unable to open shared memory object: Too many open files (24)")),
        ImportError("libx.so: cannot open shared object file: Too many open files", path="/usr/lib/libx.so"),
    ],
)
def test_a_failed_opening_is_known_and_is_no_failed_allocation(exc: Exception) -> None:
    assert is_descriptor_failure(exc)
    assert not is_memory_failure(exc)
    wrapped = ValueError("no such document")
    wrapped.__cause__ = exc
    assert is_descriptor_failure(wrapped)
    with pytest.raises(type(exc)):
        reason_of(exc)


def test_words_of_a_stage_are_no_failed_opening() -> None:
    assert not is_descriptor_failure(ValueError("too many open files, says the document"))
    assert not is_descriptor_failure(OSError(errno.ENOENT, "No such file"))


def test_a_thread_that_does_not_start_is_known() -> None:
    assert is_thread_failure(made_by("threading", RuntimeError("can't start new thread")))
    assert not is_thread_failure(RuntimeError("can't start new thread"))

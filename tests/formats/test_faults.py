"""A failed allocation is told from bad data."""

from __future__ import annotations

import errno
import lzma
import zlib

import pyarrow as pa
import pytest
import zstandard

from tamis.formats.faults import is_memory_failure


@pytest.mark.parametrize(
    "exc",
    [
        MemoryError(),
        pa.ArrowMemoryError("malloc of size 1048576 failed"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        OSError("IOError: zstd: Allocation error : not enough memory"),
        zlib.error("Error -4 while decompressing data"),
        zstandard.ZstdError("zstd decompress error: Allocation error : not enough memory"),
        RuntimeError("std::bad_alloc"),
    ],
)
def test_failed_allocations(exc: Exception) -> None:
    assert is_memory_failure(exc) is True


@pytest.mark.parametrize(
    "exc",
    [
        OSError(errno.EIO, "Input/output error"),
        OSError("Corrupt snappy compressed data."),
        zlib.error("Error -3 while decompressing data: invalid distance code"),
        lzma.LZMAError("Memory usage limit exceeded"),
        ValueError(""),
    ],
)
def test_bad_data(exc: Exception) -> None:
    assert is_memory_failure(exc) is False


def test_the_cause_of_an_error_counts() -> None:
    error = ValueError("cannot decode")
    error.__cause__ = MemoryError()
    assert is_memory_failure(error) is True

"""Measure the ratio of decoded to compressed size on the beginnings of files."""

from __future__ import annotations

import contextlib

from tamis.errors import TamisError
from tamis.formats.compression.source import StreamFault
from tamis.formats.compression.streams import StreamReader

_CHUNK = 1 << 20
_MEASURED_BYTES = 4_000_000  # compressed: a reader is some 100 kB ahead of what it has handed out


def ratio_of(reader: StreamReader, size_bytes: int) -> float:
    """Return decoded bytes per compressed byte over the first few MB; the reader is left behind them."""
    with contextlib.suppress(StreamFault):
        while reader.compressed_offset < _MEASURED_BYTES and reader.skip(_CHUNK) == _CHUNK:
            pass
    return reader.decoded_offset / max(min(reader.compressed_offset, size_bytes), 1)


def measure_ratio(path: str, size_bytes: int) -> float | None:
    """Return decoded bytes per compressed byte of a file, or None if none of it can be decoded."""
    with contextlib.suppress(OSError, StreamFault, TamisError), StreamReader.open(path) as reader:
        ratio = ratio_of(reader, size_bytes)
        return ratio if reader.decoded_offset else None
    return None

"""Re-entry into a damaged file: find the next member, frame or stream that decodes to an expected beginning.

Covers: gzip members, zstd frames, bzip2 and xz streams, found by their magic bytes and tried. Does not cover: what is lost in
between (the caller knows), and blocks inside of a bzip2 stream, which begin at any bit.
"""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO

from tamis.failures import is_memory_failure
from tamis.formats.compression.members import XZ_MEMORY_BYTES

_READ_BYTES = 1 << 20
_BEGINNING_BYTES = 64  # decoded bytes that `accept` is called with
_MAGIC_BYTES = 10  # of the longest magic
# gzip: deflate, and none of the three reserved flags. bzip2: a stream begins with its first block.
_MAGIC = {
    "gz": re.compile(rb"\x1f\x8b\x08[\x00-\x1f]"),
    "zst": re.compile(rb"\x28\xb5\x2f\xfd"),
    "bz2": re.compile(rb"BZh[1-9]1AY&SY"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
}
# Compressed bytes that hold the first decoded ones: a gzip header has at most two names and 64 KiB of other data, a block of bzip2
# is decoded as a whole and has at most 900 kB, a block of zstd 128 KiB.
_HEAD_BYTES = {"gz": 1 << 17, "zst": 1 << 18, "bz2": 1 << 20, "xz": 1 << 17}
_FIRST_BYTES = 4096  # tried first: enough for nearly every gzip member and zstd frame of a crawl


class Effort:
    """Bytes that may still be read again in search of readable parts, so that hostile files cannot be read without end."""

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = n_bytes

    def spend(self, n_bytes: int) -> bool:
        """Return True if that many bytes may be read, which then count as read."""
        self.n_bytes -= n_bytes
        return self.n_bytes >= 0


def next_member(raw: BinaryIO, codec: str, offset: int, accept: Callable[[bytes], bool], effort: Effort) -> int | None:
    """Return the first byte from `offset` on at which a member begins whose first decoded bytes `accept` takes.

    None if there is none, or where the effort is spent. `raw` must be able to seek; its position afterwards is undefined.
    """
    magic, n_seen = _MAGIC[codec], offset
    tail = b""
    while True:
        raw.seek(n_seen)
        data = raw.read(_READ_BYTES)
        if not data or not effort.spend(len(data)):
            return None
        window = tail + data
        start = n_seen - len(tail)
        for match in magic.finditer(window):
            candidate = start + match.start()
            beginning = _beginning(raw, codec, candidate, effort)
            if beginning is None:
                return None
            if accept(beginning):
                return candidate
        tail = window[-(_MAGIC_BYTES - 1) :]  # a magic that is in it as a whole is tried once more, in vain
        n_seen += len(data)


def _beginning(raw: BinaryIO, codec: str, offset: int, effort: Effort) -> bytes | None:
    """Return the first decoded bytes of what may be a member, b"" where it is none, None where the effort is spent."""
    for n_bytes in (_FIRST_BYTES, _HEAD_BYTES[codec]):
        raw.seek(offset)
        head = raw.read(n_bytes)
        if not effort.spend(len(head)):
            return None
        decoded = _decoded(codec, head)
        if decoded or decoded is None or len(head) < n_bytes:
            return decoded or b""
    return b""


def _decoded(codec: str, head: bytes) -> bytes | None:
    """Return the first decoded bytes, b"" where more input may give some; None for what is damaged."""
    errors: tuple[type[Exception], ...] = (zlib.error, OSError, ValueError, lzma.LZMAError, EOFError)
    decoder: Any
    if codec == "gz":
        decoder = zlib.decompressobj(31)
    elif codec == "bz2":
        decoder = bz2.BZ2Decompressor()
    elif codec == "xz":
        decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY_BYTES)
    else:
        from tamis.formats.compression import zstd
        from tamis.formats.compression.zstd_frames import MAX_WINDOW_BYTES

        largest: dict[int, int] = {zstd.DecompressionParameter.window_log_max: MAX_WINDOW_BYTES.bit_length() - 1}
        decoder, errors = zstd.ZstdDecompressor(options=largest), (*errors, zstd.ZstdError)
    try:
        decoded: bytes = decoder.decompress(head, _BEGINNING_BYTES)
    except errors as exc:
        if is_memory_failure(exc):
            raise MemoryError(str(exc)) from exc
        return None
    return decoded if decoded or not decoder.eof else None

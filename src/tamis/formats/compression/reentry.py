"""Re-entry into a damaged file: find the next member, frame or stream that decodes to an expected beginning.

Covers: gzip members, zstd frames, bzip2 and xz streams, found by their magic bytes and tried. Does not cover: what is
lost in between (the caller knows), and blocks inside of a bzip2 stream, which begin at any bit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import BinaryIO

from tamis.failures import is_memory_failure
from tamis.formats.compression.codecs import Codec, find_codec

_READ_BYTES = 1 << 20
_BEGINNING_BYTES = 64  # decoded bytes that `accept` is called with
_MAGIC_BYTES = 10  # of the longest magic
_FIRST_BYTES = 4096  # tried first: enough for nearly every gzip member and zstd frame of a crawl


class Effort:
    """Bytes that may still be read again to find readable parts: a limit that hostile files cannot exceed."""

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = n_bytes

    def spend(self, n_bytes: int) -> bool:
        """Return True if that many bytes may be read, which then count as read."""
        self.n_bytes -= n_bytes
        return self.n_bytes >= 0


def next_member(
    raw: BinaryIO, codec: str | Codec, offset: int, accept: Callable[[bytes], bool], effort: Effort
) -> int | None:
    """Return the first byte from `offset` on at which a member begins whose first decoded bytes `accept` takes.

    None if there is none, or where the effort is spent. `raw` must be able to seek; its position afterwards is
    undefined.
    """
    compression, n_seen = find_codec(codec), offset
    magic = re.compile(compression.member_pattern, re.DOTALL)
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
            beginning = _beginning(raw, compression, candidate, effort)
            if beginning is None:
                return None
            if accept(beginning):
                return candidate
        tail = window[-(_MAGIC_BYTES - 1) :]  # a magic that is in it as a whole is tried once more, in vain
        n_seen += len(data)


def _beginning(raw: BinaryIO, codec: Codec, offset: int, effort: Effort) -> bytes | None:
    """Return the first decoded bytes of what may be a member, b"" where it is none, None where the effort is spent."""
    for n_bytes in (_FIRST_BYTES, codec.head_bytes):
        raw.seek(offset)
        head = raw.read(n_bytes)
        if not effort.spend(len(head)):
            return None
        decoded = _decoded(codec, head)
        if decoded or decoded is None or len(head) < n_bytes:
            return decoded or b""
    return b""


def _decoded(codec: Codec, head: bytes) -> bytes | None:
    """Return the first decoded bytes, b"" where more input may give some; None for what is damaged."""
    decoder = codec.new_decoder()
    try:
        decoded: bytes = decoder.decompress(head, _BEGINNING_BYTES)
    except codec.decode_errors() as exc:
        if is_memory_failure(exc):
            raise MemoryError(str(exc)) from exc
        return None
    return decoded if decoded or not decoder.eof else None

"""Decoded bytes of a downloaded file, line by line or by count, in bounded memory.

Files are untrusted.
"""

from __future__ import annotations

import os
from typing import BinaryIO

from tamis.errors import FormatError
from tamis.files import Closing
from tamis.formats.compression.codecs import codec_of
from tamis.formats.compression.source import TRAILING, StreamFault
from tamis.formats.compression.streams import StreamReader

_PASS_BYTES = 1 << 20
_FREE_BYTES = 1 << 30
_MOST_TIMES = 300  # text compresses 3 to 10 times; what claims more than this is made to fill a machine


class Decoded(Closing):
    """Reads a plain or compressed file. Every byte before a fault comes out before the fault is raised."""

    def __init__(self, raw: BinaryIO, codec: str | None) -> None:
        self.base = raw.tell() if raw.seekable() else 0
        """Byte of the file at which reading began."""
        self._file_bytes = _size(raw) if raw.seekable() else None
        self._reader = StreamReader(raw, codec)
        self.codec = codec
        self._ready = b""
        self._at = 0
        self._fault: FormatError | None = None
        self.offset = 0
        """Decoded bytes handed out so far."""

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Decoded:
        """Open a local file, decoded according to its extension."""
        return cls(open(path, "rb", buffering=0), codec_of(path))

    @property
    def n_left(self) -> int | None:
        """Bytes that follow, where that is known: in a plain file that can seek."""
        return None if self._file_bytes is None or self.codec else self._file_bytes - self.base - self.offset

    @property
    def place(self) -> int:
        """Byte of the file that is read next.

        Where it is compressed, at which the member or stream of the last bytes begins.
        """
        return self.base + (self.offset if self.codec is None else self._reader.member_offset)

    @property
    def n_stored(self) -> int:
        """Bytes of the file that were read so far."""
        return self._reader.compressed_offset

    def stored(self, offset: int, n_bytes: int) -> tuple[int, int]:
        """Return the offset and size in the file of decoded bytes, estimated if the file is compressed."""
        if self.codec is None:
            return self.base + offset, n_bytes
        ratio = self._reader.compressed_offset / max(1, self._reader.decoded_offset)
        return self.base + round(offset * ratio), max(1, round(n_bytes * ratio))

    def read(self, n_bytes: int) -> bytes:
        """Read exactly `n_bytes`, fewer only at the end or before a fault."""
        parts: list[bytes] = []
        while n_bytes > 0 and self._fill():
            part = self._ready[self._at : self._at + n_bytes]
            self._at += len(part)
            self.offset += len(part)
            n_bytes -= len(part)
            parts.append(part)
        return self._all(parts)

    def read_part(self) -> bytes:
        """Return the next available bytes, all from one member or stream; b"" at the end."""
        part = self._ready[self._at :] if self._fill() else b""
        self._at += len(part)
        self.offset += len(part)
        return self._all([part] if part else [])

    def skip(self, n_bytes: int) -> int:
        """Pass over `n_bytes` without holding them; returns how many there were."""
        bytes_left = n_bytes
        while bytes_left > 0 and self._fill():
            n = min(bytes_left, len(self._ready) - self._at)
            self._at += n
            self.offset += n
            bytes_left -= n
        if bytes_left == n_bytes and self._fault is not None:
            raise self._fault
        return n_bytes - bytes_left

    def readline(self, max_bytes: int) -> bytes:
        """Return the bytes up to and including the next newline, or `max_bytes`, or the rest; b"" at the end."""
        parts: list[bytes] = []
        while max_bytes > 0 and self._fill():
            end = self._ready.find(b"\n", self._at, self._at + max_bytes)
            stop = end + 1 if end >= 0 else min(len(self._ready), self._at + max_bytes)
            parts.append(self._ready[self._at : stop])
            self.offset += stop - self._at
            max_bytes -= stop - self._at
            self._at = stop
            if end >= 0:
                break
        return self._all(parts)

    def check_rest(self) -> None:
        """Read to the end, where checksums and truncation show; raise FormatError if earlier data may be wrong.

        Other bytes after a complete gzip file are ignored: nothing of it is missing.
        """
        try:
            while self.skip(_PASS_BYTES):
                pass
        except StreamFault as exc:
            if exc.kind != TRAILING:
                raise

    def close(self) -> None:
        self._reader.close()

    def _all(self, parts: list[bytes]) -> bytes:
        if not parts and self._fault is not None:
            raise self._fault
        return b"".join(parts)

    def _fill(self) -> bool:
        """Return True if there are bytes to return. A fault is kept until all bytes before it were returned."""
        if self._at == len(self._ready) and self._fault is None:
            try:
                self._ready, self._at = self._reader.read(1 << 20), 0
                self._check_growth()
            except FormatError as exc:
                self._ready, self._at, self._fault = b"", 0, exc
        return self._at < len(self._ready)

    def _check_growth(self) -> None:
        decoded, stored = self._reader.decoded_offset, self._reader.compressed_offset
        if decoded > _FREE_BYTES and decoded > _MOST_TIMES * stored:
            raise FormatError(
                f"{stored:,} compressed bytes became {decoded:,}: more than {_MOST_TIMES} times as many, which no "
                "text does"
            )


def _size(raw: BinaryIO) -> int:
    position = raw.tell()
    size = raw.seek(0, os.SEEK_END)
    raw.seek(position)
    return size

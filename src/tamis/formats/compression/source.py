"""What the decoders of compressed files share: the bytes of the file in pieces, and how they say that decoding stopped."""

from __future__ import annotations

from typing import BinaryIO

from tamis.errors import FormatError
from tamis.formats.compression.stream_fault import DAMAGED

PIECE_BYTES = 256 * 1024
"""Compressed bytes read at a time."""


class Undecodable(FormatError):
    """Decoding stopped at compressed byte `offset`; `salvaged` are the last bytes that could be decoded; the rest as in StreamFault."""

    def __init__(self, reason: str, offset: int = 0, salvaged: bytes = b"", kind: str = DAMAGED) -> None:
        super().__init__(reason)
        self.offset, self.salvaged, self.kind, self.suspect_offset = offset, salvaged, kind, -1


class PieceSource:
    """The compressed file, read in pieces of `PIECE_BYTES`, with the offset of what was handed out."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._base = raw.tell() if raw.seekable() else 0
        self._buffer = b""
        self._at = 0
        self._end_offset = 0

    def offset(self) -> int:
        """Compressed bytes handed out so far, counted from where the stream began."""
        return self._end_offset - (len(self._buffer) - self._at)

    def piece(self) -> bytes:
        """Return the next bytes, as many as are available; b"" at the end of the file."""
        if self._at == len(self._buffer):
            self._fill()
        data = self._buffer[self._at :] if self._at else self._buffer
        self._at = len(self._buffer)
        return data

    def take(self, n_bytes: int) -> bytes:
        """Exactly `n_bytes`, fewer only at the end of the file."""
        end = self._at + n_bytes
        if end <= len(self._buffer):
            data = self._buffer[self._at : end]
            self._at = end
            return data
        parts, missing = [], n_bytes
        while missing:
            if self._at == len(self._buffer) and not self._fill():
                break
            part = self._buffer[self._at : self._at + missing]
            self._at += len(part)
            missing -= len(part)
            parts.append(part)
        return b"".join(parts)

    def can_rewind(self) -> bool:
        return self._raw.seekable()

    def rewind(self, offset: int) -> None:
        """Go back to compressed byte `offset`; only where the file can seek."""
        self._raw.seek(self._base + offset)
        self._buffer, self._at, self._end_offset = b"", 0, offset

    def _fill(self) -> bool:
        self._buffer, self._at = self._raw.read(PIECE_BYTES) or b"", 0
        self._end_offset += len(self._buffer)
        return bool(self._buffer)

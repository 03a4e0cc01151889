"""Compressed files in pieces, and the faults of decoding: position, reason, and how much of the file is lost."""

from __future__ import annotations

from typing import BinaryIO

from tamis.errors import FormatError

DAMAGED, CUT, UNSUPPORTED, TRAILING = "damaged", "cut", "unsupported", "trailing"
PIECE_BYTES = 256 * 1024
"""Compressed bytes read at a time."""


class Undecodable(FormatError):
    """Decoding stopped at compressed byte `offset`; `salvaged` are the last bytes that could be decoded.

    The rest as in StreamFault.
    """

    def __init__(self, reason: str, offset: int = 0, salvaged: bytes = b"", kind: str = DAMAGED) -> None:
        super().__init__(reason)
        self.offset, self.salvaged, self.kind, self.suspect_offset = offset, salvaged, kind, -1


class StreamFault(FormatError):
    """A stream cannot be decoded further. All decodable bytes before `decoded_offset` were delivered.

    `kind`: DAMAGED; CUT, if the file ends too early and an unknown amount is missing; UNSUPPORTED, if the file is
    intact; TRAILING, if other bytes follow a complete member of gzip, bzip2 or xz. `suspect_offset`: the beginning of
    the part whose checksum is wrong (the bytes delivered from it may be wrong too); -1 if only later bytes are
    affected.
    """

    def __init__(
        self, decoded_offset: int, compressed_offset: int, reason: str, kind: str = DAMAGED, suspect_offset: int = -1
    ) -> None:
        super().__init__(
            f"decoding stopped at compressed byte {compressed_offset} (decoded byte {decoded_offset}): {reason}; "
            f"everything before it was read{'' if kind == UNSUPPORTED else ', restore the file to get the rest'}"
        )
        self.decoded_offset, self.compressed_offset, self.reason = decoded_offset, compressed_offset, reason
        self.kind, self.suspect_offset = kind, suspect_offset

    def __reduce__(self) -> tuple[type[StreamFault], tuple[int, int, str, str, int]]:
        return type(self), (
            self.decoded_offset,
            self.compressed_offset,
            self.reason,
            self.kind,
            self.suspect_offset,
        )

    def lost_bytes(self, file_bytes: int) -> int:
        """Return how many bytes of a file of this size count as not read.

        These are the bytes after the fault, or the whole file if it is unknown how much is missing.
        """
        start = 0 if self.kind == CUT else self.suspect_offset if self.suspect_offset >= 0 else self.compressed_offset
        return max(0, file_bytes - start)

    def describe(self, file_bytes: int) -> str:
        """Describe the fault and what is lost, for a file of this size."""
        if self.kind == CUT:
            return (
                f"the file ends in the middle of its compressed stream, at byte {self.compressed_offset}: "
                f"{self.reason}; how "
                f"much is missing is unknown, so all its {file_bytes} bytes count as not read"
            )
        lost = f"{self.lost_bytes(file_bytes)} of its {file_bytes} compressed bytes"
        if self.kind == UNSUPPORTED:
            return (
                f"the compressed stream is not damaged, but it cannot be decoded here: {self.reason}; {lost} are not "
                "read"
            )
        problem = f"the compressed stream is damaged at byte {self.compressed_offset}: {self.reason}"
        if self.suspect_offset >= 0:
            return f"{problem}; what was read from byte {self.suspect_offset} on may be wrong, {lost} count as not read"
        return f"{problem}; {lost} are not read"


class PieceSource:
    """The compressed file, read in pieces of `PIECE_BYTES`, and the offset up to which they were taken."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._base = raw.tell() if raw.seekable() else 0
        self._buffer = b""
        self._cursor = 0
        self._end_offset = 0

    def offset(self) -> int:
        """Return the compressed bytes consumed so far, counted from where the stream began."""
        return self._end_offset - (len(self._buffer) - self._cursor)

    def piece(self) -> bytes:
        """Return the next bytes, as many as are available; b"" at the end of the file."""
        if self._cursor == len(self._buffer):
            self._fill()
        data = self._buffer[self._cursor :] if self._cursor else self._buffer
        self._cursor = len(self._buffer)
        return data

    def take(self, n_bytes: int) -> bytes:
        """Read exactly `n_bytes`, fewer only at the end of the file."""
        end = self._cursor + n_bytes
        if end <= len(self._buffer):
            data = self._buffer[self._cursor : end]
            self._cursor = end
            return data
        parts, missing = [], n_bytes
        while missing:
            if self._cursor == len(self._buffer) and not self._fill():
                break
            part = self._buffer[self._cursor : self._cursor + missing]
            self._cursor += len(part)
            missing -= len(part)
            parts.append(part)
        return b"".join(parts)

    def can_rewind(self) -> bool:
        return self._raw.seekable()

    def rewind(self, offset: int) -> None:
        """Go back to compressed byte `offset`; only where the file can seek."""
        self._raw.seek(self._base + offset)
        self._buffer, self._cursor, self._end_offset = b"", 0, offset

    def _fill(self) -> bool:
        self._buffer, self._cursor = self._raw.read(PIECE_BYTES) or b"", 0
        self._end_offset += len(self._buffer)
        return bool(self._buffer)

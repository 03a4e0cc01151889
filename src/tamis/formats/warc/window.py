"""The buffer that records are read from: decoded bytes of a file, and where its members begin.

Covers: reading ahead on request, entering the file at another byte, the facts of a fault. Memory: at most twice the
requested bytes.
"""

from __future__ import annotations

import re
from collections import deque
from typing import BinaryIO

from tamis.formats.compression.codecs import Codec
from tamis.formats.compression.source import CUT, StreamFault
from tamis.formats.compression.streams import StreamReader

RECORD_BEGIN = b"WARC/1."
_HEADERS_END = re.compile(rb"\n\r?\n")
_LINE_ENDS = re.compile(rb"[\r\n]*")
_READ_BYTES = 1 << 20
_FREE_BYTES = 1 << 30
_MAX_GROWTH = 300  # text compresses 3 to 10 times; what claims more than this is a bomb


class Window:
    """Decoded bytes of a file from the present position on, as far as requested, with the beginnings of members."""

    def __init__(self, raw: BinaryIO, codec: str | Codec | None, offset: int) -> None:
        self._raw, self._codec = raw, codec
        self.n_entries = 0
        self.enter(offset)

    def enter(self, offset: int) -> None:
        """Read on at byte `offset` of the file as stored, where a member begins."""
        self._raw.seek(offset)
        self._base, self._reader = offset, StreamReader(self._raw, self._codec)
        self._buffer, self._cursor, self._buffer_position = bytearray(), 0, 0
        self._members: deque[tuple[int, int]] = (
            deque()
        )  # (position, byte as stored); the first is that of the present position
        self._ended = False
        self.fault: StreamFault | None = None
        """Why there is no more than what is ahead; None at the end of the file."""
        self.n_entries += 1

    @property
    def position(self) -> int:
        """Decoded bytes before the present one, since the file was entered."""
        return self._buffer_position + self._cursor

    @property
    def n_ahead(self) -> int:
        return len(self._buffer) - self._cursor

    @property
    def n_stored(self) -> int:
        """Stored bytes read since the file was entered."""
        return self._reader.compressed_offset

    @property
    def offset(self) -> int:
        """The present byte as stored: of the file, if it is plain, else where its member begins."""
        if self._codec is None:
            return self._base + self.position
        self._settle()
        return self._members[0][1] if self._members else self._base

    @property
    def is_member_start(self) -> bool:
        self._settle()
        return self._codec is not None and bool(self._members) and self._members[0][0] == self.position

    @property
    def member_position(self) -> int:
        """The position at which the present member begins."""
        self._settle()
        return self._members[0][0] if self._members else 0

    @property
    def fault_member(self) -> int:
        """The byte at which the member begins that has a fault."""
        return self._base + self._reader.member_offset

    @property
    def fault_offset(self) -> int:
        """The first byte that counts as lost where all records before the fault were read."""
        assert self.fault is not None
        if self.fault.suspect_offset >= 0 or not self.is_fault_of_member(self.n_ahead):
            return self.fault_member
        return self._base + self.fault.compressed_offset

    @property
    def is_cut(self) -> bool:
        """Return True if the file ends where there is no more."""
        return self.fault.kind == CUT if self.fault is not None else self._ended

    @property
    def why_no_more(self) -> str:
        return "the file ends" if self.fault is None else self.fault.reason

    def stored_estimate(self, n_decoded: int) -> int:
        """Return about how many stored bytes so many decoded ones are."""
        return round(n_decoded * self.n_stored / max(1, self._reader.decoded_offset))

    def fill(self, n_bytes: int) -> bool:
        """Return True if so many bytes are ahead, reading as far as that takes."""
        n_ahead = len(self._buffer) - self._cursor  # not by the property: this is called for every part of a record
        while n_ahead < n_bytes and self.fault is None and not self._ended:
            self._read()
            n_ahead = len(self._buffer) - self._cursor
        return n_ahead >= n_bytes

    def advance(self, n_bytes: int) -> None:
        """Move over bytes that are ahead."""
        self._cursor += n_bytes

    def skip(self, n_bytes: int) -> bool:
        """Move over bytes, read as far as that takes, without holding them; False where there are fewer."""
        while n_bytes and self.fill(1):
            step = min(n_bytes, self.n_ahead)
            self.advance(step)
            n_bytes -= step
        return not n_bytes

    def whole_member(self) -> int:
        """Return the length of the member that begins here, 0 unless it ends soon and the next begins."""
        self._settle()
        while len(self._members) < 2 and (n_ahead := len(self._buffer) - self._cursor) < _READ_BYTES:
            if not self.fill(n_ahead + 1):
                return 0
        here = self._buffer_position + self._cursor
        if len(self._members) < 2 or self._members[0][0] != here:
            return 0
        return self._members[1][0] - here

    def pass_line_ends(self) -> None:
        """Move to the first byte that is no line end, reading as far as that takes."""
        while self.fill(1) and self._buffer[self._cursor] in b"\r\n":
            match = _LINE_ENDS.match(self._buffer, self._cursor)
            assert match is not None
            n_line_ends = match.end() - self._cursor
            if not n_line_ends:
                return
            self.advance(n_line_ends)

    def copy(self, start: int, end: int) -> bytes:
        """Return the bytes that are so far ahead, fewer where there are none."""
        return bytes(memoryview(self._buffer)[self._cursor + start : self._cursor + end])

    def find(self, pattern: bytes, start: int, end: int) -> int | None:
        """Return how far ahead `pattern` begins, from `start` on and before `end`."""
        index = self._buffer.find(pattern, self._cursor + start, self._cursor + end + len(pattern) - 1)
        return index - self._cursor if index >= 0 else None

    def headers_end(self, start: int, end: int) -> int | None:
        """Return how far ahead the headers end that begin at `start`, before `end`."""
        match = _HEADERS_END.search(self._buffer, self._cursor + start, self._cursor + end)
        return match.end() - self._cursor if match is not None else None

    def record_boundary(self, end: int, start: int = 0) -> int | None:
        """Return how far ahead the first member begins whose content begins a record, between `start` and `end`."""
        self._settle()
        here = self._buffer_position + self._cursor
        for position, _ in self._members:
            ahead = position - here
            if ahead >= end:
                return None
            if ahead > start and self._buffer.startswith(RECORD_BEGIN, self._cursor + ahead):
                return ahead
        return None

    def has_member_start(self, ahead: int) -> bool:
        if self._codec is None:
            return False
        position = self._buffer_position + self._cursor + ahead
        for start, _ in self._members:
            if start >= position:
                return start == position
        return False

    def is_fault_of_member(self, ahead: int) -> bool:
        """Return True if the fault is in the member that the byte before `ahead` is from."""
        if self._codec is None or not self._members:
            return False
        position, member = self._members[-1]
        return member == self.fault_member and position < self.position + ahead

    def _settle(self) -> None:
        members, position = self._members, self._buffer_position + self._cursor
        while len(members) > 1 and members[1][0] <= position:
            members.popleft()

    def _read(self) -> None:
        if self._cursor >= max(_READ_BYTES, len(self._buffer) // 2):
            del self._buffer[: self._cursor]
            self._buffer_position += self._cursor
            self._cursor = 0
        self._settle()
        try:
            data = self._reader.read(_READ_BYTES)
        except StreamFault as exc:
            self.fault = exc
            return
        if not data:
            self._ended = True
            return
        member = self._base + self._reader.member_offset
        if not self._members or self._members[-1][1] != member:
            self._members.append((self._buffer_position + len(self._buffer), member))
        self._buffer += data
        decoded, stored = self._reader.decoded_offset, self._reader.compressed_offset
        if decoded > _FREE_BYTES and decoded > _MAX_GROWTH * stored:
            reason = (
                f"{stored:,} compressed bytes become {decoded:,}, more than {_MAX_GROWTH} times as many, which no "
                "text does"
            )
            self.fault = StreamFault(decoded, stored, reason)

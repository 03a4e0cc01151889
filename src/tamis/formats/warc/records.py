"""Read records of WARC files one at a time, in bounded memory, also from damaged files.

Covers: WARC 1.0 and 1.1, plain or compressed, record by record or as a whole. Every byte of a file belongs to a record
or to a `WarcFault` with its offset and length, and reading continues after a fault. Does not cover: ARC, and the
contents of blocks (http.py). Existing libraries hold whole records whatever their size, and lose or invent records
after damage.

How reading continues. A compressed file is entered again at the next member whose content begins with `WARC/1.`: from
the member after a record with bad headers or a wrong length, or, where the compressed bytes themselves are damaged, at
a member found by its magic bytes. A plain file, or a member that holds many records, is entered again at the next
`WARC/1.` that is followed by the rest of its line and by valid headers. All records after a fault are marked as
resynchronised: a page that contains a WARC file could pass for records.

Memory: one block of at most `max_block_bytes`, held at most twice, and 64 KiB of headers.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from tamis.formats.compression.codecs import Codec
from tamis.formats.compression.reentry import Effort, next_member
from tamis.formats.warc.window import RECORD_BEGIN, Window

MAX_HEADER_BYTES = 64 << 10
MAX_HEADERS = 1000
_VERSION = re.compile(rb"WARC/[0-9]{1,3}\.[0-9]{1,3}[ \t]*\r?\n")
_BLANKS = (" ", "\t")
_END = b"\r\n\r\n"
_END_BYTES = 32  # after a block; two line ends are usual
_READ_BYTES = 1 << 20
_FAULT_BYTES = 4096  # that a fault counts as, in addition to what is read again
_REREAD_FACTOR, _REREAD_BYTES = (
    16,
    64 << 20,
)  # of a damaged file: so often its size, and so much more, is read in search of records


@dataclass
class WarcRecord:
    """One record.

    `headers` have names in lower case. `block` is None if it is too large or of a kind that was not requested.
    `offset`: in the file as stored, of the record or, if compressed, of its member. `resynchronised`: there was a fault
    before it.
    """

    headers: dict[str, str]
    n_bytes: int
    block: bytes | None
    offset: int = 0
    resynchronised: bool = False

    @property
    def kind(self) -> str:
        return self.headers.get("warc-type", "").lower()

    @property
    def record_id(self) -> str:
        """The bare UUID of `<urn:uuid:...>`."""
        return self.headers.get("warc-record-id", "").strip("<> ").removeprefix("urn:uuid:")

    @property
    def url(self) -> str:
        return self.headers.get("warc-target-uri", "").strip("<>")


@dataclass(frozen=True)
class WarcFault:
    """Bytes of a file, as stored, that are no readable record.

    Inside of a member of many records, `offset` is that member's and `length` is estimated by its compression ratio.
    """

    offset: int
    length: int
    reason: str
    is_cut: bool = False
    """The file ends inside of a record: how much of it is missing is unknown."""

    def lost_bytes(self, file_bytes: int) -> int:
        """Return how much of a file of this size counts as not read.

        All of it where the rest is missing, as in `StreamFault`.
        """
        return file_bytes if self.is_cut else self.length


class _Damage(Exception):
    """The record at the position of the window is damaged.

    `is_passed`: the window is at the next record already; `is_cut`: the file ends in it.
    """

    def __init__(self, reason: str, is_passed: bool = False, is_cut: bool = False) -> None:
        super().__init__(reason)
        self.is_passed, self.is_cut = is_passed, is_cut


class WarcScanner:
    """Iterates over the records and faults of a file, from byte `offset` on, where a record begins.

    The file must be able to seek.

    `max_block_bytes`: larger blocks are skipped without being held. `kinds`: records of other types come without their
    blocks.
    """

    def __init__(
        self,
        raw: BinaryIO,
        codec: str | Codec | None,
        max_block_bytes: int,
        kinds: frozenset[str] | None = None,
        offset: int = 0,
    ) -> None:
        self._raw, self._codec, self._max_block_bytes, self._kinds = raw, codec, max_block_bytes, kinds
        self.file_bytes = raw.seek(0, io.SEEK_END)
        self._effort = Effort(_REREAD_FACTOR * self.file_bytes + _REREAD_BYTES)
        self._window = Window(raw, codec, offset)
        self._resynchronised = False
        self._has_shared_members = False  # some member holds several records

    @property
    def can_begin_here(self) -> bool:
        """Return True if a scan from the offset of the last record on gives it and the same records after it."""
        return not self._resynchronised and not self._has_shared_members

    def __iter__(self) -> Iterator[WarcRecord | WarcFault]:
        window = self._window
        while True:
            window.pass_line_ends()
            begin, is_member = window.offset, window.is_member_start
            try:
                if not window.fill(1):
                    if window.fault is None:
                        return
                    begin = window.fault_offset
                    raise _Damage(window.fault.reason, is_cut=window.is_cut)
                record = (self._record_of_member() if is_member else None) or self._record(is_member)
            except _Damage as damage:
                self._resynchronised = True
                position, n_entries = window.position, window.n_entries
                is_found = damage.is_passed or self._resynchronise(is_member)
                end = window.offset if is_found else self.file_bytes
                if end <= begin:  # both are in one member
                    end = begin + window.stored_estimate(
                        window.position - (position if window.n_entries == n_entries else 0)
                    )
                yield WarcFault(
                    begin, max(1, min(end, self.file_bytes) - begin), str(damage), damage.is_cut and not is_found
                )
                if not is_found:
                    return
                continue
            record.offset, record.resynchronised = begin, self._resynchronised
            self._has_shared_members |= self._codec is not None and not is_member
            yield record

    # -- one record ---------------------------------------------------------------------------------------------------
    def _record_of_member(self) -> WarcRecord | None:
        """Read a record that is a member, from its first byte to its last, which is the usual case; None for others.

        Does nothing that `_record` would not do, in half the time.
        """
        window = self._window
        n_bytes = window.whole_member()
        n_head = window.headers_end(0, min(n_bytes, MAX_HEADER_BYTES)) if n_bytes else None
        if n_head is None:
            return None
        head = window.copy(0, n_head)
        version = _VERSION.match(head)
        if version is None or head.count(b"\n") > MAX_HEADERS:
            return None
        headers = headers_of(head[version.end() :].decode("utf-8", "replace").rstrip("\r\n").split("\n"))
        length = headers.get("content-length", "")
        n_all = n_bytes - len(_END)
        n_block = n_all - n_head
        if length != str(n_block) or n_block > self._max_block_bytes or window.copy(n_all, n_bytes) != _END:
            return None
        record = WarcRecord(headers, n_block, None)
        if self._kinds is None or record.kind in self._kinds:
            record.block = window.copy(n_head, n_all)
        window.advance(n_bytes)
        return record

    def _record(self, is_member: bool) -> WarcRecord:
        """Read the record at the position of the window and move past it.

        Raises _Damage, before moving, if there is none.
        """
        window = self._window
        n_head, headers = self._headers(0)
        length = headers.get("content-length", "")
        if not _is_length(length):
            raise _Damage(f"expected a Content-Length in digits, got {length[:40]!r}")
        record = WarcRecord(headers, int(length), None)
        if record.n_bytes > self._max_block_bytes:
            self._pass_block(n_head, record.n_bytes)
            return record
        n_all = n_head + record.n_bytes
        window.fill(n_all + len(RECORD_BEGIN))
        if window.record_boundary(n_all) is not None:
            raise _Damage(f"Content-Length {record.n_bytes:,} reaches beyond the record's member")
        if not window.fill(n_all):
            n_there = max(0, window.n_ahead - n_head)
            raise _Damage(
                f"{n_there:,} of the record's {record.n_bytes:,} bytes are there: {window.why_no_more}",
                is_cut=window.is_cut,
            )
        self._check_end(n_all)
        if self._kinds is None or record.kind in self._kinds:
            record.block = window.copy(n_head, n_all)
        window.advance(n_all)
        return record

    def _headers(self, start: int) -> tuple[int, dict[str, str]]:
        """Return the length of version line and headers of the record `start` bytes ahead, and the headers.

        _Damage if they are none.
        """
        window = self._window
        window.fill(start + MAX_HEADER_BYTES)
        max_bytes = window.record_boundary(start + MAX_HEADER_BYTES, start) or start + MAX_HEADER_BYTES
        first = window.copy(start, min(start + 40, max_bytes))
        if _VERSION.match(first) is None:
            is_cut = window.is_cut and RECORD_BEGIN.startswith(first[: len(RECORD_BEGIN)]) and b"\n" not in first
            raise _Damage(f"expected a record (WARC/1.0), found {first!r}", is_cut=is_cut)
        end = window.headers_end(start, max_bytes)
        if end is None:
            n_bytes = min(max_bytes, window.n_ahead) - start
            is_short = n_bytes < max_bytes - start
            reason = f": {window.why_no_more}" if is_short else ""
            raise _Damage(
                f"the headers of the record do not end within {n_bytes:,} bytes{reason}",
                is_cut=is_short and window.is_cut,
            )
        lines = window.copy(start, end).decode("utf-8", "replace").rstrip("\r\n").split("\n", MAX_HEADERS + 1)
        if len(lines) > MAX_HEADERS + 1:
            raise _Damage(f"the record has more than {MAX_HEADERS:,} headers")
        return end - start, headers_of(lines[1:])

    def _check_end(self, n_all: int) -> None:
        """Raise _Damage unless the record of `n_all` bytes ends there, with its member complete if that ends, too."""
        window = self._window
        window.fill(n_all + _END_BYTES + len(RECORD_BEGIN))
        after = window.copy(n_all, n_all + _END_BYTES)
        n_line_ends = len(after) - len(after.lstrip(b"\r\n"))
        next_bytes = window.copy(n_all + n_line_ends, n_all + n_line_ends + len(RECORD_BEGIN))
        if next_bytes and window.has_member_start(n_all + n_line_ends):
            return
        is_ended = after.startswith((b"\r\n\r\n", b"\n\n"))
        # Some programs leave line ends out; but then nothing of a record may be inside of this one, which lost bytes.
        if next_bytes.startswith(RECORD_BEGIN) and (is_ended or self._next_line(n_all) is None):
            return
        if next_bytes and not is_ended:
            raise _Damage(f"Content-Length is wrong: the record is followed by {after!r}, not by its end")
        # The checksum of a member is compared when it ends: here, as a rule. Damage to its last bytes can make it
        # longer.
        window.fill(n_all + MAX_HEADER_BYTES)
        if window.fault is not None and window.is_fault_of_member(n_all):
            raise _Damage(window.fault.reason, is_cut=window.is_cut)

    def _pass_block(self, n_head: int, n_bytes: int) -> None:
        """Move past a record whose block is not held."""
        window = self._window
        if self._codec is None:
            end = window.offset + n_head + n_bytes
            if end > self.file_bytes:
                raise _Damage(f"Content-Length {n_bytes:,} reaches beyond the end of the file", is_cut=True)
            begin = window.offset
            window.enter(end)
            try:
                self._check_end(0)
            except _Damage:
                window.enter(begin)
                raise
            return
        n_remaining, reason = n_head + n_bytes, f"Content-Length {n_bytes:,} reaches beyond the record's member"
        while n_remaining:
            window.fill(min(n_remaining, _READ_BYTES) + len(RECORD_BEGIN))
            step = min(n_remaining, _READ_BYTES, window.n_ahead)
            boundary = window.record_boundary(step)
            if boundary is not None:
                window.advance(boundary)
                raise _Damage(reason, is_passed=True)
            if not step:
                n_all = n_head + n_bytes
                raise _Damage(
                    f"{n_all - n_remaining:,} of the record's {n_all:,} bytes are there: {window.why_no_more}",
                    is_cut=window.is_cut,
                )
            window.advance(step)
            n_remaining -= step
        self._check_end(0)

    # -- after a fault ------------------------------------------------------------------------------------------------
    def _resynchronise(self, was_member: bool) -> bool:
        """Move to the next place where a record begins; False where there is none.

        `was_member`: the damaged record began with its member. Then its other content is not looked at if members
        follow: lines of a block could pass for a record.
        """
        window = self._window
        if not self._effort.spend(_FAULT_BYTES):
            return False
        begin, begin_position, line_position = window.offset, window.member_position, -1
        by_lines = not was_member or self._has_shared_members
        while True:
            n_seen = max(1, window.n_ahead)
            boundary = window.record_boundary(n_seen + len(RECORD_BEGIN))
            line = self._next_line(n_seen if boundary is None else boundary) if by_lines or line_position < 0 else None
            if line is not None and by_lines:
                window.advance(line)
                return True
            if line is not None:
                line_position = window.position + line - begin_position
            if boundary is not None:
                window.advance(boundary)
                return True
            window.advance(max(0, window.n_ahead - 2 * len(RECORD_BEGIN)))  # a line that has only begun is kept
            if window.fill(window.n_ahead + 1):
                continue
            if window.fault is not None and self._enter_next_member():
                return True
            if line_position < 0:
                return False
            window.enter(begin)  # there are no more members, and this one holds more than one record
            return window.skip(line_position)

    def _next_line(self, end: int) -> int | None:
        """Return how far ahead a version line begins, before `end`, that is followed by valid headers.

        The bytes before it may be damaged.
        """
        start = 1
        while (offset := self._window.find(RECORD_BEGIN, start, end)) is not None:
            try:
                _, headers = self._headers(offset)
            except _Damage:
                headers = {}
                if not self._effort.spend(_FAULT_BYTES):
                    return None
            if headers.get("warc-type") and _is_length(headers.get("content-length", "")):
                return offset
            start = offset + 1
        return None

    def _enter_next_member(self) -> bool:
        """Enter the file again after the member whose compressed bytes are damaged."""
        window = self._window
        if self._codec is None or not self._effort.spend(window.n_stored):
            return False
        offset = next_member(self._raw, self._codec, window.fault_member + 1, _begins_record, self._effort)
        if offset is not None:
            window.enter(offset)
        return offset is not None


def headers_of(lines: list[str]) -> dict[str, str]:
    """Return the headers in these lines: names in lower case, of equal ones the last.

    A line that begins with a blank continues the one before it.

    >>> headers_of(["A: x", "  y", "b:2", "B: 3"])
    {'a': 'x y', 'b': '3'}
    """
    if any(line[:1] in _BLANKS for line in lines):
        whole: list[str] = []
        for line in lines:
            if line[:1] in (" ", "\t") and whole:
                whole[-1] = f"{whole[-1].rstrip()} {line.strip()}"
            else:
                whole.append(line)
        lines = whole
    pairs = [line.partition(":") for line in lines]
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    headers.pop("", None)
    return headers


def _is_length(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18


def _begins_record(beginning: bytes) -> bool:
    return beginning.lstrip(b"\r\n").startswith(RECORD_BEGIN)

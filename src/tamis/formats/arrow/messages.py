"""Locations and row counts of the record batches of an Arrow IPC file or stream, without reading their data.

Both are sequences of messages: a length, metadata (a flatbuffer), a body. A file ends in a footer that lists them; a
stream is walked. pyarrow reports the number of rows of a batch only after reading its body, which may be larger than
the budget. Everything read here is checked against the size of the file: it may be damaged, or malicious.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import field
from typing import BinaryIO

from tamis._dataclasses import dataclass
from tamis.errors import FormatError
from tamis.stores.opening import open_buffered

MAGIC = b"ARROW1"
_SCHEMA, _DICTIONARY, _RECORDS = 1, 2, 3  # kinds of messages
FIRST_MESSAGE = 8  # of a file, after its magic bytes and padding
_MAX_METADATA = 64 << 20
_BLOCK = struct.Struct("<qi4xq")
_PLACE = struct.Struct("<qq")
_NODE = struct.Struct("<qq")  # of a column: rows, nulls
_LZ4, _ZSTD = 0, 1  # codecs of bodies
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_FRAME_HEAD = 18  # of zstd, at most
# The largest expansion that a format allows: a block of zstd is 4 bytes for 128 KiB, LZ4 counts 255 bytes with one.
_MAX_EXPANSION = {_LZ4: (255, 1 << 16), _ZSTD: (1 << 15, 1 << 17)}


@dataclass(frozen=True)
class BatchLocation:
    """A record batch in a file: its byte range, rows and stored bytes, and those of its buffers if requested."""

    offset: int
    end: int
    n_rows: int
    n_nodes: int  # columns, with those inside of columns
    body_bytes: int
    is_compressed: bool
    buffers: tuple[tuple[int, int], ...] = ()


@dataclass
class Layout:
    is_stream: bool
    batches: list[BatchLocation] = field(default_factory=list)
    schema_end: int = 0  # where its first message ends, if that is a schema
    dictionaries: list[tuple[int, int]] = field(default_factory=list)  # where each message begins and ends


def read_layout(path: str, with_buffers: bool = False) -> Layout:
    with open_buffered(path) as file:
        size = file.seek(0, 2)
        file.seek(0)
        is_stream = file.read(len(MAGIC)) != MAGIC
        try:
            return _stream(file, size) if is_stream else _file(file, size, with_buffers)
        except (struct.error, IndexError, OverflowError, FormatError) as exc:
            raise FormatError(f"{path}: not a readable Arrow file: {exc}") from None


def _file(file: BinaryIO, size: int, with_buffers: bool) -> Layout:
    footer, end = _footer(file, size)
    layout = Layout(is_stream=False, dictionaries=[(at, at + n + body) for at, n, body in footer.items(2, _BLOCK)])
    walked = _walk(file, end, with_buffers, layout)
    listed: set[int] = set()
    for offset, n_metadata, body in footer.items(3, _BLOCK):
        if offset < 0 or body < 0 or not 0 < n_metadata <= _MAX_METADATA or offset + n_metadata + body > size:
            raise FormatError(f"a record batch at byte {offset} reaches beyond the end")
        batch = walked.pop(offset, None)
        if batch is None:  # after a gap, which no writer leaves, or listed twice
            batches = _message(file, offset, size)
            if batches is None or batches.kind != _RECORDS or offset in listed:
                raise FormatError(f"there is no record batch at byte {offset}, or its footer lists it twice")
            batch = batches.batch(offset, with_buffers)
        if batch.body_bytes != body:
            raise FormatError(
                f"the record batch at byte {offset} has {batch.body_bytes} bytes, and {body} by the footer"
            )
        listed.add(offset)
        layout.batches.append(batch)
    if walked:
        raise FormatError(f"its footer leaves out the record batch at byte {min(walked)}")
    return layout


def _footer(file: BinaryIO, size: int) -> tuple[_FlatTable, int]:
    """Return the footer of a file and the offset at which it begins."""
    file.seek(max(0, size - 10))
    tail = file.read(10)
    if len(tail) < 10 or tail[4:] != MAGIC:
        raise FormatError("it has no end; it was cut off, or is still being written")
    (length,) = struct.unpack_from("<i", tail)
    if not 0 < length <= min(size, _MAX_METADATA):
        raise FormatError("its footer is damaged")
    begin = size - 10 - length
    file.seek(begin)
    return _FlatTable.root(file.read(length)), begin


def _walk(file: BinaryIO, end: int, with_buffers: bool, layout: Layout) -> dict[int, BatchLocation]:
    """Return the record batches of a file by their offsets, and note in `layout` where its schema ends.

    Stops at the first byte that is not part of a message.
    """
    batches: dict[int, BatchLocation] = {}
    offset = FIRST_MESSAGE
    while offset < end:
        try:
            message = _message(file, offset, end)
        except (struct.error, IndexError, OverflowError, FormatError):  # the footer decides whether anything is wrong
            break
        if message is None:
            break
        if message.kind == _RECORDS:
            batches[offset] = message.batch(offset, with_buffers)
        elif message.kind == _SCHEMA and offset == FIRST_MESSAGE:
            layout.schema_end = message.end
        offset = message.end
    return batches


def _stream(file: BinaryIO, size: int) -> Layout:
    layout, offset = Layout(is_stream=True), 0
    while offset < size and (message := _message(file, offset, size)) is not None:
        if message.kind == _RECORDS:
            layout.batches.append(message.batch(offset))
        elif message.kind == _DICTIONARY:
            message.check_dictionary(offset)
            layout.dictionaries.append((offset, message.end))
        elif message.kind != _SCHEMA or offset:
            raise FormatError(f"the message at byte {offset} is neither a record batch nor a dictionary")
        else:
            layout.schema_end = message.end
        offset = message.end
    if offset < size:
        _check_end(file, offset)
    return layout


def _check_end(file: BinaryIO, offset: int) -> None:
    """Raise FormatError if anything but zeros follows the mark that ends a stream."""
    file.seek(offset)
    if file.read(4) == b"\xff\xff\xff\xff":
        file.seek(offset + 8)
    while block := file.read(1 << 16):
        if block.count(0) != len(block):
            raise FormatError(
                f"it continues after the end mark at byte {offset}: the mark is damage, or data was appended"
            )


def check_claims(path: str, layout: Layout, batch: BatchLocation) -> None:
    """Raise FormatError if a record batch, or a dictionary, claims sizes that cannot be true of this file.

    For readers that failed to allocate as much as a batch claims: damaged lengths request memory that no budget could
    give.
    """
    with open_buffered(path) as file:
        size = file.seek(0, 2)
        try:
            for offset in (*(at for at, _ in layout.dictionaries), batch.offset):
                if (message := _message(file, offset, size)) is not None:
                    message.check_claims(file, offset)
        except (struct.error, IndexError, OverflowError) as exc:
            raise FormatError(f"its metadata is damaged: {exc}") from None


def _check_compressed(head: bytes, n_bytes: int, codec: int) -> None:
    """Raise FormatError if a compressed buffer of `n_bytes` claims to decode to more than its codec allows.

    `head`: its first bytes, which begin with the decoded size.
    """
    (claimed,) = struct.unpack_from("<q", head)
    if claimed == -1:  # stored as it is
        return
    times, more = _MAX_EXPANSION.get(codec, (1 << 15, 1 << 17))
    if claimed < 0 or claimed > (n_bytes - 8) * times + more:
        raise FormatError(f"a buffer of {n_bytes} bytes claims to hold {claimed} bytes")
    declared_bytes = _zstd_size(head[8:]) if codec == _ZSTD else None
    if declared_bytes is not None and declared_bytes != claimed:
        raise FormatError(f"a buffer claims to hold {claimed} bytes, and its frame {declared_bytes}")


def _zstd_size(frame: bytes) -> int | None:
    """Return the decoded size that the header of a zstd frame names (RFC 8878); None if it names none."""
    if len(frame) < _FRAME_HEAD or not frame.startswith(_ZSTD_MAGIC):
        return None
    flags = frame[4]
    is_single = bool(flags & 0x20)
    offset = 5 + (0 if is_single else 1) + (0, 1, 2, 4)[flags & 3]
    width = (1 if is_single else 0, 2, 4, 8)[flags >> 6]
    return int.from_bytes(frame[offset : offset + width], "little") + (256 if width == 2 else 0) if width else None


@dataclass(frozen=True)
class _Message:
    kind: int
    header: _FlatTable
    body_bytes: int
    end: int

    def batch(self, offset: int, with_buffers: bool = False) -> BatchLocation:
        n_rows = _rows_of(self.header, self.body_bytes, offset)
        buffers = self._buffers(self.header, offset) if with_buffers else ()
        n_nodes = self.header.length(1)
        return BatchLocation(offset, self.end, n_rows, n_nodes, self.body_bytes, self.header.place(3) != 0, buffers)

    def check_dictionary(self, offset: int) -> None:
        """Raise FormatError if this is not a dictionary, whatever its kind says: rows would be lost."""
        _rows_of(self.header.table(1), self.body_bytes, offset)

    def check_claims(self, file: BinaryIO, offset: int) -> None:
        records = self.header.table(1) if self.kind == _DICTIONARY else self.header
        buffers = self._buffers(records, offset)
        if not records.place(3):
            return
        codec = records.table(3).byte(0)
        for at, n in buffers:
            if n:
                file.seek(at)
                _check_compressed(file.read(min(n, 8 + _FRAME_HEAD)), n, codec)

    def _buffers(self, records: _FlatTable, offset: int) -> tuple[tuple[int, int], ...]:
        begin = self.end - self.body_bytes
        buffers = tuple((begin + at, n) for at, n in records.items(2, _PLACE))
        if any(at < begin or n < 0 or at + n > self.end for at, n in buffers):
            raise FormatError(f"the record batch at byte {offset} has buffers outside of it")
        return buffers


def _rows_of(records: _FlatTable, body_bytes: int, offset: int) -> int:
    """Return the rows of a record batch. FormatError if its columns have another number, or data and no rows."""
    n_rows = records.int64(0)
    n_in_column = next((n for n, _ in records.items(1, _NODE)), None)
    if n_rows < 0 or n_in_column not in (None, n_rows):
        raise FormatError(f"the record batch at byte {offset} has {n_rows} rows, and its first column {n_in_column}")
    if n_in_column is None and body_bytes:
        raise FormatError(f"the record batch at byte {offset} has {body_bytes} bytes of data and no columns")
    return n_rows


def _message(file: BinaryIO, offset: int, size: int) -> _Message | None:
    """Return the message at byte `at`, or None for the marker that ends a stream."""
    file.seek(offset)
    head = file.read(8)
    begin, length = 8, 0
    if head[:4] == b"\xff\xff\xff\xff":
        (length,) = struct.unpack_from("<i", head, 4)
    else:  # as written before 2019: no mark before the length
        begin = 4
        (length,) = struct.unpack_from("<i", head)
    if length == 0:
        return None
    if not 0 < length <= min(_MAX_METADATA, size - offset - begin):
        raise FormatError(f"there is no message at byte {offset}")
    file.seek(offset + begin)
    message = _FlatTable.root(file.read(length))
    body = message.int64(3)
    end = offset + begin + length + body
    if body < 0 or end > size:
        raise FormatError(f"the message at byte {offset} reaches beyond the end; the file was cut off")
    return _Message(message.byte(1), message.table(2), body, end)


@dataclass(frozen=True)
class _FlatTable:
    """A table of a flatbuffer: fields by their number, absent ones zero."""

    data: bytes
    offset: int

    @classmethod
    def root(cls, data: bytes) -> _FlatTable:
        return cls(data, struct.unpack_from("<I", data)[0])

    def place(self, field: int) -> int:
        (back,) = struct.unpack_from("<i", self.data, self.offset)
        table = self.offset - back
        if table < 0:
            raise FormatError("its metadata is damaged")
        (size,) = struct.unpack_from("<H", self.data, table)
        slot = 4 + 2 * field
        (offset,) = struct.unpack_from("<H", self.data, table + slot) if slot < size else (0,)
        return self.offset + offset if offset else 0

    def byte(self, field: int) -> int:
        offset = self.place(field)
        return self.data[offset] if offset else 0

    def int64(self, field: int) -> int:
        offset = self.place(field)
        return int(struct.unpack_from("<q", self.data, offset)[0]) if offset else 0

    def _target(self, offset: int) -> int:
        return offset + int(struct.unpack_from("<I", self.data, offset)[0])

    def table(self, field: int) -> _FlatTable:
        offset = self.place(field)
        if not offset:
            raise FormatError("its metadata is damaged")
        return _FlatTable(self.data, self._target(offset))

    def length(self, field: int) -> int:
        """Return the number of items of a vector."""
        offset = self.place(field)
        return int(struct.unpack_from("<I", self.data, self._target(offset))[0]) if offset else 0

    def items(self, field: int, kind: struct.Struct) -> Iterator[tuple[int, ...]]:
        """Yield the items of a vector, each unpacked as a structure of this kind.

        Blocks are (offset, bytes of metadata, bytes of the body).
        """
        offset = self.place(field)
        if not offset:
            return
        start = self._target(offset)
        (n,) = struct.unpack_from("<I", self.data, start)
        if n * kind.size > len(self.data):
            raise FormatError("its metadata is damaged")
        for i in range(n):
            yield kind.unpack_from(self.data, start + 4 + i * kind.size)

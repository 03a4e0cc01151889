"""Where the record batches of an Arrow IPC file or stream lie, and how many rows each has, without reading any of their data.

Both are sequences of messages: a length, metadata (a flatbuffer), a body. A file ends in a footer that lists them; a stream is walked. pyarrow
tells the number of rows of a batch only after reading its body, which may be larger than the budget. Everything read here is
checked against the size of the file: it may be damaged, or made to harm.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from tamis.errors import FormatError
from tamis.stores.opening import open_buffered

MAGIC = b"ARROW1"
_DICTIONARY, _RECORDS = 2, 3  # kinds of messages
_MAX_METADATA = 64 << 20
_BLOCK = struct.Struct("<qi4xq")
_PLACE = struct.Struct("<qq")


@dataclass(frozen=True)
class Batch:
    """A record batch: where its message begins, its rows, the bytes of its body as stored, and where in the file each of its buffers
    lies (place, bytes), where somebody asked."""

    offset: int
    n_rows: int
    body_bytes: int
    is_compressed: bool
    buffers: tuple[tuple[int, int], ...] = ()


@dataclass
class Layout:
    is_stream: bool
    batches: list[Batch] = field(default_factory=list)
    has_dictionaries: bool = False


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
    file.seek(max(0, size - 10))
    tail = file.read(10)
    if len(tail) < 10 or tail[4:] != MAGIC:
        raise FormatError("it has no end; it was cut off, or is still being written")
    (length,) = struct.unpack_from("<i", tail)
    if not 0 < length <= min(size, _MAX_METADATA):
        raise FormatError("its footer is damaged")
    file.seek(size - 10 - length)
    footer = _Table.root(file.read(length))
    layout = Layout(is_stream=False, has_dictionaries=bool(list(footer.items(2, _BLOCK))))
    for offset, n_metadata, body in footer.items(3, _BLOCK):
        if offset < 0 or body < 0 or not 0 < n_metadata <= _MAX_METADATA or offset + n_metadata + body > size:
            raise FormatError(f"a record batch at byte {offset} reaches beyond the end")
        found = _message(file, offset, size)
        if found is None or found.kind != _RECORDS:
            raise FormatError(f"there is no record batch at byte {offset}")
        layout.batches.append(found.batch(offset, with_buffers))
    return layout


def _stream(file: BinaryIO, size: int) -> Layout:
    layout, at = Layout(is_stream=True), 0
    while at < size and (found := _message(file, at, size)) is not None:
        if found.kind == _RECORDS:
            layout.batches.append(found.batch(at))
        layout.has_dictionaries |= found.kind == _DICTIONARY
        at = found.end
    return layout


@dataclass(frozen=True)
class _Message:
    kind: int
    header: _Table
    body_bytes: int
    end: int

    def batch(self, offset: int, with_buffers: bool = False) -> Batch:
        n_rows = self.header.int64(0)
        if n_rows < 0:
            raise FormatError(f"the record batch at byte {offset} has {n_rows} rows")
        begin = self.end - self.body_bytes
        buffers = tuple((begin + at, n) for at, n in self.header.items(2, _PLACE)) if with_buffers else ()
        if any(at < begin or n < 0 or at + n > self.end for at, n in buffers):
            raise FormatError(f"the record batch at byte {offset} has buffers outside of it")
        return Batch(offset, n_rows, self.body_bytes, self.header.place(3) != 0, buffers)


def _message(file: BinaryIO, at: int, size: int) -> _Message | None:
    """The message at this byte; None for the mark that ends a stream."""
    file.seek(at)
    head = file.read(8)
    begin, length = 8, 0
    if head[:4] == b"\xff\xff\xff\xff":
        (length,) = struct.unpack_from("<i", head, 4)
    else:  # as written before 2019: no mark before the length
        begin = 4
        (length,) = struct.unpack_from("<i", head)
    if length == 0:
        return None
    if not 0 < length <= min(_MAX_METADATA, size - at - begin):
        raise FormatError(f"there is no message at byte {at}")
    file.seek(at + begin)
    message = _Table.root(file.read(length))
    body = message.int64(3)
    end = at + begin + length + body
    if body < 0 or end > size:
        raise FormatError(f"the message at byte {at} reaches beyond the end; the file was cut off")
    return _Message(message.byte(1), message.table(2), body, end)


@dataclass(frozen=True)
class _Table:
    """A table of a flatbuffer: fields by their number, absent ones zero."""

    data: bytes
    at: int

    @classmethod
    def root(cls, data: bytes) -> _Table:
        return cls(data, struct.unpack_from("<I", data)[0])

    def place(self, field: int) -> int:
        (back,) = struct.unpack_from("<i", self.data, self.at)
        table = self.at - back
        if table < 0:
            raise FormatError("its metadata is damaged")
        (size,) = struct.unpack_from("<H", self.data, table)
        slot = 4 + 2 * field
        (offset,) = struct.unpack_from("<H", self.data, table + slot) if slot < size else (0,)
        return self.at + offset if offset else 0

    def byte(self, field: int) -> int:
        place = self.place(field)
        return self.data[place] if place else 0

    def int64(self, field: int) -> int:
        place = self.place(field)
        return int(struct.unpack_from("<q", self.data, place)[0]) if place else 0

    def _behind(self, place: int) -> int:
        return place + int(struct.unpack_from("<I", self.data, place)[0])

    def table(self, field: int) -> _Table:
        place = self.place(field)
        if not place:
            raise FormatError("its metadata is damaged")
        return _Table(self.data, self._behind(place))

    def items(self, field: int, kind: struct.Struct) -> Iterator[tuple[int, ...]]:
        """The items of a vector, each as this kind of structure: blocks are (offset, bytes of metadata, bytes of the body)."""
        place = self.place(field)
        if not place:
            return
        start = self._behind(place)
        (n,) = struct.unpack_from("<I", self.data, start)
        if n * kind.size > len(self.data):
            raise FormatError("its metadata is damaged")
        for i in range(n):
            yield kind.unpack_from(self.data, start + 4 + i * kind.size)

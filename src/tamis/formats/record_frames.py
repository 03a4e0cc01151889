"""Frames: records of files that can only be read from their beginning (WARC), as they go from process to process.

Such a file is a sequence of frames: a record that is a document, or is none; a part of the file that holds no readable
record; a record that is refused. A feeder reads the file and packs frames into block files, which other workers
decode. The offset of a frame in the sequence is its position: a function of the file and of max_record, so that
partitions, retries and resumed runs agree on it. The frame itself says where the record is stored.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import BinaryIO

from tamis._dataclasses import dataclass
from tamis.errors import FormatError

_HEADER = struct.Struct("<4sB3xIQQQ")  # magic, kind, bytes of `about` and `body`, offset and length as stored
_MAGIC = b"TFR1"
_READ_BYTES = 256 << 10


class FrameKind(IntEnum):
    DOCUMENT = 0  # `about`: what the format knows of the record, `body`: its bytes
    SKIPPED = 1  # no document; `about`: the reason
    FAULT = 2  # no readable record; `about`: the reason, `length` as much of the file as counts as lost
    REFUSED = 3  # one record, for quarantine; `about`: the reason


@dataclass(slots=True)
class RecordFrame:
    """A record, or a part of a file without one. `offset`, `length`: in the file as stored."""

    kind: FrameKind
    offset: int
    length: int
    about: bytes
    body: bytes = b""

    @property
    def n_bytes(self) -> int:
        """Bytes of the packed frame."""
        return _HEADER.size + len(self.about) + len(self.body)

    @property
    def reason(self) -> str:
        return self.about.decode("utf-8", "replace")

    def pack(self) -> tuple[bytes, bytes]:
        """Return the frame as bytes: all but the body, and the body."""
        head = _HEADER.pack(_MAGIC, self.kind, len(self.about), len(self.body), self.offset, self.length)
        return head + self.about, self.body


def read_frames(file: BinaryIO, base: int, start: int, end: int) -> Iterator[tuple[int, RecordFrame]]:
    """Yield (position, frame) of the frames of a block file that begin in [start, end). `base`: where the file begins.

    The others are skipped without being read.
    """
    position = base
    file.seek(0)
    buffered = io.BufferedReader(file, _READ_BYTES)  # type: ignore[type-var]
    try:
        yield from _frames(buffered, position, start, end)
    finally:
        buffered.detach()  # the file is its owner's to close


def _frames(file: BinaryIO, position: int, start: int, end: int) -> Iterator[tuple[int, RecordFrame]]:
    while position < end and (head := file.read(_HEADER.size)):
        if len(head) < _HEADER.size or head[:4] != _MAGIC:
            raise FormatError(f"expected a frame at position {position}, found {head[:4]!r}")
        _, kind, n_about, n_body, offset, length = _HEADER.unpack(head)
        if position >= start:
            yield position, RecordFrame(FrameKind(kind), offset, length, file.read(n_about), file.read(n_body))
        else:
            file.seek(n_about + n_body, 1)
        position += _HEADER.size + n_about + n_body

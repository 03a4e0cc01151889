"""A decoded stream cut into block files of whole records, in memory that does not depend on the size of records.

What is read goes to the file of the present block up to its last line feed; only the beginning of the record that is
not complete yet is held. A record that gets longer than a step goes to a separate file while it is read: a block like
any other, or, if it turns out larger than max_record, to quarantine.
"""

from __future__ import annotations

from collections.abc import Callable

from tamis.engine.schema import CoveredRange
from tamis.engine.units import Piece, PieceKind, Unit
from tamis.engine.worker.blocks import BlockWriter
from tamis.engine.worker.quarantine import MAX_RAW_BYTES, QuarantinedInput
from tamis.engine.worker.read import Contents, broken_tail
from tamis.formats.compression.source import StreamFault
from tamis.formats.compression.streams import StreamReader
from tamis.formats.jsonl.ranges import end_of_line

STEP_BYTES = 1 << 20
# A block, its bytes, compressed bytes read so far; returns when the next is wanted.
Emit = Callable[[Piece, int, int], None]


class DecodedStream:
    """A decoded stream that can take back what was read too far."""

    def __init__(self, reader: StreamReader, file_bytes: int) -> None:
        self._reader, self._pushed_back = reader, b""
        self.file_bytes = file_bytes  # as it is stored

    @property
    def offset(self) -> int:
        return self._reader.decoded_offset - len(self._pushed_back)

    @property
    def compressed_offset(self) -> int:
        return self._reader.compressed_offset

    def read(self, n_bytes: int) -> bytes:
        if not self._pushed_back:
            return self._reader.read(n_bytes)
        data, self._pushed_back = self._pushed_back[:n_bytes], self._pushed_back[n_bytes:]
        return data

    def unread(self, data: bytes) -> None:
        self._pushed_back = data + self._pushed_back

    def to_record_start(self, start: int) -> None:
        """Advance to the first record at or after `start`; a position after it is at a record already."""
        if start <= self.offset:
            return
        n_remaining = start - 1 - self.offset
        while n_remaining > 0 and (data := self.read(min(n_remaining, STEP_BYTES))):
            n_remaining -= len(data)
        while data := self.read(STEP_BYTES):
            at = data.find(b"\n")
            if at >= 0:
                self.unread(data[at + 1 :])
                return


class StreamBlocks:
    """Writes the blocks of the ranges that a unit wants; `prefix` begins their names.

    `quarantined_files`: those of quarantined records.
    """

    def __init__(
        self, stream: DecodedStream, unit: Unit, max_record_bytes: int, prefix: str, contents: Contents, emit: Emit
    ) -> None:
        self._stream, self._unit, self._max_record_bytes = stream, unit, max_record_bytes
        self._prefix, self._contents, self._emit_block = prefix, contents, emit
        self._piece = unit.pieces[0]
        self._start = 0  # where the present block begins, in decoded bytes
        self._writer: BlockWriter | None = None
        self._path = ""
        self._n_files = 0
        self._last = b""  # the last two bytes that were written
        self._partial = bytearray()  # of the record that is not complete yet
        self._is_long = False  # that record is on its way to a separate file
        self.quarantined_files: list[str] = []

    def run(self) -> None:
        """Write all blocks; what cannot be read, or is too large, is named in the contents."""
        try:
            for piece in list(self._unit.pieces):
                self._write_range(piece)
            end = self._stream.offset
        except StreamFault as fault:
            self._end_at(fault)
            end = fault.decoded_offset
        self._contents.covered.append(CoveredRange(self._piece.file, end, end, True))

    def _write_range(self, piece: Piece) -> None:
        stream = self._stream
        self._start = max(piece.start, stream.offset)
        stream.to_record_start(piece.start)
        self._start = stream.offset
        self._cover(piece.start, self._start)
        while stream.offset < piece.end or self._partial or self._is_long:
            n_in_range = piece.end - stream.offset
            n_in_block = max(1 << 16, self._unit.max_bytes - self._n_bytes)
            data = stream.read(min(STEP_BYTES, n_in_range, n_in_block) if n_in_range > 0 else 4096)
            if not data:
                break
            if n_in_range <= 0 and (at := data.find(b"\n")) >= 0:  # the last record of the range ends here
                stream.unread(data[at + 1 :])
                data = data[: at + 1]
            self._add(data)
        self._finish()

    def _add(self, data: bytes) -> None:
        if self._is_long:
            at = data.find(b"\n") + 1
            self._write(data[:at] if at else data)
            if not at:
                return
            self._end_long()
            data = data[at:]
        cut = data.rfind(b"\n") + 1
        if cut:
            self._write(self._partial)
            self._partial.clear()
            self._write(memoryview(data)[:cut])
            data = data[cut:]
            if self._n_bytes >= self._unit.max_bytes:
                self._close()
        self._partial += data
        if len(self._partial) > min(STEP_BYTES, self._max_record_bytes):
            if self._writer is not None:
                self._close()
            self._write(self._partial)
            self._partial.clear()
            self._is_long = True

    def _finish(self) -> None:
        """Finish the range or the stream at its end."""
        self._write(self._partial)
        self._partial.clear()
        if self._is_long:
            self._end_long()
        elif self._writer is not None:
            self._close()

    def _end_long(self) -> None:
        """Complete a record that has a separate file."""
        self._is_long = False
        length = self._n_bytes - end_of_line(self._last)
        if length <= self._max_record_bytes:
            self._close()
            return
        assert self._writer is not None
        self._writer.close()
        self.quarantined_files.append(self._path)
        self._contents.bad.append(
            QuarantinedInput(
                self._piece.file,
                self._piece.path,
                self._start,
                length,
                "larger than max_record",
                unit="decoded bytes",
                copy_from=(self._path, 0, length),
            )
        )
        self._cover(self._start, self._start + self._n_bytes)
        self._start, self._writer = self._start + self._n_bytes, None

    def _end_at(self, fault: StreamFault) -> None:
        """Hand out the whole records before a fault; what follows them is quarantined."""
        raw = bytes(self._partial)
        if self._is_long and self._writer is not None:
            self._writer.close()
            self.quarantined_files.append(self._path)
            with open(self._path, "rb") as file:
                raw = file.read(MAX_RAW_BYTES)
        elif self._writer is not None:
            self._close()
        self._contents.bad.append(broken_tail(self._piece, fault, self._start, raw, self._stream.file_bytes))
        self._cover(self._start, max(self._start, fault.decoded_offset))

    # -- the present block --------------------------------------------------------------------------------------------
    @property
    def _n_bytes(self) -> int:
        return self._writer.n_bytes if self._writer is not None else 0

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        if not data:
            return
        if self._writer is None:
            self._path = f"{self._prefix}.{self._n_files}.block"
            self._n_files += 1
            self._writer = BlockWriter(self._path)
        self._writer.write(data)
        self._last = (self._last + bytes(data[-2:]))[-2:]

    def _close(self) -> None:
        writer, piece = self._writer, self._piece
        assert writer is not None
        writer.close()
        start, end = self._start, self._start + writer.n_bytes
        self._start, self._writer = end, None
        block = Piece(piece.file, PieceKind.BLOCK, self._path, start, end, start, piece.path, writer.check)
        self._emit_block(block, writer.n_bytes, self._stream.compressed_offset)

    def _cover(self, start: int, end: int) -> None:
        self._contents.covered.append(CoveredRange(self._piece.file, start, end, False))

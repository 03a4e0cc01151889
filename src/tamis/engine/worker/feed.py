"""The feeder: decodes a file that cannot be entered in the middle and hands out blocks that other workers process.

Blocks are scratch files of whole records (bytes of a stream: stream_blocks.py) or rows (one Parquet row group), so a
block is a partition like any other. The feeder holds a batch of rows or a few MiB of a stream, in addition to what the
decoder needs, and continues only when the supervisor says so (queues are bounded in bytes).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import pyarrow as pa

from tamis.engine.ledger import Ledger
from tamis.engine.messages import Block, Done, UnitMessage
from tamis.engine.schema import CoveredRange
from tamis.engine.units import TO_END, Piece, PieceKind, Unit
from tamis.engine.worker.blocks import BlockWriter, sent_to
from tamis.engine.worker.bookmarks import Bookmarks
from tamis.engine.worker.config import WorkerConfig
from tamis.engine.worker.quarantine import QuarantinedInput, account_bad, damaged_rows, write_quarantine
from tamis.engine.worker.read import Contents, ReadOptions, kept_spans, open_input
from tamis.engine.worker.stream_blocks import DecodedStream, Emit, StreamBlocks
from tamis.formats.base import MAX_BATCH_ROWS, RecordScan, RowsFault
from tamis.formats.compression.codecs import codec_of
from tamis.formats.compression.streams import StreamReader
from tamis.formats.record_frames import RecordFrame
from tamis.formats.registry import record_format, table_format
from tamis.formats.scratch.kept_records import KeptRecords, KeptSpan
from tamis.memory.release import reusing_large_blocks
from tamis.stores.opening import state_of_open

_WRITE_BYTES = 1 << 18
_ROW_BATCH_BYTES = 8 << 20
Send = Callable[[UnitMessage], None]
Wait = Callable[[], int]  # blocks until the next block is wanted; returns its size (0: as before)


def feed(
    unit: Unit,
    prefix: str,
    config: WorkerConfig,
    base: str,
    send: Send,
    wait: Wait,
    options: ReadOptions,
) -> Done:
    """Hand out the blocks of a unit's ranges, one `send` each; returns the report on what is no block.

    `prefix`: how the names of blocks begin, `base`: of files that are staged. `options`: how the job's reader reads.
    """

    def emit(block: Piece, n_bytes: int, compressed: int) -> None:
        if block.kind is not PieceKind.KEPT:
            block = block._replace(path=sent_to(config.block_url, block.path))
        send(Block(block, n_bytes, compressed))
        unit.max_bytes = wait() or unit.max_bytes

    contents = Contents()
    piece, quarantined_files = unit.pieces[0], []
    file = open_input(piece, options, contents)
    if file is not None:
        if piece.kind is PieceKind.ROWS:
            file.close()
            _feed_rows(piece, unit, prefix, contents.bad, emit, options.columns)
        else:
            with file:
                if record_format(piece.path) is not None:
                    source = _RecordSource(file, piece, prefix, config)
                    if spans := kept_spans(piece, options):
                        _feed_kept(spans, source, unit, contents, emit)
                    else:
                        _feed_record_file(source, unit, options, contents, emit)
                    return _report(contents.bad, contents.covered, base)
                stream = DecodedStream(StreamReader(file, codec_of(piece.path)), state_of_open(file)[0])
                blocks = StreamBlocks(stream, unit, config.max_record_bytes, prefix, contents, emit)
                blocks.run()
                quarantined_files = blocks.quarantined_files
    report = _report(contents.bad, contents.covered, base)
    for path in quarantined_files:
        os.unlink(path)
    return report


def _report(bad: list[QuarantinedInput], covered: list[CoveredRange], base: str) -> Done:
    """Return the report on what is no block."""
    ledger = Ledger()
    account_bad(bad, ledger)
    files = write_quarantine(bad, base)
    at = min((b.offset for b in bad), default=0)
    # A name of its own: the first block of the file may have something to quarantine too.
    files = [replace(f, extension=f"feed.{f.extension}", at=at) for f in files]
    return Done(n_records=len(bad), covered=covered, files=files, ledger=ledger)


@dataclass
class _RecordSource:
    """A file of records that is open. `prefix`: how the names of its blocks begin."""

    file: BinaryIO
    piece: Piece
    prefix: str
    config: WorkerConfig

    def feed(self, ranges: Sequence[tuple[int, int]], unit: Unit, emit: Emit) -> int:
        """Hand out the frames at positions in these ranges; return where the scan ended."""
        path, config = self.piece.path, self.config
        state = config.inputs.get(path)
        marks = Bookmarks(os.path.dirname(config.plan_path), path, state, config.max_record_bytes)
        position, offset = marks.before(ranges[0][0])
        records = record_format(path)
        assert records is not None
        scan = records.scan(self.file, path, config.max_record_bytes, offset)
        block = _FrameBlocks(self.piece, f"{self.prefix}.{ranges[0][0]}", scan, marks, emit)
        return _feed_records(scan, position, ranges, block, unit)


def _feed_record_file(source: _RecordSource, unit: Unit, options: ReadOptions, contents: Contents, emit: Emit) -> None:
    """Hand out the frames in the ranges of the unit."""
    piece, config = source.piece, source.config
    end = source.feed([(p.start, p.end) for p in unit.pieces], unit, emit)
    if unit.pieces[-1].end != TO_END:
        return
    contents.covered.append(CoveredRange(piece.file, end, end, True))
    if options.keep_records_in is not None:
        state = config.inputs.get(piece.path)
        KeptRecords(options.keep_records_in, piece.path, state, config.max_record_bytes).end_at(end)


def _feed_kept(spans: Sequence[KeptSpan], source: _RecordSource, unit: Unit, contents: Contents, emit: Emit) -> None:
    """Hand out, in the ranges of the unit, what an earlier pass kept of a file, and from the file what it did not."""
    piece = unit.pieces[0]
    waiting: list[KeptSpan] = []

    def hand_out() -> None:
        if waiting:
            first, last = waiting[0], waiting[-1]
            block = Piece(piece.file, PieceKind.KEPT, piece.path, first.start, last.end, first.start, piece.path)
            emit(block, sum(part.n_bytes for part in waiting), last.stored_end)
            waiting.clear()

    for start, end in [(p.start, p.end) for p in unit.pieces]:
        for span in spans:
            if span.end <= start or span.start >= end:
                continue
            part = span._replace(start=max(start, span.start), end=min(end, span.end))
            if not part.path:
                hand_out()
                source.feed([(part.start, part.end)], unit, emit)
                continue
            if sum(each.n_bytes for each in waiting) + part.n_bytes > unit.max_bytes:
                hand_out()
            waiting.append(part)
        hand_out()
    if unit.pieces[-1].end == TO_END:
        contents.covered.append(CoveredRange(piece.file, spans[-1].end, spans[-1].end, True))


def _feed_records(
    scan: RecordScan, position: int, wanted: Sequence[tuple[int, int]], block: _FrameBlocks, unit: Unit
) -> int:
    """Hand out the frames whose positions are in some ranges; return where the scan, begun at `position`, ended."""
    ranges = list(wanted)
    with reusing_large_blocks():
        for frame in scan:
            while ranges and position >= ranges[0][1]:
                block.close()
                ranges.pop(0)
            n_bytes = frame.n_bytes
            if ranges and position >= ranges[0][0]:
                block.add(position, frame, n_bytes, unit.max_bytes)
            position += n_bytes
            if not ranges:
                break
    block.close()
    return position


class _FrameBlocks:
    """Frames on their way to block files, written as they come."""

    def __init__(self, piece: Piece, prefix: str, scan: RecordScan, marks: Bookmarks, emit: Emit) -> None:
        self._piece, self._prefix, self._scan, self._marks, self._emit = piece, prefix, scan, marks, emit
        self._n_files = self._first = 0
        self._path = ""
        self._sink: BlockWriter | None = None
        self._waiting: list[bytes] = []
        self._n_waiting = 0

    def add(self, position: int, frame: RecordFrame, n_bytes: int, block_bytes: int) -> None:
        if self._sink is not None and self._sink.n_bytes + self._n_waiting + n_bytes > block_bytes:
            self.close()
        if self._sink is None:
            self._path, self._first = f"{self._prefix}.{self._n_files}.block", position
            self._n_files += 1
            self._sink = BlockWriter(self._path)
            if self._scan.can_begin_here:
                self._marks.add(position, frame.offset)
        self._waiting += frame.pack()
        self._n_waiting += n_bytes
        if self._n_waiting >= _WRITE_BYTES:
            self._write(self._sink)

    def _write(self, sink: BlockWriter) -> None:
        """Write the frames that wait; few and large writes cost less than one for each frame."""
        sink.write(b"".join(self._waiting))
        self._waiting, self._n_waiting = [], 0

    def close(self) -> None:
        """Hand out what was written."""
        sink, piece = self._sink, self._piece
        if sink is None:
            return
        self._write(sink)
        sink.close()
        self._sink = None
        end = self._first + sink.n_bytes
        block = Piece(piece.file, PieceKind.BLOCK, self._path, self._first, end, self._first, piece.path, sink.check)
        self._emit(block, sink.n_bytes, self._scan.stored_offset)


def _feed_rows(
    piece: Piece, unit: Unit, prefix: str, bad: list[QuarantinedInput], emit: Emit, columns: tuple[str, ...] | None
) -> None:
    at = piece.start
    end = piece.end if piece.end != TO_END else table_format(piece.path).describe(piece.path).n_rows
    blocks = _RowBlocks(piece, prefix, emit)
    while at < end:
        try:
            batch_bytes = max(1 << 16, min(unit.max_bytes, _ROW_BATCH_BYTES))
            most = unit.max_rows or MAX_BATCH_ROWS  # fewer after it did not fit
            for first, table in table_format(piece.path).iter_rows(piece.path, at, end, columns, batch_bytes, most):
                blocks.add(first, table, unit.max_bytes)
            break
        except RowsFault as fault:
            blocks.close()
            bad.append(damaged_rows(piece, fault, end))
            at = min(fault.next_row, end)
    blocks.close()


class _RowBlocks:
    """Rows on their way to block files, written as they come."""

    def __init__(self, piece: Piece, prefix: str, emit: Emit) -> None:
        self._piece, self._prefix, self._emit = piece, prefix, emit
        self._n_files = 0
        self._path = ""
        self._sink: BlockWriter | None = None
        self._writer: Any = None
        self._first = self._end = self._n_bytes = 0

    def add(self, first: int, table: pa.Table, block_bytes: int) -> None:
        if self._sink is not None and self._n_bytes + table.nbytes > block_bytes:
            self.close()
        if self._sink is None:
            self._path = f"{self._prefix}.{self._n_files}.arrow"
            self._n_files += 1
            self._first, self._n_bytes = first, 0
            self._sink = BlockWriter(self._path)
            self._writer = pa.ipc.new_file(self._sink, table.schema)
        self._writer.write_table(table)
        self._end, self._n_bytes = first + len(table), self._n_bytes + table.nbytes

    def close(self) -> None:
        """Hand out what was written."""
        sink, piece = self._sink, self._piece
        if sink is None:
            return
        self._writer.close()
        sink.close()
        self._sink = None
        block = Piece(
            piece.file, PieceKind.ROW_BLOCK, self._path, self._first, self._end, self._first, piece.path, sink.check
        )
        self._emit(block, self._n_bytes, 0)

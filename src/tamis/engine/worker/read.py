"""Reads the pieces of a unit as documents, and names everything that could not become a document.

Covers: opening the right range of the right file, in the right format, inside a bound. Does not cover: which ranges
(cursor) and what happens to them (process).
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from tamis._dataclasses import dataclass
from tamis.engine.messages import RowsTooLarge, StreamTooLarge
from tamis.engine.schema import CoveredRange
from tamis.engine.units import MIN_ROWS_BYTES, TO_END, Piece, PieceKind
from tamis.engine.worker.blocks import check_bytes, check_file
from tamis.engine.worker.config import PlannedInputs
from tamis.engine.worker.quarantine import MAX_RAW_BYTES, QuarantinedInput, damaged_rows
from tamis.errors import FormatError, StoreError
from tamis.failures import is_memory_failure
from tamis.formats.base import BATCH_BYTES, RowsFault, TableInfo
from tamis.formats.compression.codecs import codec_of
from tamis.formats.compression.source import StreamFault
from tamis.formats.compression.streams import StreamReader
from tamis.formats.jsonl.file_spans import FileSpan, FileSpans
from tamis.formats.jsonl.ranges import read_range
from tamis.formats.jsonl.record_index import RecordIndex, RecordSpans
from tamis.formats.number_buffer import STEP_BYTES, NumberBuffer, have_number_lists, join_tables
from tamis.formats.record_frames import FrameKind, RecordFrame, read_frames
from tamis.formats.registry import line_format, record_format, table_format
from tamis.formats.schema.run_schema import NO_FIELDS
from tamis.formats.scratch.kept_records import KeptBlock, KeptRange, KeptRecords, KeptSpan
from tamis.formats.table_block import TableBlock, row_bytes
from tamis.formats.table_files import bad_text_rows
from tamis.memory.release import reusing_large_blocks
from tamis.stores import opening as stores
from tamis.stores.reading import retry_if_damaged
from tamis.stores.urls import is_remote
from tamis.tasks import DocumentBatch
from tamis.tasks.columns.python_values import python_values

_READ_BYTES = 1 << 20


@dataclass
class Contents:
    """The contents of a unit: documents, faults, and the ranges they come from."""

    batches: list[DocumentBatch] = field(default_factory=list)
    bad: list[QuarantinedInput] = field(default_factory=list)
    n_blank: int = 0
    skipped: dict[str, int] = field(default_factory=dict)  # records that are no documents, by reason
    decoded_bytes: int = 0
    stored_bytes: int = 0  # of what rows lead to, where they are not the data themselves
    largest_record: int = 0
    covered: list[CoveredRange] = field(default_factory=list)
    cut: int = -1  # where to cut a unit of one piece in two: the place of its middle record
    kept: list[tuple[Piece, KeptRange]] = field(default_factory=list)  # to be kept for later passes

    @property
    def n_records(self) -> int:
        return sum(b.num_items for b in self.batches) + sum(b.n for b in self.bad)


class TooLarge(Exception):
    """The unit decodes to more than its bound; `report` says how the supervisor is to cut it."""

    def __init__(self, report: StreamTooLarge | RowsTooLarge) -> None:
        super().__init__("partition too large")
        self.report = report


@dataclass(frozen=True)
class ReadOptions:
    max_record_bytes: int
    max_bytes: int  # bound for pieces of unknown size; 0: none
    expected: PlannedInputs = field(default_factory=dict)
    columns: tuple[str, ...] | None = None  # of files of rows: only these are read
    checked: bool = False  # an earlier pass over these files found every record of JSONL to be valid
    record_index: RecordIndex | None = None  # positions of records, by an earlier pass
    keep_records_in: str | None = None  # the folder in which records are kept for later passes,
    keep_without: str = ""  # without this field; "": none are
    kept_records: str | None = None  # the folder in which an earlier pass kept records
    # Reported of a large record before it is read, which may fail: how many records there are (-1: not known), where to
    # cut, its size.
    on_large: Callable[[int, int, int], None] | None = None


def read_pieces(pieces: list[Piece], keys: list[str], limits: ReadOptions, describe: bool = False) -> Contents:
    contents = Contents()
    if pieces[0].kind in (PieceKind.ROWS, PieceKind.ROW_BLOCK):
        _read_tables(pieces, limits, contents, describe)
    elif record_format(pieces[0].input_path) is not None:
        _read_records(pieces, limits, contents)
    elif not _from_index(pieces, limits, contents):
        _read_lines(pieces, keys, limits, contents)
    return contents


def open_input(piece: Piece, limits: ReadOptions, contents: Contents) -> BinaryIO | None:
    """Open the file of a piece, unless it cannot be read or is not the one that was planned.

    In that case its range is reported as bad.
    """
    if is_remote(piece.path):
        return _open_remote(piece, limits, contents)
    try:
        # Without waiting: what was a file when it was listed may be a pipe by now, which would never answer.
        file = open(os.open(piece.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0)  # noqa: SIM115
        info = os.fstat(file.fileno())
    except OSError as exc:
        reason = f"cannot be read: {exc.strerror or exc}"
    else:
        planned = limits.expected.get(piece.path)
        is_file = stat.S_ISREG(info.st_mode)
        if is_file and (planned is None or planned == (info.st_size, info.st_mtime_ns)):
            return file
        file.close()
        if not is_file or planned is None:
            reason = "cannot be read: it is no regular file"
        else:
            reason = f"changed during the run: it had {planned[0]} bytes when the run began and has {info.st_size} now"
    _quarantine_piece(piece, limits, contents, reason)
    return None


def _open_remote(piece: Piece, limits: ReadOptions, contents: Contents) -> BinaryIO | None:
    """Open a file in a store, as `open_input` does.

    A store that does not answer ends the run (StoreError): nothing is wrong with the data.
    """
    planned = limits.expected.get(piece.path)
    try:
        file = stores.open_input(piece.path)
        state = stores.state_of_open(file)
        if planned not in (None, state):  # as this process saw it for an earlier run, perhaps: look again
            stores.forget(piece.path)
            file = stores.open_input(piece.path)
            state = stores.state_of_open(file)
        if planned in (None, state):
            return file
        reason = (
            f"changed during the run: it had {planned[0] if planned else 0} bytes when the run began and has "
            f"{state[0]} now"
        )
    except StoreError:
        raise
    except OSError as exc:
        reason = f"cannot be read: {exc.strerror or exc}"
    _quarantine_piece(piece, limits, contents, reason)
    return None


def _quarantine_piece(piece: Piece, limits: ReadOptions, contents: Contents, reason: str) -> None:
    """Quarantine all of a piece that cannot be read."""
    end = piece.end if piece.end != TO_END else piece.start
    size = limits.expected.get(piece.path, (0, 0))[0]
    lost_bytes = min(end, size) - piece.start if piece.kind is PieceKind.BYTES else size
    contents.bad.append(
        QuarantinedInput(
            piece.file,
            piece.input_path,
            piece.start,
            end - piece.start,
            reason,
            n=0,
            whole_file=True,
            lost_bytes=max(0, lost_bytes),
        )
    )
    contents.covered.append(CoveredRange(piece.file, piece.start, end, piece.end == TO_END))


def _is_bad_input(exc: OSError, piece: Piece) -> bool:
    """Return True if an input file could not be read (a bad sector, a network that went away).

    False for a lack of memory, and for files of our own.
    """
    if isinstance(exc, StoreError):
        return False
    return (
        exc.errno is not None
        and not is_memory_failure(exc)
        and piece.kind not in (PieceKind.BLOCK, PieceKind.ROW_BLOCK)
    )


# -- JSONL ------------------------------------------------------------------------------------------------------------
def _from_index(pieces: list[Piece], limits: ReadOptions, contents: Contents) -> bool:
    """Take the records as an earlier pass located them, without reading them.

    Returns False, having done nothing, if that pass does not know all of them.
    """
    if limits.record_index is None or any(
        p.kind is not PieceKind.BYTES or p.path not in limits.expected for p in pieces
    ):
        return False
    spans: list[RecordSpans] = []
    parts: list[FileSpan] = []
    shift, total = [], 0
    for piece in pieces:
        records = _locate(piece, limits, limits.record_index)
        if records is None:
            return False
        part = FileSpan(piece.path, int(records.start[0]), int(records.end[-1]) + 1, limits.expected[piece.path])
        shift.append(total - part.start)
        total += part.end - part.start
        spans.append(records)
        parts.append(part)
    joined = _joined_spans(spans, shift)
    largest = int((joined.end - joined.start).max())
    if largest > limits.max_record_bytes:
        return False
    contents.largest_record, contents.decoded_bytes = largest, total
    block = line_format(pieces[0].input_path).from_index(FileSpans(parts), joined.start, joined.end, joined.identity)
    files = np.concatenate([np.full(len(f.start), p.file, np.int32) for p, f in zip(pieces, spans, strict=True)])
    block.places = (files, np.concatenate([f.start for f in spans]))
    contents.covered += [CoveredRange(p.file, p.start, p.end, False) for p in pieces]
    contents.batches.append(DocumentBatch.over(block, np.arange(block.n_rows)))
    if len(pieces) == 1 and block.n_rows > 1:
        contents.cut = int(block.places[1][block.n_rows // 2])
    return True


def _joined_spans(parts: list[RecordSpans], shift: list[int]) -> RecordSpans:
    """Join the records of several files, the places of each shifted."""
    start = np.concatenate([f.start + s for f, s in zip(parts, shift, strict=True)])
    end = np.concatenate([f.end + s for f, s in zip(parts, shift, strict=True)])
    hi, lo = (np.concatenate([f.identity[i] for f in parts]) for i in (0, 1))
    return RecordSpans(start, end, (hi, lo))


def _locate(piece: Piece, limits: ReadOptions, record_index: RecordIndex) -> RecordSpans | None:
    """Return where the records of a piece are; None if its file cannot be read or not all of them are known."""
    file = open_input(piece, limits, Contents())
    if file is None:
        return None
    file.close()
    return record_index.find(piece.file, piece.start, piece.end, limits.expected[piece.path][0])


@dataclass
class _LineRange:
    """Lines of a piece."""

    piece: Piece
    data: np.ndarray[Any, Any]
    place: int  # of the first byte

    @property
    def unit(self) -> str:
        return "bytes" if self.piece.kind is PieceKind.BYTES else "decoded bytes"


def _read_lines(pieces: list[Piece], keys: list[str], limits: ReadOptions, contents: Contents) -> None:
    parts = _read_parts(pieces, limits, contents)
    if not parts:
        return
    buf, at = _joined([p.data for p in parts])
    lines = line_format(parts[0].piece.input_path)
    block = (
        lines.parse_valid(buf, limits.max_record_bytes)
        if limits.checked
        else lines.parse(buf, keys, limits.max_record_bytes)
    )
    contents.decoded_bytes = len(buf)
    contents.n_blank = block.n_blank
    contents.bad += _bad_lines(block.bad, buf, parts, at)
    starts = block.start
    if block.n_rows:
        contents.largest_record = int((block.end - starts).max())
        part_of = np.searchsorted(at, starts, side="right") - 1
        shift = np.array([p.place for p in parts], np.int64) - at
        block.places = (np.array([p.piece.file for p in parts], np.int32)[part_of], starts + shift[part_of])
        block.is_open = all(p.piece.kind is PieceKind.BYTES for p in parts)
        contents.batches.append(DocumentBatch.over(block, np.arange(block.n_rows)))
    everything = np.sort(np.concatenate([starts, [s for s, _, _ in block.bad]])) if block.bad else starts
    if len(parts) == 1 and len(everything) > 1:
        contents.cut = parts[0].place + int(everything[len(everything) // 2])


def _read_parts(pieces: list[Piece], limits: ReadOptions, contents: Contents) -> list[_LineRange]:
    """Read the pieces that can be read; the others are reported as bad."""
    parts: list[_LineRange] = []
    for piece in pieces:
        file = open_input(piece, limits, contents)
        if file is None:
            continue
        with file:
            if piece.kind is PieceKind.STREAM:
                max_bytes = limits.max_bytes * 2 - sum(len(p.data) for p in parts) if limits.max_bytes else TO_END
                parts.append(_LineRange(piece, *_decode_stream(file, piece, max_bytes, contents)))
            elif (part := _read_part(file, piece, len(pieces), limits, contents)) is not None:
                parts.append(part)
    return parts


def _read_part(
    file: BinaryIO, piece: Piece, n_pieces: int, limits: ReadOptions, contents: Contents
) -> _LineRange | None:
    """Read a range of a plain file or a block; None if it cannot be read, and then it is reported as bad."""
    shift = piece.base if piece.kind is PieceKind.BLOCK else 0
    try:
        lines = retry_if_damaged(
            functools.partial(
                read_range,
                file,
                piece.start - shift,
                min(piece.end, TO_END) - shift,
                limits.max_record_bytes,
                shift == 0,
                _large_record_callback(limits, n_pieces, shift),
            )
        )
    except OSError as exc:
        if not _is_bad_input(exc, piece):
            raise
        _quarantine_piece(piece, limits, contents, f"cannot be read: {exc.strerror or exc}")
        return None
    if piece.kind is PieceKind.BLOCK:
        _check_block(piece, lines.data)
    contents.bad += [
        QuarantinedInput(
            piece.file,
            piece.input_path,
            o.offset + shift,
            o.length,
            "larger than max_record",
            unit="decoded bytes" if piece.kind is PieceKind.BLOCK else "bytes",
            copy_from=(piece.path, o.offset, o.length),
        )
        for o in lines.oversize
    ]
    contents.covered.append(CoveredRange(piece.file, piece.start, piece.end, False))
    return _LineRange(piece, lines.data, lines.offset + shift)


def _bad_lines(
    faults: Iterable[tuple[int, int, str]], buf: np.ndarray[Any, Any], parts: list[_LineRange], at: np.ndarray[Any, Any]
) -> list[QuarantinedInput]:
    """Return the lines that are no records (start and end in `buf`, reason); `at`: where each part begins in `buf`."""
    bad_lines = []
    for start, end, reason in faults:
        i = int(np.searchsorted(at, start, side="right")) - 1
        piece = parts[i].piece
        offset = parts[i].place + start - int(at[i])
        bad = QuarantinedInput(piece.file, piece.input_path, offset, end - start, reason, unit=parts[i].unit)
        if end - start > MAX_RAW_BYTES and piece.kind in (PieceKind.BYTES, PieceKind.BLOCK):
            bad.copy_from = (piece.path, offset - (piece.base if piece.kind is PieceKind.BLOCK else 0), end - start)
        else:
            bad.raw = buf[start:end].tobytes()
        bad_lines.append(bad)
    return bad_lines


def _check_block(piece: Piece, data: np.ndarray[Any, Any]) -> None:
    """Verify the checksum of a block.

    Half of a block, or one with a record that is not held, is read once more for its checksum.
    """
    if len(data) == stores.size_of(piece.path):
        check_bytes(piece.path, data, piece.check)
    else:
        check_file(piece.path, piece.check)


def _large_record_callback(limits: ReadOptions, n_pieces: int, shift: int) -> Callable[[int, int, bool], None] | None:
    """Return a callback that translates what `read_range` reports of a large record for the supervisor."""
    on_large = limits.on_large
    if on_large is None:
        return None

    def report(offset: int, length: int, is_only: bool) -> None:
        alone = is_only and n_pieces == 1
        on_large(1 if alone else -1, -1 if alone or n_pieces > 1 else offset + shift, length)

    return report


def _decode_stream(
    file: BinaryIO, piece: Piece, max_bytes: int, contents: Contents
) -> tuple[np.ndarray[Any, Any], int]:
    """Decode a whole compressed file into memory, if it is small enough; what follows a fault is reported as bad."""
    reader = StreamReader(file, codec_of(piece.path))
    parts, total, fault = [], 0, None
    while True:
        try:
            data = reader.read(_READ_BYTES)
        except StreamFault as exc:
            fault = exc
            break
        if not data:
            break
        parts.append(data)
        total += len(data)
        if total > max_bytes:
            raise TooLarge(StreamTooLarge(piece.file, total, reader.compressed_offset))
    joined = b"".join(parts)
    end = len(joined)
    if fault is not None:
        end = joined.rfind(b"\n") + 1
        contents.bad.append(broken_tail(piece, fault, end, joined[end:], stores.state_of_open(file)[0]))
    contents.covered.append(CoveredRange(piece.file, 0, len(joined), True))
    first = 3 if joined.startswith(b"\xef\xbb\xbf") else 0
    return np.frombuffer(joined, np.uint8)[first:end], first


# -- records ----------------------------------------------------------------------------------------------------------
def _read_records(pieces: list[Piece], limits: ReadOptions, contents: Contents) -> None:
    """Read whole files of records, blocks of frames that a feeder wrote, or what an earlier pass kept."""
    tables: list[_TableRows] = []
    kept: list[tuple[int, KeptRange]] = []
    positions: list[int] = []
    for piece in pieces:
        file = open_input(piece, limits, contents)
        if file is None:
            continue
        with file:
            if spans := _wanted_spans(piece, limits):
                kept += _kept_ranges(piece, spans, limits, contents)
                continue
            frames = _readable_frames(file, piece, limits, contents)
        if frames is None:
            continue
        positions += [position for position, _ in frames]
        records = record_format(piece.input_path)
        assert records is not None
        with reusing_large_blocks():
            decoded = records.decode(_consumed(frames), piece.input_path, limits.max_record_bytes)
        contents.bad += [bad_frame(piece, frame) for _, frame in decoded.bad]
        _count_skipped(decoded.skipped, contents)
        assert decoded.table is not None
        numbers, offsets = np.array(decoded.positions, np.int64), np.array(decoded.offsets, np.int64)
        tables.append(_TableRows(piece.file, numbers, decoded.table, offsets))
        if limits.keep_without:
            done = contents.covered[-1]
            lacking = _without_values(decoded.table, limits.keep_without)
            sizes = row_bytes(decoded.table)
            kept_range = KeptRange(done.start, done.end, lacking, numbers, offsets, sizes, decoded.bad, decoded.skipped)
            contents.kept.append((piece, kept_range))
    if tables:
        _add_batch(tables, None, contents)
    if kept:
        _add_kept(kept, contents)
        positions = np.concatenate([part.positions for _, part in kept]).tolist()
    if len(pieces) == 1 and len(positions) > 1:
        contents.cut = positions[len(positions) // 2]


def _without_values(table: pa.Table, name: str) -> pa.Table:
    """Return a table whose field of this name is null in all rows."""
    index = table.schema.get_field_index(name)
    return table.set_column(index, name, pa.nulls(len(table), pa.large_string()))


def kept_spans(piece: Piece, limits: ReadOptions) -> Sequence[KeptSpan]:
    """Return the file of a piece in parts, with what an earlier pass kept of them; none if it kept nothing."""
    if limits.kept_records is None or piece.kind is PieceKind.BLOCK:
        return ()
    path = piece.input_path
    return KeptRecords(limits.kept_records, path, limits.expected.get(path), limits.max_record_bytes).spans()


def _wanted_spans(piece: Piece, limits: ReadOptions) -> Sequence[KeptSpan]:
    """Return the spans to read a piece from; none if a part of it is not kept, so that the file is to be read."""
    spans = kept_spans(piece, limits)
    if all(span.path for span in spans if span.start < piece.end and span.end > piece.start):
        return spans
    assert piece.kind is PieceKind.STREAM, piece
    return ()


def _kept_ranges(
    piece: Piece, spans: Sequence[KeptSpan], limits: ReadOptions, contents: Contents
) -> list[tuple[int, KeptRange]]:
    """Load what was kept of a piece; raise TooLarge for a file that is to be fed in blocks."""
    size, end = sum(span.n_bytes for span in spans), spans[-1].end
    if piece.kind is PieceKind.STREAM and limits.max_bytes and size > limits.max_bytes * 2:
        raise TooLarge(StreamTooLarge(piece.file, size, spans[-1].stored_end))
    wanted = [
        span._replace(start=max(span.start, piece.start), end=min(span.end, piece.end))
        for span in spans
        if span.start < piece.end and span.end > piece.start
    ]
    ranges = [(piece.file, span.load()) for span in wanted]
    contents.decoded_bytes += sum(span.n_bytes for span in wanted)
    for _, part in ranges:
        contents.bad += [bad_frame(piece, frame) for _, frame in part.bad]
        _count_skipped(part.skipped, contents)
    contents.covered.append(CoveredRange(piece.file, piece.start, min(piece.end, end), piece.kind is PieceKind.STREAM))
    return ranges


def _add_kept(kept: list[tuple[int, KeptRange]], contents: Contents) -> None:
    block = KeptBlock(part for _, part in kept)
    if not block.n_rows:
        return
    assert block.record_bytes is not None
    contents.stored_bytes += int(block.record_bytes.sum())
    contents.largest_record = max(contents.largest_record, contents.decoded_bytes // block.n_rows)
    files = np.concatenate([np.full(len(part.positions), file, np.int32) for file, part in kept])
    block.places = (files, np.concatenate([part.positions for _, part in kept]))
    contents.batches.append(DocumentBatch.over(block, np.arange(block.n_rows)))


def _count_skipped(skipped: dict[str, list[int]], contents: Contents) -> None:
    for reason, positions in skipped.items():
        contents.skipped[reason] = contents.skipped.get(reason, 0) + len(positions)


def _readable_frames(
    file: BinaryIO, piece: Piece, limits: ReadOptions, contents: Contents
) -> list[tuple[int, RecordFrame]] | None:
    """Return the frames of a piece with their positions; quarantine the piece and return None if it is unreadable."""
    try:
        return _frames_of(file, piece, limits, contents)
    except OSError as exc:
        if not _is_bad_input(exc, piece):
            raise
        _quarantine_piece(piece, limits, contents, f"cannot be read: {exc.strerror or exc}")
        return None


def _frames_of(file: BinaryIO, piece: Piece, limits: ReadOptions, contents: Contents) -> list[tuple[int, RecordFrame]]:
    """Return the frames of a piece with their positions; raise TooLarge for a file that is to be fed in blocks."""
    if piece.kind is PieceKind.BLOCK:
        check_file(piece.path, piece.check)
        contents.covered.append(CoveredRange(piece.file, piece.start, piece.end, False))
        return list(read_frames(file, piece.base, piece.start, piece.end))
    records = record_format(piece.path)
    assert records is not None
    scan = records.scan(file, piece.path, limits.max_record_bytes)
    frames: list[tuple[int, RecordFrame]] = []
    total = 0
    for frame in scan:
        frames.append((total, frame))
        total += frame.n_bytes
        if limits.max_bytes and total > limits.max_bytes * 2:
            raise TooLarge(StreamTooLarge(piece.file, total, scan.stored_offset))
    contents.covered.append(CoveredRange(piece.file, 0, total, True))
    return frames


def _consumed(frames: list[tuple[int, RecordFrame]]) -> Iterator[tuple[int, RecordFrame]]:
    """Yield the frames and let go of each: their bodies and the decoded texts are not held at the same time."""
    frames.reverse()
    while frames:
        yield frames.pop()


def bad_frame(piece: Piece, frame: RecordFrame) -> QuarantinedInput:
    """Return the quarantine entry of a record that is refused, or of a part of a file that holds no record."""
    is_fault = frame.kind is FrameKind.FAULT
    return QuarantinedInput(
        piece.file,
        piece.input_path,
        frame.offset,
        frame.length,
        frame.reason,
        n=0 if is_fault else 1,
        lost_bytes=frame.length if is_fault else 0,
    )


def broken_tail(piece: Piece, fault: StreamFault, start: int, raw: bytes, file_bytes: int) -> QuarantinedInput:
    """Return what follows the last whole record before a fault; `file_bytes`: the size of the file as stored."""
    return QuarantinedInput(
        piece.file,
        piece.path,
        start,
        fault.decoded_offset - start,
        fault.describe(file_bytes),
        unit="decoded bytes",
        raw=raw[: 1 << 20],
        n=0,
        lost_bytes=fault.lost_bytes(file_bytes),
    )


def _joined(parts: list[np.ndarray[Any, Any]]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Join the parts in one buffer, each ending in a newline; also return where each part begins."""
    if len(parts) == 1:
        return parts[0], np.zeros(1, np.int64)
    newline = np.frombuffer(b"\n", np.uint8)
    padded, at, total = [], [], 0
    for part in parts:
        at.append(total)
        padded.append(part)
        total += len(part)
        if len(part) and part[-1] != 10:
            padded.append(newline)
            total += 1
    return np.concatenate(padded), np.array(at, np.int64)


# -- rows -------------------------------------------------------------------------------------------------------------
@dataclass
class _TableRows:
    """Rows of a file, with their numbers in it; `offsets`: where their records are stored, if they have any."""

    file: int
    numbers: np.ndarray[Any, Any]
    table: pa.Table
    offsets: np.ndarray[Any, Any] | None = None


def _read_tables(pieces: list[Piece], limits: ReadOptions, contents: Contents, describe: bool) -> None:
    tables: list[_TableRows] = []
    for piece in pieces:
        file = open_input(piece, limits, contents)
        if file is None:
            continue
        file.close()
        try:
            with reusing_large_blocks():  # or decoding spends its time on page faults
                tables += _rows_of_piece(piece, limits, contents, describe)
        except OSError as exc:
            if not _is_bad_input(exc, piece):
                raise
            _quarantine_piece(piece, limits, contents, f"cannot be read: {exc.strerror or exc}")
        except FormatError as exc:
            lost_bytes = stores.size_of(piece.path)
            bad = QuarantinedInput(
                piece.file, piece.path, 0, 0, str(exc), unit="rows", n=0, whole_file=True, lost_bytes=lost_bytes
            )
            contents.bad.append(bad)
            contents.covered.append(CoveredRange(piece.file, 0, 0, True))
    # Of rows that only lead to their data (images): the bytes of that.
    measure = getattr(table_format(pieces[0].path), "stored_bytes", None) if pieces[0].kind is PieceKind.ROWS else None
    # Neighbouring tables of one schema together (as a user who groups files expects); others apart.
    for _, group in itertools.groupby(tables, key=lambda rows: rows.table.schema):
        _add_batch(list(group), measure, contents)
    if len(pieces) == 1 and contents.n_records > 1:
        done = contents.covered[-1]
        contents.cut = done.start + (done.end - done.start) // 2


def _add_batch(
    group: list[_TableRows], measure: Callable[[pa.Table], np.ndarray[Any, Any]] | None, contents: Contents
) -> None:
    """Join tables of one schema to a batch; `measure` returns the stored bytes of each row, if not its own."""
    table = join_tables([t.table for t in group])
    contents.decoded_bytes += table.nbytes
    if not len(table):
        return
    largest = int(row_bytes(table)[0]) if len(table) == 1 else table.nbytes // len(table)
    contents.largest_record = max(contents.largest_record, largest)
    block = TableBlock(table)
    if measure is not None:
        block.record_bytes = measure(table)
        contents.stored_bytes += int(block.record_bytes.sum())
    files = np.concatenate([np.full(len(t.table), t.file, np.int32) for t in group])
    block.places = (files, np.concatenate([t.numbers for t in group]))
    if all(t.offsets is not None for t in group):
        block.stored_offsets = np.concatenate([t.offsets for t in group if t.offsets is not None])
    contents.batches.append(DocumentBatch.over(block, np.arange(block.n_rows)))


def _rows_of_piece(piece: Piece, limits: ReadOptions, contents: Contents, describe: bool) -> list[_TableRows]:
    if piece.kind is PieceKind.ROW_BLOCK:
        return [_rows_of_block(piece, limits, contents)]
    format_ = table_format(piece.path)
    info = _described(format_, piece.path, limits.columns)
    is_whole = piece.end == TO_END
    end = info.n_rows if is_whole else piece.end
    most = max(limits.max_bytes, MIN_ROWS_BYTES) * 2 if limits.max_bytes and end - piece.start > 1 else 1 << 62
    if is_whole and (describe or info.estimated_bytes > most):
        raise TooLarge(_groups(piece, info, end))
    numbers = NumberBuffer(min(most, sum(n_bytes for _, _, n_bytes in info.cut_into_groups(piece.start, end))))
    step_bytes = STEP_BYTES if have_number_lists(kind for _, kind in info.columns) else BATCH_BYTES
    tables, at, total = [], piece.start, 0
    while at < end:
        try:
            for first, table in format_.iter_rows(piece.path, at, end, limits.columns, step_bytes):
                total += table.nbytes
                # What a row group declares is encoded: a few kB may decode to gigabytes.
                if total > most:
                    raise TooLarge(_measured(piece, info, end, first + len(table), total))
                rows = _good_rows(table, piece, first, limits, contents)
                tables.append(replace(rows, table=numbers.hold(rows.table)))
            break
        except RowsFault as fault:
            contents.bad.append(damaged_rows(piece, fault, end))
            at = min(fault.next_row, end)
    contents.covered.append(CoveredRange(piece.file, piece.start, end, is_whole))
    return tables


def _rows_of_block(piece: Piece, limits: ReadOptions, contents: Contents) -> _TableRows:
    """Read the rows of a piece from a block that a feeder wrote."""
    check_file(piece.path, piece.check)
    with stores.open_arrow(piece.path) as source:
        table = pa.ipc.open_file(source).read_all()
    contents.covered.append(CoveredRange(piece.file, piece.start, piece.end, False))
    if limits.columns is not None:
        table = table.select([c for c in limits.columns if c in table.column_names])
    rows = table.slice(piece.start - piece.base, piece.end - piece.start)
    return _good_rows(rows, piece, piece.start, limits, contents)


def _described(format_: Any, path: str, columns: Sequence[str] | None) -> TableInfo:
    """Describe a file of rows: if only some columns are read, with the sizes of these where the format knows them."""
    info: TableInfo = format_.describe(path)
    measure = getattr(format_, "column_bytes", None)
    if columns is None or measure is None or len(columns) >= len(info.columns):
        return info
    sizes = zip(info.row_groups, measure(path, columns), strict=True)
    return info._replace(row_groups=[group._replace(estimated_bytes=n_bytes) for group, n_bytes in sizes])


def _groups(piece: Piece, info: TableInfo, end: int, ratio: float = 1.0) -> RowsTooLarge:
    """Return the row groups of a piece, each with the assumed bytes of its rows: `ratio` times what it declares."""
    groups = info.cut_into_groups(piece.start, end, ratio)
    return RowsTooLarge(piece.file, groups, end, whole=piece.end == TO_END)


def _measured(piece: Piece, info: TableInfo, end: int, at: int, n_bytes: int) -> RowsTooLarge:
    """Return `_groups` corrected after the rows up to `at` turned out to have `n_bytes`.

    These rows cannot be handed out as one again.
    """
    declared = sum(size for _, _, size in _groups(piece, info, at).groups)
    return replace(_groups(piece, info, end, max(1.0, n_bytes / max(1, declared))), measured=True)


def _good_rows(table: pa.Table, piece: Piece, first_row: int, limits: ReadOptions, contents: Contents) -> _TableRows:
    """Return the rows with valid values that are not larger than max_record; quarantine the others."""
    if table.column_names:
        table = table.replace_schema_metadata(None)
    else:  # of a file that has none of the fields: Arrow forgets rows without columns
        table = pa.table({NO_FIELDS: pa.nulls(len(table))})
    numbers = np.arange(first_row, first_row + len(table), dtype=np.int64)
    if table.nbytes > limits.max_record_bytes:
        large = row_bytes(table) > limits.max_record_bytes
        for row in numbers[large].tolist():
            contents.bad.append(
                QuarantinedInput(piece.file, piece.input_path, row, 1, "larger than max_record", unit="rows")
            )
        if large.any():
            table, numbers = table.filter(pa.array(~large)), numbers[~large]
    rows, reasons = bad_text_rows(table)
    if not len(rows):
        return _TableRows(piece.file, numbers, table)
    for row, reason in zip(rows.tolist(), reasons, strict=True):
        raw = json.dumps(_readable(table.slice(row, 1)), ensure_ascii=False, default=str).encode(
            "utf-8", "surrogatepass"
        )
        contents.bad.append(
            QuarantinedInput(piece.file, piece.input_path, int(numbers[row]), 1, reason, unit="rows", raw=raw)
        )
    keep = np.ones(len(table), bool)
    keep[rows] = False
    return _TableRows(piece.file, numbers[keep], table.filter(pa.array(keep)))


def _readable(row: pa.Table) -> dict[str, Any]:
    r"""Format a row for people to look at: bytes that are not text are shown as \x.."""
    shown: dict[str, Any] = {}
    for name in row.column_names:
        cell = row.column(name).combine_chunks()
        try:
            shown[name] = python_values(cell)[0]
        except UnicodeDecodeError:
            is_plain = pa.types.is_large_string(cell.type)
            shown[name] = (
                cell.cast(pa.large_binary()).to_pylist()[0].decode("utf-8", "backslashreplace")
                if is_plain
                else f"{cell.type}"
            )
    return shown

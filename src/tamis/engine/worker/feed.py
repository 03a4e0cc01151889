"""The feeder: decodes a file that cannot be entered in the middle and hands out blocks that other workers process.

Blocks are scratch files of whole records (bytes of a stream) or rows (one Parquet row group), so a block is a partition like
any other. The feeder holds one block at most and goes on only when the supervisor says so (queues are bounded in bytes).
A record larger than max_record goes to quarantine chunk by chunk and is never held.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from tamis import files as own_files
from tamis.engine.ledger import Ledger
from tamis.engine.supervisor.units import TO_END, Kind, Piece, Unit
from tamis.engine.worker.blocks import BlockWriter
from tamis.engine.worker.quarantine import Bad, account_bad, write_quarantine
from tamis.engine.worker.read import Contents, Limits, broken_tail, open_input
from tamis.formats import parquet
from tamis.formats.compression import StreamFault, StreamReader, codec_of

_STEP = 1 << 20
Say = Callable[[dict[str, Any]], None]
Wait = Callable[[], int]  # blocks until the next block is wanted; returns its size (0: as before)


def feed(
    unit: Unit,
    fence: int,
    scratch: str,
    max_record_bytes: int,
    base: str,
    expected: dict[str, tuple[int, int]],
    say: Say,
    wait: Wait,
    columns: tuple[str, ...] | None = None,
) -> dict[str, Any]:
    contents = Contents()
    piece = unit.pieces[0]
    file = open_input(piece, Limits(max_record_bytes, 0, expected), contents)
    bad = contents.bad
    if file is not None:
        place = os.path.join(scratch, f"f{unit.id}.{fence}")
        if piece.kind is Kind.ROWS:
            file.close()
            _feed_rows(piece, unit, place, bad, say, wait, columns)
        else:
            with file:
                stream = _Stream(StreamReader(file, codec_of(piece.path)), os.fstat(file.fileno()).st_size)
                _feed_stream(stream, unit, max_record_bytes, place, base, contents, say, wait)
    ledger = Ledger()
    account_bad(bad, ledger)
    files = write_quarantine(bad, base)
    for made in files:  # a name of its own: the first block of the file may have something to quarantine too
        made["extension"], made["at"] = f"feed.{made['extension']}", min(b.offset for b in bad)
    return {
        "type": "done", "fed": True, "files": files, "ledger": ledger.to_dict(), "n_records": len(bad),
        "decoded_bytes": 0, "largest_record": 0, "covered": contents.covered,
    }  # fmt: skip


def _emit(say: Say, wait: Wait, unit: Unit, piece: Piece, n_bytes: int, compressed: int) -> None:
    say({"type": "block", "piece": piece.to_list(), "bytes": n_bytes, "compressed": compressed})
    unit.block_bytes = wait() or unit.block_bytes


class _Stream:
    """A decoded stream that can take back what was read too far."""

    def __init__(self, reader: StreamReader, file_bytes: int) -> None:
        self._reader, self._back = reader, b""
        self.file_bytes = file_bytes  # as it is stored

    @property
    def offset(self) -> int:
        return self._reader.decoded_offset - len(self._back)

    @property
    def compressed_offset(self) -> int:
        return self._reader.compressed_offset

    def read(self, n_bytes: int) -> bytes:
        if not self._back:
            return self._reader.read(n_bytes)
        data, self._back = self._back[:n_bytes], self._back[n_bytes:]
        return data

    def give_back(self, data: bytes) -> None:
        self._back = data + self._back

    def to_record_start(self, start: int) -> None:
        """Go to the first record that starts at or behind `start`; whoever is behind it stands at a record already."""
        if start <= self.offset:
            return
        left = start - 1 - self.offset
        while left > 0 and (data := self.read(min(left, _STEP))):
            left -= len(data)
        while data := self.read(_STEP):
            at = data.find(b"\n")
            if at >= 0:
                self.give_back(data[at + 1 :])
                return


def _feed_stream(
    stream: _Stream, unit: Unit, max_record_bytes: int, place: str, base: str, contents: Contents, say: Say, wait: Wait
) -> None:
    """Blocks of the ranges that are still wanted."""
    piece, n_blocks = unit.pieces[0], 0
    try:
        for start, data in _blocks(stream, unit, max_record_bytes, base, contents):
            path = f"{place}.{n_blocks}.block"
            n_blocks += 1
            with BlockWriter(path) as out:
                out.write(data)
            _emit(
                say,
                wait,
                unit,
                Piece(piece.file, Kind.BLOCK, path, start, start + len(data), start, piece.path, out.check),
                len(data),
                stream.compressed_offset,
            )
        end = stream.offset
    except StreamFault as fault:
        end = fault.decoded_offset
    contents.covered.append((piece.file, end, end, True))


def _blocks(
    stream: _Stream, unit: Unit, max_record_bytes: int, base: str, contents: Contents
) -> Iterator[tuple[int, bytes]]:
    """(place, whole records) of about block_bytes. What is skipped on the way is named in `contents`."""
    piece = unit.pieces[0]
    for wanted in unit.pieces:
        held, start = bytearray(), max(wanted.start, stream.offset)
        try:
            stream.to_record_start(wanted.start)
            start = stream.offset
            contents.covered.append((piece.file, wanted.start, start, False))
            while stream.offset < wanted.end or (held and held[-1] != 10):
                room = wanted.end - stream.offset
                data = stream.read(min(_STEP, room, max(1 << 16, unit.block_bytes - len(held))) if room > 0 else 4096)
                if not data:
                    break
                if room <= 0 and (at := data.find(b"\n")) >= 0:  # the last record of the range ends here
                    stream.give_back(data[at + 1 :])
                    data = data[: at + 1]
                held += data
                if len(held) >= unit.block_bytes:
                    cut = held.rfind(b"\n") + 1
                    if cut:
                        yield start, bytes(memoryview(held)[:cut])
                        del held[:cut]
                        start += cut
                    elif len(held) > max_record_bytes:
                        end = _skip_record(stream, piece, held, start, base, contents.bad)
                        contents.covered.append((piece.file, start, end, False))
                        start = end
        except StreamFault as fault:
            cut = held.rfind(b"\n") + 1
            if cut:
                yield start, bytes(held[:cut])
            contents.bad.append(broken_tail(piece, fault, start + cut, bytes(held[cut:]), stream.file_bytes))
            contents.covered.append((piece.file, start + cut, fault.decoded_offset, False))
            raise
        if held:
            yield start, bytes(held)


def _skip_record(stream: _Stream, piece: Piece, held: bytearray, start: int, base: str, bad: list[Bad]) -> int:
    """Move a record that is too large to a file of its own, up to its newline; returns where the next one starts."""
    path, length, data = f"{base}.{len(bad)}.large", 0, bytes(held)
    held.clear()
    with own_files.create(path) as out:
        while data:
            at = data.find(b"\n")
            out.write(data if at < 0 else data[:at])
            length += len(data) if at < 0 else at
            if at >= 0:
                stream.give_back(data[at + 1 :])
                break
            data = stream.read(_STEP)
    bad.append(
        Bad(
            piece.file,
            piece.path,
            start,
            length,
            "larger than max_record",
            unit="decoded bytes",
            copy_from=(path, 0, length),
        )
    )
    return stream.offset


def _feed_rows(
    piece: Piece, unit: Unit, place: str, bad: list[Bad], say: Say, wait: Wait, columns: tuple[str, ...] | None
) -> None:
    at, n_blocks = piece.start, 0
    end = piece.end if piece.end != TO_END else parquet.describe(piece.path).n_rows
    while at < end:
        try:
            for first, tables, n_bytes in _row_blocks(piece.path, at, end, unit, columns):
                path = f"{place}.{n_blocks}.arrow"
                n_blocks += 1
                n_rows = sum(len(t) for t in tables)
                with BlockWriter(path) as sink, pa.ipc.new_file(sink, tables[0].schema) as writer:
                    for table in tables:
                        writer.write_table(table)
                _emit(
                    say,
                    wait,
                    unit,
                    Piece(piece.file, Kind.ROW_BLOCK, path, first, first + n_rows, first, piece.path, sink.check),
                    n_bytes,
                    0,
                )
                at = first + n_rows
            return
        except parquet.ParquetFault as fault:
            stop = min(fault.next_row, end)
            bad.append(
                Bad(
                    piece.file,
                    piece.path,
                    fault.row,
                    stop - fault.row,
                    f"damaged Parquet page: {fault.reason}",
                    unit="rows",
                    n=stop - fault.row,
                )
            )
            at = stop


def _row_blocks(
    path: str, start: int, end: int, unit: Unit, columns: tuple[str, ...] | None
) -> Iterator[tuple[int, list[pa.Table], int]]:
    held: list[pa.Table] = []
    first, size = start, 0
    fault: parquet.ParquetFault | None = None
    try:
        for at, table in parquet.iter_rows(
            path, start, end, columns, batch_bytes=max(1 << 16, min(unit.block_bytes, 8 << 20))
        ):
            if held and size + table.nbytes > unit.block_bytes:
                yield first, held, size
                held, first, size = [], at, 0
            held.append(table)
            size += table.nbytes
    except parquet.ParquetFault as exc:
        fault = exc
    if held:
        yield first, held, size
    if fault is not None:
        raise fault

"""Input that is no document, or that no stage survives, with its location, the reason and its raw bytes."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from tamis import files as own_files
from tamis import secrets
from tamis._dataclasses import dataclass
from tamis.engine.ledger import Ledger
from tamis.engine.messages import StagedFile
from tamis.engine.schema import FileKind
from tamis.engine.units import Piece
from tamis.formats.base import RowsFault
from tamis.stages.notes import InputNotes
from tamis.stores.opening import open_input

_COPY_BYTES = 1 << 20
MAX_RAW_BYTES = 1 << 20  # bytes of a record stored in its entry; those of a larger one get a separate file


@dataclass
class QuarantinedInput:
    """Its location and the reason, and its bytes (or where to copy them from)."""

    file: int
    path: str
    offset: int
    length: int
    reason: str
    stage: str = ""
    unit: str = "bytes"  # what offset and length count: bytes, decoded bytes or rows
    raw: bytes | None = None
    copy_from: tuple[str, int, int] | None = None  # (path, offset, length) of bytes too many to hold
    n: int = 1  # records it covers; 0 if unknown (a damaged tail, an unreadable file)
    whole_file: bool = False
    lost_bytes: int = 0  # of the file as it is stored, that could not be read
    position: int | None = None  # of the document in its file, where that is not its offset (WARC)

    def describe(self) -> str:
        """Return the location and the reason in one line."""
        return secrets.hide(f"{self.path} (at {self.offset}): {self.reason}")[:2000]

    def identity(self) -> int:
        key = f"{self.path}\0{self.offset}\0{self.length}".encode("utf-8", "surrogateescape")
        return int.from_bytes(hashlib.blake2b(key, digest_size=16).digest(), "big")


def account_bad(bad: Iterable[QuarantinedInput], ledger: Ledger) -> None:
    """Count bad records as input records that were quarantined; ranges are counted separately."""
    for entry in bad:
        ledger.lost_bytes += entry.lost_bytes
        if entry.n:
            ledger.records.add(entry.n, entry.identity())
            ledger.quarantined.add(entry.n, entry.identity())
        else:
            ledger.n_bad_ranges += 1
            ledger.n_lost_files += entry.whole_file


def account_input(stage: str, noted: InputNotes, ledger: Ledger) -> list[QuarantinedInput]:
    """Enter what a stage read from files by itself into the books, and return what it could not read."""
    bad = [
        QuarantinedInput(0, f.path, f.offset, f.length, f.reason, stage, f.unit, n=f.n, lost_bytes=f.lost_bytes)
        for f in noted.faults
    ]
    account_bad(bad, ledger)
    ledger.stage_records += noted.n_records
    book = next((book for book in ledger.stages if book.name == stage), None)
    if book is not None:
        book.read_records(noted.n_records, noted.skipped)
    ledger.stage_bytes += noted.n_bytes
    return bad


def damaged_rows(piece: Piece, fault: RowsFault, end: int) -> QuarantinedInput:
    """Return the rows of a piece, which ends at `end`, that are lost to a damaged part of its file."""
    n = min(fault.next_row, end) - fault.row
    return QuarantinedInput(piece.file, piece.path, fault.row, n, f"damaged: {fault.reason}", unit="rows", n=n)


def write_quarantine(bad: Sequence[QuarantinedInput], base: str) -> list[StagedFile]:
    """Write staged files: the entries as JSONL, and one file for each record that was too large for memory."""
    if not bad:
        return []
    path = base + ".quarantine"
    files = [StagedFile(path, FileKind.QUARANTINE, len(bad))]
    with own_files.create(path) as file:
        for i, entry in enumerate(bad):
            record: dict[str, Any] = {
                "file": entry.path,
                "offset": entry.offset,
                "length": entry.length,
                "unit": entry.unit,
                "reason": entry.reason,
                "stage": entry.stage,
                "n": entry.n,
            }
            if entry.lost_bytes:
                record["lost_bytes"] = entry.lost_bytes
            if entry.position is not None:
                record["position"] = entry.position
            if entry.copy_from is not None or (entry.raw is not None and len(entry.raw) > MAX_RAW_BYTES):
                raw_path = f"{base}.{i}.raw"
                _write_raw(entry, raw_path)
                files.append(StagedFile(raw_path, FileKind.QUARANTINE, 0, extension=f"{i}.raw"))
                record["raw_file"] = f"{i}.raw"
            elif entry.raw is not None:
                try:
                    record["raw"] = entry.raw.decode("utf-8")
                except UnicodeDecodeError:
                    record["raw_base64"] = base64.b64encode(entry.raw).decode()
            file.write(_line(record))
    return files


def _line(record: dict[str, Any]) -> bytes:
    """Encode an entry as readable JSON.

    Escaped if the name of its file is not UTF-8, so that it is valid JSON for every reader.
    """
    try:
        return json.dumps(record, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(record).encode() + b"\n"


def _write_raw(entry: QuarantinedInput, target: str) -> None:
    if entry.copy_from is None:
        with own_files.create(target) as file:
            file.write(entry.raw or b"")
        return
    path, offset, length = entry.copy_from
    with open_input(path) as raw, own_files.create(target) as file:
        raw.seek(offset)
        while length > 0 and (data := raw.read(min(length, _COPY_BYTES))):
            file.write(data)
            length -= len(data)

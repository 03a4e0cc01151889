"""WARC files as documents: which records become one, and the columns of these.

Covers: responses, resources and conversions (WET) whose contents are text; what is wrong with the others. Does not
cover: finding records (records.py), the text of web pages (HtmlExtract of tamis.stages.text.html).

A record becomes a document, is skipped for one of a fixed list of reasons, or is refused: a body larger than
max_record. Memory: of one record, its block, its decoded body, and its text.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from tamis.errors import FormatError
from tamis.formats.base import DecodedRecords
from tamis.formats.compression.codecs import Codec, Zstandard, codec_of
from tamis.formats.compression.source import Undecodable
from tamis.formats.compression.zstd import dictionary_of
from tamis.formats.record_frames import FrameKind, RecordFrame
from tamis.formats.warc.charset import decode_page
from tamis.formats.warc.http import BodyTooLarge, UnknownEncoding, http_body
from tamis.formats.warc.records import WarcFault, WarcRecord, WarcScanner

CONTENT = "content"
SCHEMA = pa.schema(
    [
        ("url", pa.large_string()),
        ("warc_id", pa.large_string()),
        ("source_id", pa.large_string()),  # the name of the file, as in NeMo Curator
        ("warc_offset", pa.int64()),  # of the record in it, or of its compressed member
        ("date", pa.large_string()),
        ("status", pa.int64()),
        ("content_type", pa.large_string()),
        ("charset", pa.large_string()),
        ("flaw", pa.large_string()),  # what is wrong with a record that could be read
        (CONTENT, pa.large_string()),
    ]
)
_DOCUMENTS = frozenset({"response", "resource", "conversion"})
_OTHERS = ("warcinfo", "request", "metadata", "revisit", "continuation")
_MAX_DICTIONARY = 16 << 20
_HEAD_BYTES = 1 << 17
_TEXT_TYPES = frozenset({"xhtml+xml", "xml", "json", "rss+xml", "atom+xml", "ld+json", "rdf+xml", "x-ndjson"})
_KINDS = frozenset({"image", "video", "audio", "font", "application", "multipart", "model", "message"})
_MAX_URL = 16_384  # longer ones are cut: they are made to fill tables
EMPTY, NOT_HTTP, NOT_READABLE = "empty records", "responses that are not HTTP", "records without readable text"
ENCODED = "responses in an encoding that is not read"


class WarcScan:
    """The frames of a WARC file, in order."""

    def __init__(self, raw: BinaryIO, path: str, max_record_bytes: int, offset: int = 0) -> None:
        self._fault = ""
        try:
            codec = _codec(raw, codec_of(path))
        except Undecodable as exc:
            codec, self._fault = None, str(exc)
        self._scanner = WarcScanner(raw, codec, max_record_bytes, _DOCUMENTS, offset)
        self.file_bytes = self._scanner.file_bytes
        self._max_record_bytes = max_record_bytes
        self.stored_offset = 0
        """Bytes of the file before the last frame."""
        self.can_begin_here = False
        """True if the last frame is a record at which reading can begin: nothing before it matters for what follows."""

    def __iter__(self) -> Iterator[RecordFrame]:
        if self._fault:
            yield RecordFrame(FrameKind.FAULT, 0, self.file_bytes, self._fault.encode())
            return
        for record in self._scanner:
            self.stored_offset, self.can_begin_here = record.offset, self._scanner.can_begin_here
            if isinstance(record, WarcFault):
                lost = record.lost_bytes(self.file_bytes)
                yield RecordFrame(FrameKind.FAULT, record.offset, lost, record.reason.encode("utf-8", "replace"))
            else:
                yield self._frame(record)

    def _frame(self, record: WarcRecord) -> RecordFrame:
        kind = record.kind
        if kind not in _DOCUMENTS:
            reason = f"{kind} records" if kind in _OTHERS else "records of an unknown type"
            return RecordFrame(FrameKind.SKIPPED, record.offset, record.n_bytes, reason.encode())
        if record.block is None:
            reason = f"larger than max_record ({self._max_record_bytes:,} bytes): {record.url[:200]}"
            return RecordFrame(FrameKind.REFUSED, record.offset, record.n_bytes, reason.encode("utf-8", "replace"))
        headers = record.headers
        about = About(
            kind,
            record.url[:_MAX_URL],
            record.record_id[:200],
            headers.get("warc-date", "")[:40],
            headers.get("content-type", "")[:400],
            headers.get("warc-truncated", "")[:40],
            "after damage" if record.resynchronised else "",
        )
        return RecordFrame(FrameKind.DOCUMENT, record.offset, record.n_bytes, about.pack(), record.block)


class About(NamedTuple):
    """The headers of a record that become columns. None has a line feed in it, as each was in one line."""

    kind: str
    url: str
    record_id: str
    date: str
    content_type: str
    truncated: str
    damage: str

    def pack(self) -> bytes:
        return "\n".join(self).encode("utf-8", "replace")

    @classmethod
    def unpack(cls, data: bytes) -> About:
        return cls(*data.decode().split("\n"))


def _codec(raw: BinaryIO, name: str | None) -> str | Codec | None:
    """Return the codec of a file, with the dictionary that a .warc.zst file may begin with."""
    if name != "zst":
        return name
    raw.seek(0)
    head = raw.read(_HEAD_BYTES)
    while (dictionary := dictionary_of(head, _MAX_DICTIONARY)) is None:
        more = raw.read(_HEAD_BYTES)
        if not more:
            raise Undecodable("the file ends inside its dictionary")
        head += more
    return Zstandard(dictionary) if dictionary else name


def decode(frames: Iterable[tuple[int, RecordFrame]], path: str, max_record_bytes: int) -> DecodedRecords:
    """Return the documents of these frames, with the position of each, and what became of the others."""
    decoded = DecodedRecords()
    columns: list[list[Any]] = [[] for _ in SCHEMA]
    source = os.path.basename(path).encode("utf-8", "replace").decode()
    for position, frame in frames:
        if frame.kind is FrameKind.DOCUMENT:
            outcome = _document(frame, source, max_record_bytes)
        elif frame.kind is FrameKind.SKIPPED:
            outcome = frame.reason
        else:
            decoded.bad.append((position, frame))
            continue
        if isinstance(outcome, str):
            decoded.skipped.setdefault(outcome, []).append(position)
        elif isinstance(outcome, RecordFrame):
            decoded.bad.append((position, outcome))
        else:
            decoded.positions.append(position)
            decoded.offsets.append(frame.offset)
            for column, value in zip(columns, outcome, strict=True):
                column.append(value)
    arrays = [_array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    decoded.table = pa.Table.from_arrays(arrays, schema=SCHEMA)
    return decoded


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return a column; texts are valid UTF-8 already and are not decoded for it."""
    if not values or not isinstance(values[0], bytes):
        return pa.array(values, kind)
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    return pa.LargeStringArray.from_buffers(len(values), pa.py_buffer(offsets), pa.py_buffer(b"".join(values)))


def _document(frame: RecordFrame, source: str, max_record_bytes: int) -> tuple[Any, ...] | str | RecordFrame:
    """Return the columns of a record, the reason to skip it, or the frame that refuses it."""
    about = About.unpack(frame.about)
    status, declared, body = None, about.content_type, frame.body
    if about.kind == "response":
        try:
            status, headers, body = http_body(frame.body, max_record_bytes)
        except BodyTooLarge as exc:
            reason = f"{exc}: {about.url[:200]}"
            return RecordFrame(FrameKind.REFUSED, frame.offset, frame.length, reason.encode("utf-8", "replace"))
        except UnknownEncoding:
            return ENCODED
        except FormatError:
            return NOT_HTTP
        declared = headers.get("content-type", "")[:400]
    if not body.strip():
        return EMPTY
    media, charset = _media_type(declared)
    kind, _, subtype = media.partition("/")
    if media and kind != "text" and subtype not in _TEXT_TYPES:
        return f"records that are not text ({kind if kind in _KINDS else 'other'})"
    text = decode_page(body, charset, is_markup=media != "text/plain")
    if text is None or (not media and b"\0" in text.utf8):
        return NOT_READABLE
    if len(text.utf8) > max_record_bytes:
        reason = f"{BodyTooLarge(max_record_bytes)}: {about.url[:200]}"
        return RecordFrame(FrameKind.REFUSED, frame.offset, frame.length, reason.encode("utf-8", "replace"))
    flaws = [f"truncated: {about.truncated}"] if about.truncated else []
    flaws += [about.damage] if about.damage else []
    names = (about.url, about.record_id, source, frame.offset, about.date, status)
    return (*names, media or None, text.charset, ", ".join(flaws) or None, text.utf8)


def _media_type(header: str) -> tuple[str, str]:
    """Return the type of a Content-Type header in lower case, and its charset.

    >>> _media_type('Text/HTML; Charset="UTF-8"'), _media_type("html"), _media_type("")
    (('text/html', 'utf-8'), ('', ''), ('', ''))
    """
    media, _, parameters = header.partition(";")
    media = media.strip().lower()
    charset = ""
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            charset = value.strip().strip("\"'").lower()
            break
    return media if media.count("/") == 1 and len(media) <= 100 else "", charset


def read_schema(path: str) -> pa.Schema:
    """Return the columns, which are the same for every file."""
    return SCHEMA


def first_documents(raw: BinaryIO, path: str, n_bytes: int, max_record_bytes: int) -> tuple[DecodedRecords, WarcScan]:
    """Return the documents in about the first `n_bytes` of decoded records, and the scan, which knows its position."""
    scan = WarcScan(raw, path, max_record_bytes)
    frames: list[tuple[int, RecordFrame]] = []
    position = 0
    for frame in scan:
        frames.append((position, frame))
        position += frame.n_bytes
        if position >= n_bytes:
            break
    return decode(frames, path, max_record_bytes), scan


def scan(raw: BinaryIO, path: str, max_record_bytes: int, offset: int = 0) -> WarcScan:
    """Return the frames of a file from byte `offset` on; it must be able to seek."""
    return WarcScan(raw, path, max_record_bytes, offset)

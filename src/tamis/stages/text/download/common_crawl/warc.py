"""Records of WARC files, one at a time, in bounded memory.

A small reader of our own, because the libraries for this hold whole records whatever their size, or change their interface
from release to release. WARC 1.0 and 1.1, plain or compressed per record (.gz, .zst); ARC is not read.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from tamis.errors import FormatError
from tamis.stages.text.download.streams import Decoded

_HEADER_BYTES = 64 << 10
_STATUS = re.compile(r"[0-9]{3}")


@dataclass
class WarcRecord:
    """`headers` with names in lower case. `block` is None for a record above the size that was allowed."""

    headers: dict[str, str]
    n_bytes: int
    block: bytes | None

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


def read_records(stream: Decoded, max_bytes: int, kinds: frozenset[str] | None = None) -> Iterator[WarcRecord]:
    """The records of one of these types (None: of all); a block above `max_bytes`, or of another type, is passed over.

    FormatError at bytes that are no record: where the next one begins cannot be told then.
    """
    while True:
        line = stream.readline(_HEADER_BYTES)
        while line in (b"\r\n", b"\n"):  # two line ends close a record
            line = stream.readline(_HEADER_BYTES)
        if not line:
            return
        if not line.startswith(b"WARC/"):
            raise FormatError(
                f"at decoded byte {stream.offset - len(line):,} a record should begin; there is {line[:40]!r}"
            )
        headers = _headers(stream)
        length = headers.get("content-length", "")
        if not (length.isascii() and length.isdecimal() and len(length) <= 18):
            raise FormatError(f"at decoded byte {stream.offset:,} a record tells no length: {length[:40]!r}")
        record = WarcRecord(headers, int(length), None)
        wanted = kinds is None or record.kind in kinds
        if wanted and record.n_bytes <= max_bytes:
            record.block = stream.read(record.n_bytes)
            n_bytes = len(record.block)
        else:
            n_bytes = stream.skip(record.n_bytes)
        if n_bytes < record.n_bytes:
            raise FormatError(f"the file ends inside a record: {n_bytes:,} of its {record.n_bytes:,} bytes are there")
        if wanted:
            yield record


def http_body(block: bytes, max_bytes: int) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body) of a response record; transfer and content encodings are taken off, up to `max_bytes`.

    FormatError for what is no HTTP response, or a body that is larger.
    """
    head, gap, body = block.partition(b"\r\n\r\n")
    if not gap:
        head, gap, body = block.partition(b"\n\n")
    first, *lines = head.decode("utf-8", "replace").splitlines() or [""]
    words = first.split(None, 2)
    if len(words) < 2 or not words[0].upper().startswith("HTTP/") or not _STATUS.fullmatch(words[1]):
        raise FormatError(f"no HTTP response: {first[:60]!r}")
    headers = dict(_pairs(lines))
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = _unchunked(body)
    encoding = headers.get("content-encoding", "identity").lower()
    if encoding in ("gzip", "x-gzip", "deflate"):
        body = _inflated(body, max_bytes)
    elif encoding not in ("identity", ""):
        raise FormatError(f"the body is encoded as {encoding[:40]!r}, which is not read")
    return int(words[1]), headers, body


def _headers(stream: Decoded) -> dict[str, str]:
    lines: list[str] = []
    n_bytes = 0
    while True:
        line = stream.readline(_HEADER_BYTES)
        n_bytes += len(line)
        if line in (b"\r\n", b"\n"):
            return dict(_pairs(lines))
        if not line.endswith(b"\n") or n_bytes > _HEADER_BYTES:
            raise FormatError(f"at decoded byte {stream.offset:,}: the headers of a record do not end")
        lines.append(line.decode("utf-8", "replace").rstrip("\r\n"))


def _pairs(lines: list[str]) -> Iterator[tuple[str, str]]:
    name, value = "", ""
    for line in lines:
        if line[:1] in (" ", "\t") and name:  # a folded line goes on with the one before
            value += " " + line.strip()
            continue
        if name:
            yield name, value
        name, _, value = line.partition(":")
        name, value = name.strip().lower(), value.strip()
    if name:
        yield name, value


def _unchunked(body: bytes) -> bytes:
    """The body without its chunk sizes; as it is, if they make no sense (some crawlers take them off and keep the header)."""
    parts: list[bytes] = []
    at = 0
    while True:
        end = body.find(b"\r\n", at)
        size = body[at:end].split(b";")[0].strip() if end >= 0 else b""
        if not size or len(size) > 8 or not all(c in b"0123456789abcdefABCDEF" for c in size):
            return body if not parts else b"".join(parts)
        n_bytes = int(size, 16)
        if n_bytes == 0:
            return b"".join(parts)
        parts.append(body[end + 2 : end + 2 + n_bytes])
        at = end + 2 + n_bytes + 2


def _inflated(body: bytes, max_bytes: int) -> bytes:
    """The body without gzip or deflate; as it is, if it is neither (some crawlers decode bodies and keep the header)."""
    # With a header of gzip or zlib, which may end early; without one, only if it comes out even.
    for window in (47, -15):
        decoder = zlib.decompressobj(window)
        try:
            data = decoder.decompress(body, max_bytes + 1)
        except zlib.error:
            continue
        if len(data) > max_bytes:
            raise FormatError(f"the body has more than {max_bytes:,} bytes when decoded")
        if window > 0 or decoder.eof:
            return data
    return body

"""HTTP responses in WARC records: status, headers and the decoded body, in bounded memory."""

from __future__ import annotations

import re
import zlib

from tamis.errors import FormatError
from tamis.formats.warc.records import MAX_HEADER_BYTES, MAX_HEADERS, header_pairs

_STATUS = re.compile(r"[0-9]{3}")


def http_body(block: bytes, max_bytes: int) -> tuple[int, dict[str, str], bytes]:
    """Return (status, headers, body) of a response record.

    Transfer and content encodings are decoded up to `max_bytes`. Raises FormatError for anything but an HTTP response,
    or a larger body.
    """
    head = block[:MAX_HEADER_BYTES]
    end, gap = head.find(b"\r\n\r\n"), 4
    if end < 0:
        end, gap = head.find(b"\n\n"), 2
    if end < 0 and len(block) > len(head):
        raise FormatError(f"no HTTP response: its headers do not end within {MAX_HEADER_BYTES:,} bytes")
    head, body = (head, b"") if end < 0 else (head[:end], block[end + gap :])
    first, *lines = head.decode("utf-8", "replace").split("\n", MAX_HEADERS + 1)
    if len(lines) > MAX_HEADERS:
        raise FormatError(f"no HTTP response: it has more than {MAX_HEADERS:,} headers")
    lines = [line.rstrip("\r") for line in lines]
    words = first.split(None, 2)
    if len(words) < 2 or not words[0].upper().startswith("HTTP/") or not _STATUS.fullmatch(words[1]):
        raise FormatError(f"no HTTP response: {first[:60]!r}")
    headers = dict(header_pairs(lines))
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = _unchunked(body)
    encoding = headers.get("content-encoding", "identity").lower()
    if encoding in ("gzip", "x-gzip", "deflate"):
        body = _inflated(body, max_bytes)
    elif encoding not in ("identity", ""):
        raise FormatError(f"the body is encoded as {encoding[:40]!r}, which is not read")
    return int(words[1]), headers, body


def _unchunked(body: bytes) -> bytes:
    """Remove the chunk sizes from a body.

    Returns the body unchanged if they make no sense (some crawlers remove them and keep the header).
    """
    parts: list[bytes] = []
    offset = 0
    while True:
        end = body.find(b"\r\n", offset)
        size = body[offset:end].split(b";")[0].strip() if end >= 0 else b""
        if not size or len(size) > 8 or not all(c in b"0123456789abcdefABCDEF" for c in size):
            return body if not parts else b"".join(parts)
        n_bytes = int(size, 16)
        if n_bytes == 0:
            return b"".join(parts)
        parts.append(body[end + 2 : end + 2 + n_bytes])
        offset = end + 2 + n_bytes + 2


def _inflated(body: bytes, max_bytes: int) -> bytes:
    """Decompress a gzip or deflate body.

    Returns the body unchanged if it is neither (some crawlers decode bodies and keep the header).
    """
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

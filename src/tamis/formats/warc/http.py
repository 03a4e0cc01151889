"""HTTP responses in WARC records: status, headers and the decoded body, in bounded memory."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable

from tamis.errors import FormatError, optional
from tamis.failures import is_memory_failure
from tamis.formats.warc.records import MAX_HEADER_BYTES, MAX_HEADERS, headers_of

MAX_CODINGS = 3
_STEP_BYTES = 1 << 20
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
    words = first.split(None, 2)
    if len(words) < 2 or not words[0].upper().startswith("HTTP/") or not _STATUS.fullmatch(words[1]):
        raise FormatError(f"no HTTP response: {first[:60]!r}")
    headers = headers_of(lines)
    for coding in reversed(_codings(headers.get("transfer-encoding", ""), "transfer")):
        body = _unchunked(body) if coding == "chunked" else _decoded(body, coding, max_bytes)
    for coding in reversed(_codings(headers.get("content-encoding", ""), "content")):
        body = _decoded(body, coding, max_bytes)
    if len(body) > max_bytes:
        raise BodyTooLarge(max_bytes)
    return int(words[1]), headers, body


class BodyTooLarge(FormatError):
    """A body that decodes to more than the limit."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"the body has more than {max_bytes:,} bytes when decoded")


class UnknownEncoding(FormatError):
    """A body in an encoding that is not read, or in too many."""


def _codings(header: str, kind: str) -> list[str]:
    """Return the encodings that a header lists, in the order in which they were applied."""
    names = [name.strip().lower().removeprefix("x-") for name in header.split(",", MAX_CODINGS + 1)]
    names = [name for name in names if name not in ("", "identity", "none", "utf-8", "binary")]
    if len(names) > MAX_CODINGS:
        raise UnknownEncoding(f"the body is encoded more than {MAX_CODINGS} times")
    unknown = [name for name in names if name not in _DECODERS and not (kind == "transfer" and name == "chunked")]
    if unknown:
        raise UnknownEncoding(f"the body is encoded as {unknown[0][:40]!r}, which is not read")
    return names


def _decoded(body: bytes, coding: str, max_bytes: int) -> bytes:
    return _DECODERS[coding](body, max_bytes)


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
            raise BodyTooLarge(max_bytes)
        if window > 0 or decoder.eof:
            return data
    return body


def _unbrotli(body: bytes, max_bytes: int) -> bytes:
    """Decompress a Brotli body, which may end early.

    Returns the body unchanged if it is none. Brotli has no magic number: a page that was decoded already and kept its
    header is recognised by its first byte.
    """
    if body.lstrip()[:1] == b"<":
        return body
    brotli = optional("brotli", "pages encoded as br", "html")
    parts: list[bytes] = []
    decoder, n_bytes, data = brotli.Decompressor(), 0, body
    while not decoder.is_finished():
        try:
            part = decoder.process(data, output_buffer_limit=_STEP_BYTES)
        except brotli.error:
            return body if not n_bytes else b"".join(parts)
        data = b""
        parts.append(part)
        n_bytes += len(part)
        if n_bytes > max_bytes:
            raise BodyTooLarge(max_bytes)
        if not part and decoder.can_accept_more_data():
            break
    return b"".join(parts)


def _unzstd(body: bytes, max_bytes: int) -> bytes:
    """Decompress the first frame of a Zstandard body, which may end early; unchanged if it is none."""
    from tamis.formats.compression.zstd import ZstdError, new_decoder

    decoder = new_decoder()
    try:
        data: bytes = decoder.decompress(body, max_bytes + 1)
    except ZstdError as exc:
        if is_memory_failure(exc):
            raise MemoryError(str(exc)) from exc
        return body
    if len(data) > max_bytes:
        raise BodyTooLarge(max_bytes)
    return data


_DECODERS: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": _inflated,
    "deflate": _inflated,
    "br": _unbrotli,
    "zstd": _unzstd,
}

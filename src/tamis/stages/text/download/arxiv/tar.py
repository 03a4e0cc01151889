"""Members of a tar archive, read one after the other from a stream. Nothing is unpacked, so no name in it can do harm.

The module `tarfile` reads extended headers of any size into memory; here they are bounded, as everything is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tamis.errors import FormatError
from tamis.stages.text.download.streams import Decoded

BLOCK = 512
_EXTRA_BYTES = 1 << 20


@dataclass(frozen=True)
class Member:
    name: str
    n_bytes: int
    is_file: bool


def is_tar_header(block: bytes) -> bool:
    """Whether 512 bytes are the header of a member: their own checksum says."""
    if len(block) < BLOCK:
        return False
    told = _octal(block[148:156])
    return told is not None and told == sum(block[:148]) + 8 * 32 + sum(block[156:BLOCK])


def read_members(stream: Decoded, first: bytes = b"") -> Iterator[Member]:
    """The members. Between two of them the caller may read up to `n_bytes` from the stream; the rest is passed over.

    `first`: a header that the caller has read already. FormatError at bytes that are no archive.
    """
    name = ""
    while True:
        block = first or stream.read(BLOCK)
        first = b""
        if not block or not block.strip(b"\0"):
            return
        if not is_tar_header(block):
            raise FormatError(f"at decoded byte {stream.offset - len(block):,} a member should begin, and does not")
        n_bytes, kind = _size(block[124:136]), block[156:157]
        padded = -(-n_bytes // BLOCK) * BLOCK
        if kind in (b"L", b"x"):
            if n_bytes > _EXTRA_BYTES:
                raise FormatError(f"a header of {n_bytes:,} bytes: refused")
            extra = stream.read(padded)[:n_bytes]
            name = _text(extra) if kind == b"L" else _pax_path(extra) or name
            continue
        if kind in (b"g", b"K"):
            _pass(stream, padded)
            continue
        begin = stream.offset
        yield Member(name or _plain_name(block), n_bytes, kind in (b"0", b"\0", b"7"))
        name = ""
        _pass(stream, padded - (stream.offset - begin))


def _pass(stream: Decoded, n_bytes: int) -> None:
    if stream.skip(n_bytes) < n_bytes:
        raise FormatError("the archive ends inside a member")


def _plain_name(block: bytes) -> str:
    prefix = _text(block[345:500]) if block[257:262] == b"ustar" else ""
    return f"{prefix}/{_text(block[:100])}" if prefix else _text(block[:100])


def _pax_path(extra: bytes) -> str:
    """The name in an extended header: lines of `<length> path=<name>`."""
    at = 0
    while at < len(extra):
        digits, space, _ = extra[at : at + 20].partition(b" ")
        if not space or not digits.isdigit() or int(digits) < 5:
            return ""
        key, _, value = extra[at + len(digits) + 1 : at + int(digits) - 1].partition(b"=")
        if key == b"path":
            return value.decode("utf-8", "replace")
        at += int(digits)
    return ""


def _size(field: bytes) -> int:
    if field[0] & 0x80:  # too large for octal digits: a binary number
        return int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
    n_bytes = _octal(field)
    if n_bytes is None:
        raise FormatError(f"a member tells no size: {field!r}")
    return n_bytes


def _octal(field: bytes) -> int | None:
    digits = field.strip(b" \0")
    return int(digits, 8) if digits and all(c in b"01234567" for c in digits) else None


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "replace")

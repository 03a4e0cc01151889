"""Members of a tar archive, read one after the other from a stream. Nothing is unpacked, so no name in it can do harm.

The module `tarfile` reads extended headers of any size into memory; here they are bounded, as everything is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tamis.errors import FormatError
from tamis.pictures.tar import BLOCK, is_header, number, padded, pax, plain_name, text_of
from tamis.stages.text.download.streams import Decoded

_EXTRA_BYTES = 1 << 20
_MAX_ZERO_BLOCKS = 2048  # 1 MiB behind the end of an archive; programs that write them fill up to 10 kB


@dataclass(frozen=True)
class Member:
    name: str
    n_bytes: int
    is_file: bool


def is_tar_header(block: bytes) -> bool:
    """Whether 512 bytes are the header of a member: their own checksum says."""
    return len(block) == BLOCK and is_header(block)


def read_members(stream: Decoded, first: bytes = b"") -> Iterator[Member]:
    """The members. Between two of them the caller may read up to `n_bytes` from the stream; the rest is passed over.

    `first`: a header that the caller has read already. FormatError at bytes that are no archive.
    """
    name = ""
    while True:
        block = first or _next_header(stream)
        first = b""
        if not block:
            return
        n_bytes, kind = number(block[124:136], stream.offset - BLOCK), block[156:157]
        n_padded = padded(n_bytes)
        if kind in (b"L", b"x"):
            if n_bytes > _EXTRA_BYTES:
                raise FormatError(f"a header of {n_bytes:,} bytes: refused")
            extra = stream.read(n_padded)[:n_bytes]
            name = text_of(extra) if kind == b"L" else pax(extra)[0] or name
            continue
        if kind in (b"g", b"K"):
            _pass(stream, n_padded)
            continue
        begin = stream.offset
        yield Member(name or plain_name(block), n_bytes, kind in (b"0", b"\0", b"7"))
        name = ""
        _pass(stream, n_padded - (stream.offset - begin))


def _next_header(stream: Decoded) -> bytes:
    """The header of the next member, also of a further archive behind the end of this one; b"" where there is none."""
    n_zero_blocks = 0
    while (block := stream.read(BLOCK)) and not block.strip(b"\0"):
        n_zero_blocks += 1
        if n_zero_blocks > _MAX_ZERO_BLOCKS:
            return b""
    if not block or is_tar_header(block):
        return block
    if n_zero_blocks >= 2:  # an archive ends with two: what some programs leave behind that is no part of it
        return b""
    raise FormatError(f"at decoded byte {stream.offset - len(block):,} a member should begin, and does not")


def _pass(stream: Decoded, n_bytes: int) -> None:
    if stream.skip(n_bytes) < n_bytes:
        raise FormatError("the archive ends inside a member")

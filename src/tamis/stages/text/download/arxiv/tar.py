"""Members of a tar archive, read one after the other from a stream. Nothing is unpacked, so no name in it can do harm.

The module `tarfile` reads extended headers of any size into memory; here they are bounded, as everything is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tamis.errors import FormatError
from tamis.images.tar import BLOCK, is_header, number, padded, pax, plain_name, text_of
from tamis.stages.text.download.streams import Decoded

_EXTRA_BYTES = 1 << 20
_ENDS = "the archive ends inside a member"


@dataclass(frozen=True)
class StreamMember:
    name: str
    n_bytes: int
    is_file: bool
    offset: int
    """Decoded byte at which its header begins."""


@dataclass(frozen=True)
class Gap:
    """Decoded bytes that are no member: damage.

    `is_cut`: the archive ends inside of a member, and how much is missing is unknown.
    """

    offset: int
    n_bytes: int
    reason: str
    is_cut: bool = False


def is_tar_header(block: bytes) -> bool:
    """Return True if 512 bytes are the header of a member, as their own checksum shows."""
    return len(block) == BLOCK and is_header(block)


def read_members(stream: Decoded, first: bytes = b"") -> Iterator[StreamMember | Gap]:
    """Yield the members; between two of them the caller may read up to `n_bytes` from the stream.

    The rest of a member is skipped. `first`: a header that the caller has already read. After bytes that are
    not a member, reading continues at the next header (a block whose checksum is right); zeros at the end, and
    what some programs leave after them, are not a gap.
    """
    name = ""
    while True:
        begin, n_zero_blocks = stream.offset - len(first), 0
        block, first = first or stream.read(BLOCK), b""
        while block and not block.strip(b"\0"):
            n_zero_blocks += 1
            block = stream.read(BLOCK)
        if not block:
            return
        header = stream.offset - len(block)
        wrong = _wrong(block, header, stream.n_left)
        if wrong:
            first = _next_header(stream)
            if first or n_zero_blocks < 2:  # an archive ends with two
                yield Gap(begin, stream.offset - len(first) - begin, wrong, wrong == _ENDS and not first)
            name = ""
            continue
        n_bytes, kind = number(block[124:136], header), block[156:157]
        n_padded = padded(n_bytes)
        if kind in (b"L", b"x"):
            name = _extended_name(kind, stream.read(n_padded)[:n_bytes], name)
        elif kind not in (b"g", b"K"):
            yield StreamMember(name or plain_name(block), n_bytes, kind in (b"0", b"\0", b"7"), header)
            name = ""
        n_rest = n_padded - (stream.offset - header - BLOCK)
        if stream.skip(n_rest) < n_rest:
            stream.read(1)  # raises where it is the compressed stream that has a fault
            yield Gap(header, stream.offset - header, _ENDS, is_cut=True)
            return


def _extended_name(kind: bytes, extra: bytes, name: str) -> str:
    """Return the name of the next member after an extension header, given the one known before it."""
    return text_of(extra) if kind == b"L" else pax(extra)[0] or name


def _wrong(block: bytes, offset: int, n_left: int | None) -> str:
    """Return the fault of a member's header at decoded byte `offset`; "" if it is valid."""
    if not is_tar_header(block):
        return f"at decoded byte {offset:,} a member should begin, and does not"
    try:
        n_bytes = number(block[124:136], offset)
    except FormatError as exc:
        return str(exc)
    if block[156:157] in (b"L", b"x") and n_bytes > _EXTRA_BYTES:
        return f"a header of {n_bytes:,} bytes: refused"
    return _ENDS if n_left is not None and n_bytes > n_left else ""


def _next_header(stream: Decoded) -> bytes:
    """Return the next block that is the header of a member; b"" where there is none."""
    while block := stream.read(BLOCK):
        if is_tar_header(block):
            return block
    return b""

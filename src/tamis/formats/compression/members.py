"""Members of gzip, bzip2 and xz files, one after another. Covers: bounded decoding and saving what precedes a fault.

The decoders of the standard library throw away the output of a call that fails. So after a failure the same input goes
through a second decoder in single-byte steps, up to the fault: for gzip a copy of the decoder made before each call
(37 kB), for bzip2 and xz, whose decoders cannot be copied, a new one that starts again at the beginning of the
member (where the file can seek).
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Iterator
from typing import Any

from tamis.failures import is_memory_failure
from tamis.formats.compression.source import PieceSource, Undecodable
from tamis.formats.compression.stream_fault import BEHIND, CUT, DAMAGED, UNSUPPORTED

OUT_BYTES = 256 * 1024
"""Decoded bytes per call, also when one compressed byte stands for thousands."""
_REPLAY_BYTES = 1024
_SINGLE_STEP_BYTES = 2**20
XZ_MEMORY_BYTES = 2**27 + 2**22
"""A dictionary of 128 MiB and what the decoder needs around it; xz -9 asks for 65 MiB in all."""
_MAGIC = {"gz": b"\x1f\x8b", "bz2": b"BZh", "xz": b"\xfd7zXZ\x00"}
_NAMES = {"gz": "gzip", "bz2": "bzip2", "xz": "xz"}
_HEAD_BYTES = 64  # enough of an xz file to tell what its first block needs
_CHECKS = ("incorrect data check", "incorrect length check")
"""What zlib says when all of a member could be decoded, but not to what was once compressed."""
_DECODE_ERRORS = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)


class Members:
    """The decoded bytes of all members of `source`."""

    def __init__(self, source: PieceSource, codec: str) -> None:
        self._source, self._codec = source, codec
        self._input = b""
        self._decoder: Any = None
        self._needs_input = True
        self._n_members = 0
        self.member_offset = 0
        """Compressed byte at which the member begins that the last decoded bytes are from."""
        self._n_member_decoded = 0
        self._head = b""

    def next_bytes(self) -> bytes:
        """Return the next decoded bytes (at most `OUT_BYTES`), or b"" at the end of the last member."""
        while True:
            if self._decoder is None and not self._open_member():
                return b""
            if decoded := self._step():
                self._n_member_decoded += len(decoded)
                return decoded

    def _open_member(self) -> bool:
        """False at the end of the file. Zero bytes after a member are padding (tapes, block devices)."""
        self._input = self._input or self._source.piece()
        while self._n_members and self._input:
            self._input = self._input.lstrip(b"\0")
            if self._input:
                break
            self._input = self._source.piece()
        if not self._input:
            return False
        magic, name = _MAGIC[self._codec], _NAMES[self._codec]
        while len(self._input) < len(magic) and (more := self._source.piece()):
            self._input += more
        self.member_offset = self._source.offset() - len(self._input)
        self._head = self._input[:_HEAD_BYTES]
        if not magic.startswith(self._input[: len(magic)]):
            found = self._input[: len(magic)].hex()
            what, kind = (
                (f"garbage after a complete {name} member", BEHIND)
                if self._n_members
                else (f"not a {name} file", DAMAGED)
            )
            raise Undecodable(f"{what}: found bytes {found}, expected {magic.hex()}", self.member_offset, kind=kind)
        self._decoder, self._needs_input, self._n_member_decoded = _new_decoder(self._codec), True, 0
        return True

    def _step(self) -> bytes:
        if self._needs_input and not self._input:
            self._input = self._source.piece()
            if not self._input:
                raise Undecodable(
                    f"the file ends inside a {_NAMES[self._codec]} member", self._source.offset(), kind=CUT
                )
        before = self._decoder.copy() if self._codec == "gz" else None
        data = self._input
        try:
            decoded: bytes = self._decoder.decompress(data, OUT_BYTES)
        except MemoryError as exc:
            raise MemoryError(self._wanted()) from exc
        except _DECODE_ERRORS as exc:
            if is_memory_failure(exc):
                raise MemoryError(self._wanted()) from exc
            end_offset = self._source.offset()
            if before is not None:
                steps = _single_steps_zlib(before, data)
                start_offset = end_offset - len(data)
            elif self._source.can_rewind():
                steps = self._single_steps_replayed()
                start_offset = self.member_offset
            else:
                raise Undecodable(_reason(exc), end_offset, kind=_kind(exc)) from exc
            bad = _salvage(steps, start_offset, exc)
            if self._codec == "gz" and str(bad).endswith(_CHECKS):
                bad.suspect_offset = self.member_offset
            raise bad from exc
        if self._codec == "gz":
            self._input = self._decoder.unconsumed_tail
            # A full output buffer may mean that more output waits inside zlib though all input is consumed.
            self._needs_input = not self._input and len(decoded) < OUT_BYTES
        else:
            self._input, self._needs_input = b"", self._decoder.needs_input
        if self._decoder.eof:
            self._input, self._decoder = self._decoder.unused_data, None
            self._n_members += 1
        return decoded

    def _wanted(self) -> str:
        """Describe what a decoder that ran out of memory needed it for."""
        name = _NAMES[self._codec]
        n_bytes = xz_dictionary_bytes(self._head) if self._codec == "xz" else 0
        return f"tried to allocate {n_bytes} bytes, the dictionary of an xz file" if n_bytes else f"the {name} decoder"

    def _single_steps_replayed(self) -> Iterator[tuple[int, bytes]]:
        """Decode the member again from its beginning, skipping what was already delivered.

        The rest is fed to the decoder in single bytes.
        """
        self._source.rewind(self.member_offset)
        decoder, left, n_fed = _new_decoder(self._codec), self._n_member_decoded, 0
        piece, at = b"", 0
        while not decoder.eof:
            data = b""
            if decoder.needs_input:
                if at == len(piece):
                    piece, at = self._source.piece(), 0
                # liblzma checks a block in the same call as its last byte if it has the bytes: near the fault, starve it.
                n_data = _REPLAY_BYTES if left > _SINGLE_STEP_BYTES else 1
                data = piece[at : at + n_data]
                at += len(data)
                n_fed += len(data)
                if not data:
                    return
            if left:
                left -= len(decoder.decompress(data, min(left, OUT_BYTES)))
            else:
                yield max(n_fed - 1, 0), b""
                yield max(n_fed - 1, 0), decoder.decompress(data, 1)


def _single_steps_zlib(decoder: Any, data: bytes) -> Iterator[tuple[int, bytes]]:
    while decoded := decoder.decompress(b"", 1):  # output that waited inside zlib from the call before
        yield 0, decoded
    for i in range(len(data)):
        yield i, b""
        waiting = data[i : i + 1]
        while True:
            decoded = decoder.decompress(waiting, 1)
            waiting = decoder.unconsumed_tail
            if not decoded and not waiting:
                break
            yield i, decoded


def _salvage(steps: Iterator[tuple[int, bytes]], start_offset: int, first: Exception) -> Undecodable:
    """Runs single steps until they fail where the large one did. `first` is the reason if they do not."""
    saved, offset = bytearray(), start_offset
    try:
        for n_fed, decoded in steps:
            offset = start_offset + n_fed
            saved += decoded
    except _DECODE_ERRORS as exc:
        if is_memory_failure(exc):
            raise MemoryError(str(exc)) from exc
        first = exc
    return Undecodable(_reason(first), offset, bytes(saved), _kind(first))


def _new_decoder(codec: str) -> Any:
    if codec == "gz":
        return zlib.decompressobj(31)
    if codec == "bz2":
        return bz2.BZ2Decompressor()
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY_BYTES)


def xz_dictionary_bytes(head: bytes) -> int:
    """Return the dictionary size that the first block of an xz file needs, from the file's first bytes.

    Returns 0 if those bytes do not determine it.

    >>> xz_dictionary_bytes(lzma.compress(b"", preset=0)), xz_dictionary_bytes(lzma.compress(b"x", preset=9))
    (0, 67108864)
    """
    at, flags = 14, head[13] if len(head) > 13 and head[12] else 0xFF
    if flags & 0x3F:  # no block, or more than one filter: what such a file needs is rarely the dictionary alone
        return 0
    for bit in (0x40, 0x80):  # sizes that are told: numbers of as many bytes as have their highest bit set
        while flags & bit and at < len(head):
            at += 1
            if head[at - 1] < 0x80:
                break
    if head[at : at + 2] != b"\x21\x01" or at + 2 >= len(head) or head[at + 2] > 40:
        return 0
    return (2 | head[at + 2] & 1) << (head[at + 2] // 2 + 11) if head[at + 2] < 40 else (1 << 32) - 1


def _kind(exc: Exception) -> str:
    return UNSUPPORTED if isinstance(exc, lzma.LZMAError) and "limit" in str(exc).lower() else DAMAGED


def _reason(exc: Exception) -> str:
    text = str(exc)
    if _kind(exc) == UNSUPPORTED:
        return f"xz needs more than {XZ_MEMORY_BYTES} bytes of decoder memory; recompress the file with xz -9 or less"
    return text or type(exc).__name__

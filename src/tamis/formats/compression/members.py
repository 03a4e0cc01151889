"""Decode the members of gzip, bzip2 and xz files one after another, in bounded memory, up to the byte of a fault.

The decoders of the standard library throw away the output of a call that fails. So after a failure the same input goes
through a second decoder in single-byte steps, up to the fault: for gzip a copy of the decoder made before each call
(37 kB), for bzip2 and xz, whose decoders cannot be copied, a new one that starts again at the beginning of the
member (where the file can seek).

What a decoder of zlib did not consume, it copies. So input goes to it in steps that begin small and grow with the
member: a file of many small members, as WARC files are, would otherwise be copied many times (a third of the time).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tamis.failures import is_memory_failure
from tamis.formats.compression.source import CUT, DAMAGED, TRAILING, UNSUPPORTED, PieceSource, Undecodable

if TYPE_CHECKING:
    from tamis.formats.compression.codecs import Codec

OUT_BYTES = 256 * 1024
"""Decoded bytes per call, also when one compressed byte decodes to thousands."""
_FIRST_STEP_BYTES = 8192
"""Compressed bytes that a decoder of zlib gets first; then as many as its member had so far."""
_REPLAY_BYTES = 1024
_SINGLE_STEP_BYTES = 2**20
_HEAD_BYTES = 64  # of an xz file: enough for the dictionary size of its first block
_CHECKS = ("incorrect data check", "incorrect length check")
"""The message of zlib for a member that decodes to other bytes than were compressed."""


class Members:
    """The decoded bytes of all members of `source`."""

    def __init__(self, source: PieceSource, codec: Codec) -> None:
        self._source, self._codec, self._errors = source, codec, codec.decode_errors()
        self._input = b""
        self._cursor = 0  # in the input: what a decoder of zlib has consumed of it
        self._step_bytes = _FIRST_STEP_BYTES
        self._decoder: Any = None
        self._is_zlib = False  # such a decoder can be copied, and keeps input that it did not consume
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
        """Return False at the end of the file. Zero bytes after a member are padding (tapes, block devices)."""
        magic, name = self._codec.magic, self._codec.long_name
        if not self._input.startswith(magic, self._cursor):
            self._find_member(len(magic))
            if not self._input:
                return False
        self.member_offset = self._source.offset() - len(self._input) + self._cursor
        self._head = self._input[self._cursor : self._cursor + _HEAD_BYTES]
        if not magic.startswith(self._head[: len(magic)]):
            first_bytes = self._head[: len(magic)].hex()
            problem, kind = (
                (f"garbage after a complete {name} member", TRAILING)
                if self._n_members
                else (f"not a {name} file", DAMAGED)
            )
            raise Undecodable(
                f"{problem}: found bytes {first_bytes}, expected {magic.hex()}", self.member_offset, kind=kind
            )
        self._decoder, self._needs_input, self._n_member_decoded = self._codec.new_decoder(), True, 0
        self._is_zlib, self._step_bytes = hasattr(self._decoder, "unconsumed_tail"), _FIRST_STEP_BYTES
        return True

    def _find_member(self, n_magic: int) -> None:
        """Pass padding, and have the first `n_magic` bytes after it in the input; empty at the end of the file."""
        self._input, self._cursor = self._input[self._cursor :] or self._source.piece(), 0
        while self._n_members and self._input:
            self._input = self._input.lstrip(b"\0")
            if self._input:
                break
            self._input = self._source.piece()
        while 0 < len(self._input) < n_magic and (more := self._source.piece()):
            self._input += more

    def _step(self) -> bytes:
        if self._needs_input and self._cursor == len(self._input):
            self._input, self._cursor = self._source.piece(), 0
            if not self._input:
                raise Undecodable(
                    f"the file ends inside a {self._codec.long_name} member", self._source.offset(), kind=CUT
                )
        if self._is_zlib:
            return self._step_zlib()
        data, self._input, self._cursor = self._input[self._cursor :], b"", 0
        try:
            decoded: bytes = self._decoder.decompress(data, OUT_BYTES)
        except MemoryError as exc:
            raise MemoryError(self._memory_request()) from exc
        except self._errors as exc:
            if is_memory_failure(exc):
                raise MemoryError(self._memory_request()) from exc
            if not self._source.can_rewind():
                raise self._undecodable(exc, self._source.offset()) from exc
            raise self._salvage(self._single_steps_replayed(), self.member_offset, exc) from exc
        self._needs_input = self._decoder.needs_input
        if self._decoder.eof:
            self._end_member(self._decoder.unused_data, 0)
        return decoded

    def _step_zlib(self) -> bytes:
        before = self._decoder.copy()
        data = memoryview(self._input)[self._cursor : self._cursor + self._step_bytes]
        try:
            decoded: bytes = self._decoder.decompress(data, OUT_BYTES)
        except MemoryError as exc:
            raise MemoryError(self._memory_request()) from exc
        except self._errors as exc:
            if is_memory_failure(exc):
                raise MemoryError(self._memory_request()) from exc
            start_offset = self._source.offset() - len(self._input) + self._cursor
            bad = self._salvage(_single_steps_zlib(before, bytes(data)), start_offset, exc)
            if str(bad).endswith(_CHECKS):
                bad.suspect_offset = self.member_offset
            raise bad from exc
        if self._decoder.eof:
            self._end_member(self._input, self._cursor + len(data) - len(self._decoder.unused_data))
            return decoded
        n_consumed = len(data) - len(self._decoder.unconsumed_tail)
        self._cursor += n_consumed
        self._step_bytes += n_consumed
        # A full output buffer may mean that more output waits inside zlib though all input is consumed.
        self._needs_input = self._cursor == len(self._input) and len(decoded) < OUT_BYTES
        return decoded

    def _end_member(self, data: bytes, cursor: int) -> None:
        """Continue after the present member, with the bytes of `data` from `cursor` on."""
        self._input, self._cursor, self._decoder = data, cursor, None
        self._n_members += 1

    def _memory_request(self) -> str:
        """Describe the allocation of a decoder that ran out of memory."""
        name, n_bytes = self._codec.long_name, self._codec.dictionary_bytes(self._head)
        if not n_bytes:
            return f"the {name} decoder"
        return f"tried to allocate {n_bytes} bytes, the dictionary of an {name} file"

    def _undecodable(self, exc: Exception, offset: int, salvaged: bytes = b"") -> Undecodable:
        unsupported = self._codec.unsupported_reason(exc)
        reason = unsupported or str(exc) or type(exc).__name__
        return Undecodable(reason, offset, salvaged, UNSUPPORTED if unsupported else DAMAGED)

    def _salvage(self, steps: Iterator[tuple[int, bytes]], start_offset: int, first: Exception) -> Undecodable:
        """Run single steps until they fail where the large one did. `first` is the reason if they do not."""
        saved, offset = bytearray(), start_offset
        try:
            for n_fed, decoded in steps:
                offset = start_offset + n_fed
                saved += decoded
        except self._errors as exc:
            if is_memory_failure(exc):
                raise MemoryError(str(exc)) from exc
            first = exc
        return self._undecodable(first, offset, bytes(saved))

    def _single_steps_replayed(self) -> Iterator[tuple[int, bytes]]:
        """Decode the member again from its beginning, skipping what was already delivered.

        The rest is fed to the decoder in single bytes.
        """
        self._source.rewind(self.member_offset)
        decoder, n_remaining, n_fed = self._codec.new_decoder(), self._n_member_decoded, 0
        piece, offset = b"", 0
        while not decoder.eof:
            data = b""
            if decoder.needs_input:
                if offset == len(piece):
                    piece, offset = self._source.piece(), 0
                # liblzma checks a block in the same call as its last byte if it has the bytes: near the fault, starve
                # it.
                n_data = _REPLAY_BYTES if n_remaining > _SINGLE_STEP_BYTES else 1
                data = piece[offset : offset + n_data]
                offset += len(data)
                n_fed += len(data)
                if not data:
                    return
            if n_remaining:
                n_remaining -= len(decoder.decompress(data, min(n_remaining, OUT_BYTES)))
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

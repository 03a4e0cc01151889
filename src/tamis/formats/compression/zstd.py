"""Zstandard. Covers: the library, small texts as separate frames, and reading the frames of a file block by block.

The library is part of Python from 3.14 on, a package with the same names before. Its decoder does not report at which
byte of its input it found a fault. A frame is a header, blocks that declare their own length and decode to at most 128
KiB each, and perhaps a checksum (RFC 8878), so `ZstdFrames` cuts it at block borders and feeds the decoder one block at
a time: output is bounded (a 256 KiB piece of a bomb would become gigabytes), every fault has an offset, and all blocks
before a fault are delivered.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

from tamis.failures import is_memory_failure
from tamis.formats.compression.source import CUT, DAMAGED, UNSUPPORTED, PieceSource, Undecodable

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ZstdCompressor, ZstdDecompressor, ZstdError, ZstdFile = (
    zstd.ZstdCompressor,
    zstd.ZstdDecompressor,
    zstd.ZstdError,
    zstd.ZstdFile,
)
CompressionParameter, DecompressionParameter = zstd.CompressionParameter, zstd.DecompressionParameter
MAX_WINDOW_BYTES = 2**27
MAX_BLOCK_BYTES = 128 * 1024
_MAGIC = 0xFD2FB528
_SKIPPABLE = 0x184D2A50
_DICTIONARY_FRAME = (_SKIPPABLE + 0xD).to_bytes(4, "little")
_DICTIONARY = b"\x37\xa4\x30\xec"  # of one with tables; any other bytes can be one, too
_MIN_DICTIONARY = 8
_N_ID_BYTES = (0, 1, 2, 4)
_N_SIZE_BYTES = (0, 2, 4, 8)


class Packer:
    """Compress small texts to frames that declare their decoded size.

    One for many: a library's context for each would take half as long again.
    """

    def __init__(self, level: int) -> None:
        self._compressor = ZstdCompressor(level=level)

    def pack(self, data: bytes) -> bytes:
        self._compressor.set_pledged_input_size(len(data))
        return self._compressor.compress(data, ZstdCompressor.FLUSH_FRAME)


def unpack(frame: bytes, max_bytes: int) -> bytes:
    """Decompress a frame produced by `Packer`.

    Raises ZstdError for anything but one whole frame of at most `max_bytes` decoded bytes.

    >>> unpack(Packer(1).pack(b"words, words"), 100)
    b'words, words'
    """
    decompressor = ZstdDecompressor()
    data = decompressor.decompress(frame, max_bytes)
    if not decompressor.eof or decompressor.unused_data:
        raise ZstdError(f"not one frame of at most {max_bytes} decoded bytes")
    return data


class ZstdFrames:
    """The decoded blocks of all frames of `source`, in order. `dictionary`: what they were compressed with, if any."""

    def __init__(self, source: PieceSource, dictionary: bytes = b"") -> None:
        self._source, self._dictionary = source, dictionary
        self._frame: Any = None
        self._window_bytes = 0
        self._has_checksum = False
        self._checksum_due = False
        self.member_offset = 0
        """Compressed byte at which the frame begins that the last decoded bytes are from."""

    def next_bytes(self) -> bytes:
        """Return the next non-empty decoded block (at most 128 KiB), or b"" at the end of the last frame."""
        while True:
            part_offset = self._source.offset()  # of the header, block or checksum that is read next
            try:
                if self._frame is None:
                    self.member_offset = part_offset
                    if not self._open_frame():
                        return b""
                elif self._checksum_due:
                    self._feed(_whole(self._source.take(4), 4, "the checksum of a frame"))
                    self._checksum_due, self._frame = False, None
                elif decoded := self._read_block():
                    return decoded
            except Undecodable as exc:
                exc.offset = part_offset
                if self._checksum_due and exc.kind == DAMAGED:  # all of the frame was handed out, and may be wrong
                    exc.suspect_offset = self.member_offset
                raise

    def _open_frame(self) -> bool:
        """Return False at the end of the file. Skippable frames are skipped here."""
        head = self._source.take(4)
        if not head:
            return False
        magic = int.from_bytes(_whole(head, 4, "the magic number of a frame"), "little")
        if magic & 0xFFFFFFF0 == _SKIPPABLE:
            n_remaining = int.from_bytes(_whole(self._source.take(4), 4, "a skippable frame"), "little")
            while n_remaining:
                n_remaining -= len(_whole(self._source.take(min(n_remaining, MAX_BLOCK_BYTES)), 1, "a skippable frame"))
            return True
        if magic != _MAGIC:
            raise Undecodable(f"not a zstd frame: it begins with {head.hex()}, expected 28b52ffd")
        descriptor = _whole(self._source.take(1), 1, "a frame header")
        flags = descriptor[0]
        single_segment = bool(flags & 0x20)
        n_id_bytes = _N_ID_BYTES[flags & 3]
        n_size_bytes = _N_SIZE_BYTES[flags >> 6] or (1 if single_segment else 0)
        n_rest = (0 if single_segment else 1) + n_id_bytes + n_size_bytes
        fields = _whole(self._source.take(n_rest), n_rest, "a frame header")
        self._check_needs(fields, single_segment, n_id_bytes, n_size_bytes)
        self._has_checksum = bool(flags & 4)
        self._frame = new_decoder(self._dictionary)
        self._feed(head + descriptor + fields)
        return True

    def _check_needs(self, fields: bytes, single_segment: bool, n_id_bytes: int, n_size_bytes: int) -> None:
        """Refuse frames with too large a window or an unavailable dictionary, for the sake of the message."""
        id_at = 0 if single_segment else 1
        dictionary = int.from_bytes(fields[id_at : id_at + n_id_bytes], "little")
        if dictionary and not self._dictionary:
            raise Undecodable(
                f"the frame needs dictionary {dictionary}; recompress the file without one", kind=UNSUPPORTED
            )
        if single_segment:
            window_bytes = int.from_bytes(fields[-n_size_bytes:], "little") + (256 if n_size_bytes == 2 else 0)
        else:
            base = 1 << (10 + (fields[0] >> 3))
            window_bytes = base + (base >> 3) * (fields[0] & 7)
        self._window_bytes = window_bytes
        if window_bytes > MAX_WINDOW_BYTES:
            raise Undecodable(
                f"the frame needs a window of {window_bytes} bytes, at most {MAX_WINDOW_BYTES} (2^27) are allowed; "
                "recompress the file with zstd --long=27 or less",
                kind=UNSUPPORTED,
            )

    def _read_block(self) -> bytes:
        header = _whole(self._source.take(3), 3, "a block header")
        bits = int.from_bytes(header, "little")
        is_last, kind, n_bytes = bool(bits & 1), (bits >> 1) & 3, bits >> 3
        if kind == 3 or n_bytes > MAX_BLOCK_BYTES:
            raise Undecodable(f"bad block header (type {kind}, {n_bytes} bytes)")
        n_stored = 1 if kind == 1 else n_bytes
        decoded = self._feed(header + _whole(self._source.take(n_stored), n_stored, "a block"))
        # The block is handed out before the checksum of its frame is looked at: a fault never takes bytes with it.
        self._checksum_due = is_last and self._has_checksum
        if is_last and not self._has_checksum:
            self._frame = None
        return decoded

    def _feed(self, data: bytes) -> bytes:
        try:
            decoded: bytes = self._frame.decompress(data)
            return decoded
        except ZstdError as exc:
            if is_memory_failure(exc):
                raise MemoryError(
                    f"tried to allocate {self._window_bytes} bytes, the window of a zstd frame: {exc}"
                ) from exc
            raise Undecodable(str(exc).partition(": ")[2] or str(exc)) from exc


def new_decoder(dictionary: bytes = b"") -> Any:
    """Return the library's decoder of one frame, with the largest window allowed."""
    options: dict[int, int] = {DecompressionParameter.window_log_max: MAX_WINDOW_BYTES.bit_length() - 1}
    return ZstdDecompressor(_digested(dictionary) if dictionary else None, options=options)


@lru_cache(maxsize=2)
def _digested(dictionary: bytes) -> Any:
    """Return the library's form of a dictionary, which takes longer to make than a small frame to decode."""
    return zstd.ZstdDict(dictionary, is_raw=not dictionary.startswith(_DICTIONARY))


def dictionary_of(head: bytes, max_bytes: int) -> bytes | None:
    """Return the dictionary that a file begins with, in a skippable frame of its own; b"" if there is none.

    None: more of the file is needed. This is how WARC files carry one (IIPC's draft). It may be compressed itself.
    Raises Undecodable if it is damaged, or larger than `max_bytes`.
    """
    if not head.startswith(_DICTIONARY_FRAME):
        return None if len(head) < 8 and _DICTIONARY_FRAME.startswith(head) and head else b""
    n_bytes = int.from_bytes(head[4:8], "little")
    if n_bytes > max_bytes:
        raise Undecodable(f"its dictionary has {n_bytes:,} bytes, at most {max_bytes:,} are allowed", kind=UNSUPPORTED)
    if len(head) < 8 + n_bytes:
        return None
    content = head[8 : 8 + n_bytes]
    if content.startswith(_MAGIC.to_bytes(4, "little")):
        try:
            content = unpack(content, max_bytes)
        except ZstdError as exc:
            raise Undecodable(f"its dictionary is damaged: {exc}") from exc
    if len(content) < _MIN_DICTIONARY:
        raise Undecodable(f"its dictionary has {len(content)} bytes, too few for one")
    return content


def _whole(data: bytes, n_bytes: int, part: str) -> bytes:
    if len(data) < n_bytes:
        raise Undecodable(f"the file ends inside {part}", kind=CUT)
    return data

"""Compressions of files: one class each, listed in `CODECS`, from which every list of names and suffixes follows.

To add a compression, write a class here and add it to `CODECS`. Where its library decodes one member after another as
bz2 and lzma do (`decompress(data, max_length)`, `needs_input`, `eof`, `unused_data`), that is all; otherwise `open`
returns its own decoder, as Zstandard has. Libraries are imported when they are used: processes that only plan
import this module.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from tamis.errors import UsageError

if TYPE_CHECKING:
    from tamis.formats.compression.source import PieceSource

XZ_MEMORY_BYTES = 2**27 + 2**22
"""A dictionary of 128 MiB and what the decoder needs around it; xz -9 takes 65 MiB in all."""


class Decoder(Protocol):
    """The decoded bytes of all members (frames, streams) of a file, in order."""

    member_offset: int
    """Compressed byte at which the member begins that the last decoded bytes are from."""

    def next_bytes(self) -> bytes:
        """Return the next decoded bytes, b"" after the last member; raise Undecodable where the file is damaged."""
        ...


class Codec(ABC):
    """One compression: its names, how its files begin, and how they are decoded and written."""

    name: ClassVar[str]
    """In options and as the argument `codec`; the suffix of its files is this after a dot."""
    long_name: ClassVar[str]
    """In messages."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other names that `write_kwargs` accepts."""
    parquet_name: ClassVar[str] = ""
    """Its name in Parquet; empty where `tamis split` does not write it into Parquet files."""
    magic: ClassVar[bytes]
    """The first bytes of a member."""
    member_pattern: ClassVar[bytes]
    """A regular expression (at most 10 bytes long) for the beginning of a member, as narrow as the format allows."""
    head_bytes: ClassVar[int]
    """Compressed bytes that hold the first decoded byte of a member, at most."""
    text_ratio: ClassVar[float]
    """Decoded bytes of text for a compressed byte, as long as nothing was measured."""

    @property
    def suffix(self) -> str:
        return f".{self.name}"

    def open(self, source: PieceSource) -> Decoder:
        """Return a decoder of all members of a file."""
        from tamis.formats.compression.members import Members

        return Members(source, self)

    @abstractmethod
    def new_decoder(self) -> Any:
        """Return a decoder of one member, as zlib, bz2 or lzma have them."""

    @abstractmethod
    def new_encoder(self) -> Any:
        """Return an encoder with `compress(data)` and `flush()`. The same bytes in must give the same bytes out."""

    def decode_errors(self) -> tuple[type[Exception], ...]:
        """Return the exceptions that decoders raise for damaged data."""
        return (OSError, EOFError, ValueError)

    def unsupported_reason(self, exc: Exception) -> str:
        """Return how to recompress an undamaged file that exceeds a limit of the decoder; "" for damaged ones."""
        return ""

    def dictionary_bytes(self, head: bytes) -> int:
        """Return the memory that a member takes judging by its first bytes, for messages; 0 if unknown."""
        return 0


class Gzip(Codec):
    name, long_name, aliases, parquet_name = "gz", "gzip", ("gzip",), "gzip"
    magic = b"\x1f\x8b"
    member_pattern = rb"\x1f\x8b\x08[\x00-\x1f]"  # deflate, and none of the three reserved flags
    head_bytes = 1 << 17  # a header has at most two names and 64 KiB of other data
    text_ratio = 3.0

    def new_decoder(self) -> Any:
        import zlib

        return zlib.decompressobj(31)

    def new_encoder(self) -> Any:
        import zlib

        return zlib.compressobj(6, zlib.DEFLATED, 31)  # 31: a gzip header without name or time, hence deterministic

    def decode_errors(self) -> tuple[type[Exception], ...]:
        import zlib

        return (zlib.error, *super().decode_errors())


class Zstandard(Codec):
    name, long_name, aliases, parquet_name = "zst", "zstd", ("zstd",), "zstd"
    magic = b"\x28\xb5\x2f\xfd"
    member_pattern = rb"\x28\xb5\x2f\xfd"
    head_bytes = 1 << 18  # a block is decoded as a whole and has at most 128 KiB
    text_ratio = 3.5

    def __init__(self, dictionary: bytes = b"") -> None:
        """Take the `dictionary` that the frames were compressed with, if the file brings one along."""
        self._dictionary = dictionary

    def open(self, source: PieceSource) -> Decoder:
        from tamis.formats.compression.zstd import ZstdFrames

        return ZstdFrames(source, self._dictionary)

    def new_decoder(self) -> Any:
        from tamis.formats.compression.zstd import new_decoder

        return new_decoder(self._dictionary)

    def new_encoder(self) -> Any:
        from tamis.formats.compression.zstd import CompressionParameter, ZstdCompressor

        return ZstdCompressor(
            options={CompressionParameter.compression_level: 3, CompressionParameter.checksum_flag: 1}
        )

    def decode_errors(self) -> tuple[type[Exception], ...]:
        from tamis.formats.compression.zstd import ZstdError

        return (ZstdError, *super().decode_errors())


class Bzip2(Codec):
    name, long_name = "bz2", "bzip2"
    magic = b"BZh"
    member_pattern = rb"BZh[1-9]1AY&SY"  # a stream begins with its first block
    head_bytes = 1 << 20  # a block is decoded as a whole and has at most 900 kB
    text_ratio = 4.0

    def new_decoder(self) -> Any:
        import bz2

        return bz2.BZ2Decompressor()

    def new_encoder(self) -> Any:
        import bz2

        return bz2.BZ2Compressor(9)


class Xz(Codec):
    name, long_name = "xz", "xz"
    magic = b"\xfd7zXZ\x00"
    member_pattern = rb"\xfd7zXZ\x00"
    head_bytes = 1 << 17
    text_ratio = 4.0

    def new_decoder(self) -> Any:
        import lzma

        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY_BYTES)

    def new_encoder(self) -> Any:
        import lzma

        # 32 MB of encoder memory; 6 takes 94 MB and 2.4 times as long for 10 % less.
        return lzma.LZMACompressor(preset=3)

    def decode_errors(self) -> tuple[type[Exception], ...]:
        import lzma

        return (lzma.LZMAError, *super().decode_errors())

    def unsupported_reason(self, exc: Exception) -> str:
        import lzma

        if not isinstance(exc, lzma.LZMAError) or "limit" not in str(exc).lower():
            return ""
        return f"xz needs more than {XZ_MEMORY_BYTES} bytes of decoder memory; recompress the file with xz -9 or less"

    def dictionary_bytes(self, head: bytes) -> int:
        """Return the dictionary size that the first block needs.

        >>> import lzma
        >>> [CODECS["xz"].dictionary_bytes(lzma.compress(t, preset=p)) for t, p in ((b"", 0), (b"x", 9))]
        [0, 67108864]
        """
        offset, flags = 14, head[13] if len(head) > 13 and head[12] else 0xFF
        if flags & 0x3F:  # no block, or more than one filter: what such a file needs is rarely the dictionary alone
            return 0
        for bit in (0x40, 0x80):  # optional sizes: numbers of as many bytes as have their highest bit set
            while flags & bit and offset < len(head):
                offset += 1
                if head[offset - 1] < 0x80:
                    break
        if head[offset : offset + 2] != b"\x21\x01" or offset + 2 >= len(head) or head[offset + 2] > 40:
            return 0
        size = head[offset + 2]
        return (2 | size & 1) << (size // 2 + 11) if size < 40 else (1 << 32) - 1


CODECS: dict[str, Codec] = {codec.name: codec for codec in (Gzip(), Zstandard(), Bzip2(), Xz())}
SUFFIXES = tuple(codec.suffix for codec in CODECS.values())
NAMES_TEXT = ", ".join(CODECS)
"""For messages and help: gz, zst, ..."""
SUFFIXES_TEXT = ", ".join(SUFFIXES)
"""For messages and help: .gz, .zst, ..."""


def find_codec(name: str | Codec) -> Codec:
    """Return the codec of this name, or that was given; raise UsageError for an unknown name."""
    if isinstance(name, Codec):
        return name
    codec = CODECS.get(name)
    if codec is None:
        raise UsageError(f"unknown codec {name!r}; expected one of {NAMES_TEXT} or None")
    return codec


def codec_of(path: str | os.PathLike[str]) -> str | None:
    """Return the name of the codec that the suffix of `path` indicates, or None.

    >>> codec_of("a/part.jsonl.gz"), codec_of("part.JSONL.ZST"), codec_of("part.jsonl")
    ('gz', 'zst', None)
    """
    name = Path(path).suffix.lower()[1:]
    return name if name in CODECS else None


def strip_codec(path: str | os.PathLike[str]) -> str:
    """Return `path` without the suffix of its codec.

    >>> strip_codec("a/part.jsonl.gz"), strip_codec("a/part.jsonl")
    ('a/part.jsonl', 'a/part.jsonl')
    """
    text = os.fspath(path)
    return text[: -len(Path(text).suffix)] if codec_of(text) else text

"""The Zstandard library: part of Python from 3.14 on, a package with the same names before. Imported by whoever has such data at hand.

Beside its names: `Packer` and `unpack`, for many small texts, each a frame of its own.
"""

from __future__ import annotations

import sys

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


class Packer:
    """Makes frames that tell their decoded size. One for many: a library's context for each would take half as long again."""

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

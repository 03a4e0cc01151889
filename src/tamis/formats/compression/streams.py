"""Read and write files, compressed (codecs.py) or plain.

Covers: reading decoded bytes with bounded memory, and writing.

`StreamReader` hands out every byte that can be decoded before it reports a fault, so that the records before a corrupt
or truncated tail are kept and the rest is quarantined by offset. Faults are found at: the byte (gzip, xz), the block of
at most 128 KiB (zstd), the byte within a block of at most 900 kB (bzip2; a block whose checksum fails loses its last
byte, because libbz2 checks before it lets go of it). Memory: 256 KiB of input, 256 KiB of output, and the decoder's own
window (32 KiB gzip, 4 MB bzip2, at most 128 MiB zstd and xz).
"""

from __future__ import annotations

import os
from typing import Any, BinaryIO

from tamis.errors import StoreError
from tamis.failures import is_memory_failure
from tamis.files import Closing, Finishing
from tamis.formats.compression.codecs import Codec, codec_of, find_codec
from tamis.formats.compression.source import PieceSource, StreamFault, Undecodable
from tamis.stores.opening import open_input


class StreamReader(Closing):
    """Decoded bytes of `raw`, which is read from its present position. `codec` None passes bytes through."""

    def __init__(self, raw: BinaryIO, codec: str | Codec | None) -> None:
        self._raw = raw
        self._source = PieceSource(raw)
        self._members = None if codec is None else find_codec(codec).open(self._source)
        self._next_bytes = self._source.piece if self._members is None else self._members.next_bytes
        self._ready = b""
        self._ready_at = 0
        self._fault: StreamFault | None = None
        self._at_end = False
        self.decoded_offset = 0
        """Decoded bytes handed out so far."""

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> StreamReader:
        """Read the local or remote file `path`, decoded as its suffix says."""
        return cls(open_input(path), codec_of(path))

    @property
    def compressed_offset(self) -> int:
        """Compressed bytes consumed so far (a little ahead of what was handed out)."""
        return self._source.offset()

    @property
    def member_offset(self) -> int:
        """Compressed byte at which the member or frame begins that the last bytes are from; 0 for a plain file."""
        return 0 if self._members is None else self._members.member_offset

    def read(self, n_bytes: int) -> bytes:
        """Read at most `n_bytes` decoded bytes; b"" at the end; StreamFault after the bytes before a fault."""
        if n_bytes <= 0:
            return b""
        if self._ready_at == len(self._ready):
            self._refill()
        if self._ready_at == 0 and len(self._ready) <= n_bytes:
            data = self._ready
        else:
            data = self._ready[self._ready_at : self._ready_at + n_bytes]
        self._ready_at += len(data)
        self.decoded_offset += len(data)
        return data

    def skip(self, n_bytes: int) -> int:
        """Decode and discard `n_bytes`; returns how many there were (fewer only at the end of the stream)."""
        n_remaining = n_bytes
        while n_remaining and (data := self.read(n_remaining)):
            n_remaining -= len(data)
        return n_bytes - n_remaining

    def close(self) -> None:
        self._raw.close()

    def _refill(self) -> None:
        self._ready, self._ready_at = b"", 0
        if self._fault is not None:
            raise self._fault
        if self._at_end:
            return
        try:
            self._ready = self._next_bytes()
        except Undecodable as exc:
            self._ready = exc.salvaged
            self._fault = StreamFault(
                self.decoded_offset + len(exc.salvaged), exc.offset, str(exc), exc.kind, exc.suspect_offset
            )
        except StoreError:  # nothing is wrong with the data: the run ends
            raise
        except OSError as exc:
            if is_memory_failure(exc):
                raise MemoryError(str(exc)) from exc
            reason = f"reading failed: {exc.strerror or exc}"  # a bad sector, a network that went away
            self._fault = StreamFault(self.decoded_offset, self._source.offset(), reason)
        if not self._ready:
            self._at_end = True
            if self._fault is not None:
                raise self._fault


class StreamWriter(Finishing):
    """A compressed file being written: `write`, then `close`. The same bytes in give the same bytes out."""

    def __init__(self, path: str | os.PathLike[str], codec: str | None) -> None:
        """Create or replace `path`. `codec`: a name of codecs.py, or None."""
        self._compressor = None if codec is None else find_codec(codec).new_encoder()
        self._file = open(path, "wb")  # noqa: SIM115 (lives as long as this object)
        self._finished = False
        self.n_bytes = 0
        """Decoded bytes written."""

    def write(self, data: Any) -> int:
        """Append bytes, a bytearray, a memoryview or a uint8 array; returns their number."""
        view = memoryview(data).cast("B")
        self._file.write(view if self._compressor is None else self._compressor.compress(view))
        self.n_bytes += len(view)
        return len(view)

    def finish(self) -> None:
        """Write what the codec buffers and its trailer; the file stays open, e.g. for `fileno` and fsync."""
        if not self._finished:
            self._finished = True
            if self._compressor is not None:
                self._file.write(self._compressor.flush())
            self._file.flush()

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        try:
            if not self._file.closed:
                self.finish()
        finally:
            self._file.close()

    def abort(self) -> None:
        """Close without a trailer: the file on disk then reads as truncated, never as a complete smaller file."""
        self._finished = True
        self._file.close()

"""Where demo documents go: JSONL (plain or compressed), Parquet, and a gzip file that breaks at a known place."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

from tamis.errors import TamisError
from tamis.formats.compression.streams import StreamWriter, codec_of

_BUFFER_BYTES = 1 << 20


class Sink:
    """Counts documents and decoded bytes; subclasses write them."""

    def __init__(self) -> None:
        self.n_documents = 0
        self.n_bytes = 0

    def write_document(self, record: dict[str, Any]) -> None:
        """A valid record."""
        self.n_documents += 1
        self.write_line(json.dumps(record, ensure_ascii=False).encode("utf-8"))

    def write_line(self, line: bytes) -> None:
        """Any line, without its end."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class JsonlSink(Sink):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._out = StreamWriter(path, codec_of(path))
        self._buffer = bytearray()

    def write_line(self, line: bytes) -> None:
        self.n_bytes += len(line) + 1
        self._buffer += line
        self._buffer += b"\n"
        if len(self._buffer) >= _BUFFER_BYTES:
            self._out.write(bytes(self._buffer))
            self._buffer.clear()

    def close(self) -> None:
        self._out.write(bytes(self._buffer))
        self._out.close()


class DamagedGzipSink(Sink):
    """A gzip file whose first part decodes completely and whose tail does not decode at all."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = open(path, "wb")  # noqa: SIM115 (lives as long as this object)
        self._compressor = zlib.compressobj(6, zlib.DEFLATED, 31)

    def write_line(self, line: bytes) -> None:
        self.n_bytes += len(line) + 1
        self._file.write(self._compressor.compress(line + b"\n"))

    def damage(self, lost: list[bytes]) -> None:
        """End with `lost` lines whose compressed bytes are overwritten."""
        # After a full flush every line so far decodes by itself, and the next bits are the header of a block: three set
        # bits there name a kind of block that does not exist, so every decoder stops at exactly this byte.
        self._file.write(self._compressor.flush(zlib.Z_FULL_FLUSH))
        tail = self._compressor.compress(b"".join(line + b"\n" for line in lost)) + self._compressor.flush()
        self._file.write(b"\xff" * len(tail))

    def close(self) -> None:
        self._file.close()


class ParquetSink(Sink):
    """Parquet, written by a process of its own: pyarrow would triple the memory of this one (42 -> 160 MB)."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tamis.demo.to_parquet", str(path)],
            stdin=subprocess.PIPE,
            env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},
        )

    def write_line(self, line: bytes) -> None:
        assert self._child.stdin is not None
        self.n_bytes += len(line) + 1
        try:
            self._child.stdin.write(line + b"\n")
        except BrokenPipeError:
            self.close()

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # its exit status says more
            self._child.communicate()
        if self._child.wait() != 0:
            raise TamisError(
                f"{self._path}: the process that writes it failed (exit {self._child.returncode}); see its message above"
            )

"""Writers of demo documents: JSONL (plain or compressed), Parquet, and a gzip file that breaks at a known byte."""

from __future__ import annotations

import json
import zlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from tamis.files import Closing
from tamis.formats.compression.codecs import codec_of
from tamis.formats.compression.streams import StreamWriter

_BUFFER_BYTES = 1 << 20
_ROW_GROUP_BYTES = 4_000_000


class CorpusFile(Closing, ABC):
    """Counts documents and decoded bytes; subclasses write them."""

    def __init__(self) -> None:
        self.n_documents = 0
        self.n_bytes = 0

    def write_document(self, record: dict[str, Any]) -> None:
        """Write a valid record."""
        self.n_documents += 1
        self.write_line(json.dumps(record, ensure_ascii=False).encode("utf-8"))

    @abstractmethod
    def write_line(self, line: bytes) -> None:
        """Write a line without its end."""

    @abstractmethod
    def close(self) -> None:
        """Close the file once it is complete and on the disk."""


class JsonlCorpusFile(CorpusFile):
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


class DamagedGzipFile(CorpusFile):
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


class ParquetCorpusFile(CorpusFile):
    """Row groups of about 4 MB; `meta` becomes a struct."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        super().__init__()
        meta = pa.struct([("kind", pa.string()), ("part", pa.int64()), ("copy", pa.int64())])
        columns = [("id", pa.string()), ("text", pa.string()), ("source", pa.string()), ("meta", meta)]
        # Dictionaries and statistics of long texts cost memory and do not help.
        self._out = pq.ParquetWriter(
            path, pa.schema(columns), compression="zstd", use_dictionary=False, write_statistics=False
        )
        self._rows: list[dict[str, Any]] = []
        self._group_bytes = 0

    def write_line(self, line: bytes) -> None:
        self.n_bytes += len(line) + 1
        self._group_bytes += len(line) + 1
        self._rows.append(json.loads(line))
        if self._group_bytes >= _ROW_GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        import pyarrow as pa

        if self._rows:
            self._out.write_table(pa.Table.from_pylist(self._rows, schema=self._out.schema))
        self._rows, self._group_bytes = [], 0

    def close(self) -> None:
        self._write_group()
        self._out.close()

"""Split one large file into chunks of a size, between records, in bounded memory.

JSONL is cut between lines and otherwise copied byte for byte: the joined decoded chunks are the decoded input. Parquet
is cut between rows. All chunks are written below a hidden folder and get their names together at the end, so a chunk is
never seen half written, and a set of chunks never looks complete when it is not.

Tamis itself needs no split files. `tamis split` (cli/data/split.py) and tamis.utils.split_large_files are thin shells.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from tamis import files
from tamis._lazy import pa
from tamis.errors import RunConflict, UsageError
from tamis.formats.compression.codecs import CODECS, NAMES_TEXT, codec_of, strip_codec

if TYPE_CHECKING:
    from typing import Self

JSONL_SUFFIXES = (".jsonl", ".json", ".ndjson")
_PARQUET_CODECS = {codec.name: codec.parquet_name for codec in CODECS.values() if codec.parquet_name} | {"none": "none"}
_READ_BYTES = 1 << 20
# The beginning of a line whose end is not read yet waits in memory up to here, then in a temporary file.
_PENDING_BYTES = 8 << 20


@dataclass(frozen=True)
class ChunkLimit:
    """The bounds of one chunk."""

    n_bytes: int
    n_rows: int | None = None


@dataclass
class SplitResult:
    """The result of a split. `n_rows` counts lines (JSONL, blank ones too) or rows (Parquet)."""

    paths: list[Path] = field(default_factory=list)
    n_rows: int = 0
    n_bytes: int = 0
    n_oversize: int = 0
    faults: list[str] = field(default_factory=list)
    unit: str = "line"


def split_file(source: Path, target: Path, limit: ChunkLimit, compress: str | None = None) -> SplitResult:
    """Split `source` into the folder `target`; `compress` None keeps the input's compression."""
    if compress is not None and compress not in (*CODECS, "none"):
        raise UsageError(f"--compress: expected one of {NAMES_TEXT} or none, got {compress!r}")
    if not source.exists():
        raise UsageError(f"no such file: {source}")
    if source.is_dir():
        raise UsageError(f"{source} is a folder; split takes one file")
    plain = Path(strip_codec(source))
    codec = codec_of(source) if compress is None else None if compress == "none" else compress
    if plain.suffix.lower() in JSONL_SUFFIXES:
        with ChunkFolder(target, plain.stem, plain.suffix + (f".{codec}" if codec else "")) as folder:
            return _split_lines(source, folder, limit, codec)
    if source.suffix.lower() == ".parquet":
        with ChunkFolder(target, source.stem, ".parquet") as folder:
            return _split_rows(source, folder, limit, compress)
    suffixes = ", ".join(JSONL_SUFFIXES)
    raise UsageError(
        f"{source}: cannot tell its format; expected a name that ends in {suffixes} (+ .gz, ...) or .parquet"
    )


class ChunkFolder:
    """The files of one split: hidden until `publish`, deleted if it does not come to that."""

    def __init__(self, target: Path, stem: str, suffix: str) -> None:
        self.target, self.stem, self.suffix = target, stem, suffix
        self._n_chunks = 0

    def __enter__(self) -> Self:
        self.target.mkdir(parents=True, exist_ok=True)
        existing = sorted(p.name for p in self.target.iterdir() if self._is_chunk(p.name))
        if existing:
            path = self.target / existing[0]
            raise RunConflict(f"{path} exists already; choose another OUT folder or remove the old chunks")
        self.hidden = Path(tempfile.mkdtemp(prefix=f".{self.stem}-split-", dir=self.target))
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.hidden, ignore_errors=True)

    def _is_chunk(self, name: str) -> bool:
        number = name.removeprefix(f"{self.stem}-").split(".", 1)[0]
        return name.startswith(f"{self.stem}-") and number.isdecimal() and len(number) >= 5

    def next_path(self) -> Path:
        path = self.hidden / f"{self.stem}-{self._n_chunks:05d}{self.suffix}"
        self._n_chunks += 1
        return path

    def publish(self) -> list[Path]:
        """Give every chunk its final name without replacing anything."""
        # Numbers above 99,999 have more digits; padding all names alike keeps them sorted in order.
        n_digits = max(5, len(str(max(self._n_chunks - 1, 0))))
        published: list[Path] = []
        try:
            for i in range(self._n_chunks):
                final = self.target / f"{self.stem}-{i:0{n_digits}d}{self.suffix}"
                _rename_without_replacing(self.hidden / f"{self.stem}-{i:05d}{self.suffix}", final)
                published.append(final)
        except BaseException:
            for path in published:
                path.unlink()
            raise
        return published


def _rename_without_replacing(old: Path, new: Path) -> None:
    try:
        files.move(old, new)
    except FileExistsError:
        raise RunConflict(f"{new} appeared while it was being made; choose another OUT folder") from None


class _ChunkFile(Protocol):
    """A file that a chunk is written to."""

    def write(self, data: Any) -> object: ...
    def abort(self) -> object: ...
    def sync(self) -> None:
        """Finish the file and ensure that it is on disk."""


class _OpenChunk:
    """The chunk that is being written, with counts of it and of the whole split."""

    def __init__(
        self, folder: ChunkFolder, limit: ChunkLimit, result: SplitResult, create: Callable[[Path], _ChunkFile]
    ):
        self.folder, self.limit, self.result = folder, limit, result
        self.n_bytes = self.n_rows = 0
        self._create = create
        self._file: _ChunkFile | None = None

    def write(self, data: Any, n_bytes: int, n_rows: int) -> None:
        if self._file is None:
            self._file = self._create(self.folder.next_path())
        self._file.write(data)
        self.count(n_bytes, n_rows)

    def count(self, n_bytes: int, n_rows: int) -> None:
        self.n_bytes += n_bytes
        self.n_rows += n_rows
        self.result.n_bytes += n_bytes
        self.result.n_rows += n_rows

    def close(self) -> None:
        """Sync the chunk; the next write begins another one."""
        if self._file is not None:
            self._file.sync()
            self.result.n_oversize += self.n_bytes > self.limit.n_bytes
            self._file, self.n_bytes, self.n_rows = None, 0, 0

    def abort(self) -> None:
        if self._file is not None:
            self._file.abort()


# -- lines ------------------------------------------------------------------------------------------------------------
def _split_lines(source: Path, folder: ChunkFolder, limit: ChunkLimit, codec: str | None) -> SplitResult:
    from tamis.formats.compression.source import StreamFault
    from tamis.formats.compression.streams import StreamReader

    result = SplitResult()
    with StreamReader.open(source) as reader, _LineSplitter(folder, limit, codec, result) as splitter:
        try:
            while block := reader.read(_READ_BYTES):
                splitter.feed(block)
        except StreamFault as exc:
            result.faults.append(f"{exc.reason}; nothing after decoded byte {exc.decoded_offset:,} can be read")
        splitter.finish()
    result.paths = folder.publish()
    return result


class _LineChunk:
    def __init__(self, path: Path, codec: str | None) -> None:
        from tamis.formats.compression.streams import StreamWriter

        self._stream = StreamWriter(path, codec)
        self.write, self.abort = self._stream.write, self._stream.abort

    def sync(self) -> None:
        self._stream.finish()
        os.fsync(self._stream.fileno())
        self._stream.close()


class _LineSplitter:
    """Distributes lines over chunks; a line is `pending` until its end is read or it cannot fit the open chunk."""

    def __init__(self, folder: ChunkFolder, limit: ChunkLimit, codec: str | None, result: SplitResult) -> None:
        self.limit = limit
        self._chunk = _OpenChunk(folder, limit, result, lambda path: _LineChunk(path, codec))
        self._line_is_open = False  # the open chunk ends inside a line that has it to itself
        # In the folder of the chunks, not in the default one: /tmp may be memory.
        self._pending: IO[bytes] = tempfile.SpooledTemporaryFile(_PENDING_BYTES, dir=str(folder.hidden))  # noqa: SIM115
        self._n_pending = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pending.close()
        self._chunk.abort()

    def feed(self, block: bytes) -> None:
        start = 0
        while start < len(block):
            if self._line_is_open or self._n_pending:
                start = self._feed_part(block, start)
            elif (end := self._fitting(block, start)) > start:
                self._write(block[start:end], block.count(b"\n", start, end))
                start = end
            elif block.find(b"\n", start) >= 0 and self._chunk.n_bytes:
                self._chunk.close()
            else:
                start = self._feed_part(block, start)

    def finish(self) -> None:
        if self._n_pending:
            self._flush_pending(1)
        elif self._line_is_open:
            self._count_row()
        self._chunk.close()

    def _fitting(self, block: bytes, start: int) -> int:
        """Return the end of the longest run of whole lines from `start` that fits into the open chunk."""
        end = block.rfind(b"\n", start, start + max(self.limit.n_bytes - self._chunk.n_bytes, 0)) + 1
        if end <= start:
            return start
        if self.limit.n_rows is not None:
            room = self.limit.n_rows - self._chunk.n_rows
            if block.count(b"\n", start, end) > room:
                end = start
                for _ in range(room):
                    end = block.index(b"\n", end) + 1
        return end

    def _feed_part(self, block: bytes, start: int) -> int:
        """Take the part of a line up to its end or that of the block, and return where it ends."""
        end = block.find(b"\n", start) + 1 or len(block)
        part, is_end_of_line = block[start:end], block[end - 1 : end] == b"\n"
        if self._line_is_open:
            self._write(part, 0)
            if is_end_of_line:
                self._count_row()
                self._chunk.close()
            return end
        self._pending.write(part)
        self._n_pending += len(part)
        is_full = self.limit.n_rows is not None and self._chunk.n_rows >= self.limit.n_rows
        if self._chunk.n_bytes and (is_full or self._chunk.n_bytes + self._n_pending > self.limit.n_bytes):
            self._chunk.close()
        if is_end_of_line:
            self._flush_pending(1)
        elif self._n_pending > self.limit.n_bytes:
            self._flush_pending(0)
            self._line_is_open = True
        return end

    def _flush_pending(self, n_rows: int) -> None:
        self._pending.seek(0)
        while piece := self._pending.read(_READ_BYTES):
            self._write(piece, 0)
        self._pending.seek(0)
        self._pending.truncate()
        self._n_pending = 0
        self._chunk.count(0, n_rows)

    def _count_row(self) -> None:
        self._chunk.count(0, 1)
        self._line_is_open = False

    def _write(self, data: bytes, n_rows: int) -> None:
        self._chunk.write(data, len(data), n_rows)


# -- rows -------------------------------------------------------------------------------------------------------------
def _split_rows(source: Path, folder: ChunkFolder, limit: ChunkLimit, compress: str | None) -> SplitResult:
    """Split all readable rows into chunks, in order.

    Rows after a corrupt page are skipped up to the next row group and reported.
    """
    from tamis.formats.base import RowsFault
    from tamis.formats.parquet.format import describe, iter_rows

    if compress is not None and compress not in _PARQUET_CODECS:
        raise UsageError(f"--compress: Parquet files can use {', '.join(_PARQUET_CODECS)}, got {compress!r}")
    info = describe(source)
    schema, codec = _parquet_layout(source)
    codec = _PARQUET_CODECS[compress] if compress else codec
    result = SplitResult(unit="row")
    chunk = _OpenChunk(folder, limit, result, lambda path: _RowFile(path, schema, codec))
    try:
        row = 0
        while row < info.n_rows:
            try:
                for _, table in iter_rows(source, row, info.n_rows):
                    _feed_rows(chunk, table.cast(schema))
                break
            except RowsFault as exc:
                result.faults.append(f"rows {exc.row:,} to {exc.next_row - 1:,} cannot be read ({exc.reason})")
                row = exc.next_row
        chunk.close()
    finally:
        chunk.abort()
    result.paths = folder.publish()
    return result


def _parquet_layout(source: Path) -> tuple[pa.Schema, str]:
    """Return the schema to write and the codec of the first column chunk.

    Dictionary columns get the type of their values; all other columns keep theirs.
    """
    from tamis.formats.parquet.format import open_file

    with open_file(source) as file:
        schema, metadata = file.schema_arrow, file.metadata
        has_columns = metadata.num_row_groups and metadata.num_columns
        codec = metadata.row_group(0).column(0).compression if has_columns else "ZSTD"
    fields = [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema]
    return pa.schema(fields, metadata=schema.metadata), "none" if codec == "UNCOMPRESSED" else codec.lower()


class _RowFile:
    def __init__(self, path: Path, schema: pa.Schema, codec: str) -> None:
        from tamis.formats.parquet.format import TableWriter

        self._path, self._writer = path, TableWriter(path, schema, codec)
        self.write, self.abort = self._writer.write, self._writer.abort

    def sync(self) -> None:
        self._writer.close()
        with open(self._path, "rb") as file:
            os.fsync(file.fileno())


def _feed_rows(chunk: _OpenChunk, table: pa.Table) -> None:
    while table.num_rows:
        n_rows = _fitting_rows(chunk, table)
        if n_rows == 0 and chunk.n_rows:
            chunk.close()
            continue
        part = table.slice(0, max(n_rows, 1))
        chunk.write(part, part.nbytes, part.num_rows)
        table = table.slice(max(n_rows, 1))


def _fitting_rows(chunk: _OpenChunk, table: pa.Table) -> int:
    """Return the largest number of leading rows of `table` that fits into the open chunk."""
    limit = chunk.limit
    room_bytes = limit.n_bytes - chunk.n_bytes
    high = table.num_rows if limit.n_rows is None else min(table.num_rows, limit.n_rows - chunk.n_rows)
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        if table.slice(0, middle).nbytes <= room_bytes:
            low = middle
        else:
            high = middle - 1
    return low

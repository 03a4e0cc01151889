"""`tamis split`: one large file into chunks of a size, at record boundaries, streaming.

JSONL is cut between lines and otherwise copied byte for byte: the decoded chunks put together are the decoded input. Parquet
is cut between rows. All chunks are written under a hidden folder and get their names together at the end, so a chunk is
never seen half written and a set of chunks never looks complete when it is not.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated

from tamis.cli.data.split_chunks import Chunks, Done, Limit, OpenChunk
from tamis.cli.parsing.arguments import Argument, Option
from tamis.errors import Incomplete, TamisError, UsageError
from tamis.formats.compression.codecs import CODECS, NAMES_TEXT, SUFFIXES_TEXT, codec_of, strip_codec

JSONL_SUFFIXES = (".jsonl", ".json", ".ndjson")
_READ_BYTES = 1 << 20
# The beginning of a line whose end is not read yet waits in memory up to here, then in a temporary file.
_PENDING_BYTES = 8 << 20


def split(
    source: Annotated[
        Path, Argument(metavar="IN", help=f"A .jsonl/.json/.ndjson file (plain, {SUFFIXES_TEXT}) or .parquet.")
    ],
    target: Annotated[
        Path, Argument(metavar="OUT", help="The folder for the chunks; it is created if it does not exist.")
    ],
    size: Annotated[
        str, Option(help="Largest size of a chunk, measured uncompressed. MB = 10^6, MiB = 2^20.")
    ] = "128MB",
    rows: Annotated[int | None, Option(min=1, help="Write at most so many records into a chunk.")] = None,
    compress: Annotated[
        str | None, Option(help=f"Compression of the chunks: {NAMES_TEXT} or none. Default: as the input.")
    ] = None,
) -> None:
    """Split one large file into smaller ones, between records.

    Lines are copied byte for byte; a record larger than the size gets a chunk of its own.

    Existing files are never overwritten. Tamis itself needs no splitting: this is for other tools and for moving data.

    Example: tamis split big.jsonl.gz chunks/ --size 256MB
    """
    from tamis.cli.terminal.show import count, print_lines
    from tamis.sizes import format_size, parse_size

    limit = Limit(parse_size(size, "--size"), rows)
    with _os_errors(source, target):
        done = split_file(source, target, limit, compress)
    lines = [f"{count(len(done.paths), 'chunk')}, {count(done.n_rows, done.unit)}, {format_size(done.n_bytes)} decoded"]
    if done.paths:
        lines.append(f"{done.paths[0]}" + (f" ... {done.paths[-1].name}" if len(done.paths) > 1 else ""))
    if done.n_oversize:
        lines.append(f"{count(done.n_oversize, 'chunk')} larger than --size: a single record does not fit into it")
    print_lines(lines)
    if done.faults:
        more = f" (and {len(done.faults) - 1} more)" if len(done.faults) > 1 else ""
        raise Incomplete(
            f"{source} is damaged: {done.faults[0]}{more}; the chunks hold everything else, restore the file for the rest"
        )


def split_file(source: Path, target: Path, limit: Limit, compress: str | None = None) -> Done:
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
        with Chunks(target, plain.stem, plain.suffix + (f".{codec}" if codec else "")) as chunks:
            return _split_lines(source, chunks, limit, codec)
    if source.suffix.lower() == ".parquet":
        from tamis.cli.data.split_parquet import split_rows

        with Chunks(target, source.stem, ".parquet") as chunks:
            return split_rows(source, chunks, limit, compress)
    raise UsageError(
        f"{source}: cannot tell its format; expected a name that ends in {', '.join(JSONL_SUFFIXES)} (+ .gz, ...) or .parquet"
    )


def _split_lines(source: Path, chunks: Chunks, limit: Limit, codec: str | None) -> Done:
    from tamis.formats.compression.source import StreamFault
    from tamis.formats.compression.streams import StreamReader

    done = Done()
    with StreamReader.open(source) as reader, _LineWriter(chunks, limit, codec, done) as writer:
        try:
            while block := reader.read(_READ_BYTES):
                writer.feed(block)
        except StreamFault as exc:
            done.faults.append(f"{exc.reason}; nothing after decoded byte {exc.decoded_offset:,} can be read")
        writer.finish()
    done.paths = chunks.publish()
    return done


class _LineWriter(OpenChunk):
    """Distributes lines over chunks. A line is `pending` until its end is read or it is known not to fit the open chunk."""

    def __init__(self, chunks: Chunks, limit: Limit, codec: str | None, done: Done) -> None:
        super().__init__(chunks, limit, done)
        self.codec = codec
        self._line_is_open = False  # the open chunk ends inside a line that has it to itself
        # Beside the chunks and not in the default folder: /tmp may be memory.
        self._pending: IO[bytes] = tempfile.SpooledTemporaryFile(_PENDING_BYTES, dir=str(chunks.hidden))  # noqa: SIM115
        self._n_pending = 0

    def __exit__(self, *_: object) -> None:
        self._pending.close()
        super().__exit__()

    def feed(self, block: bytes) -> None:
        at = 0
        while at < len(block):
            if self._line_is_open or self._n_pending:
                end = block.find(b"\n", at) + 1 or len(block)
                self._part_of_line(block[at:end], ends=block[end - 1 : end] == b"\n")
                at = end
            else:
                end = self._fitting(block, at)
                if end > at:
                    self._write(block[at:end], block.count(b"\n", at, end))
                    at = end
                elif block.find(b"\n", at) >= 0 and self._n_bytes:
                    self.close_chunk()
                else:
                    end = block.find(b"\n", at) + 1 or len(block)
                    self._part_of_line(block[at:end], ends=block[end - 1 : end] == b"\n")
                    at = end

    def finish(self) -> None:
        if self._n_pending:
            self._flush_pending(1)
        elif self._line_is_open:
            self._count_row()
        self.close_chunk()

    def _fitting(self, block: bytes, at: int) -> int:
        """Return the end of the longest run of whole lines from `at` that fits into the open chunk."""
        end = block.rfind(b"\n", at, at + max(self.limit.n_bytes - self._n_bytes, 0)) + 1
        if end <= at:
            return at
        if self.limit.n_rows is not None and block.count(b"\n", at, end) > (room := self.limit.n_rows - self._n_rows):
            end = at
            for _ in range(room):
                end = block.index(b"\n", end) + 1
        return end

    def _part_of_line(self, part: bytes, ends: bool) -> None:
        if self._line_is_open:
            self._write(part, 0)
            if ends:
                self._count_row()
                self.close_chunk()
            return
        self._pending.write(part)
        self._n_pending += len(part)
        is_full = self.limit.n_rows is not None and self._n_rows >= self.limit.n_rows
        if self._n_bytes and (is_full or self._n_bytes + self._n_pending > self.limit.n_bytes):
            self.close_chunk()
        if ends:
            self._flush_pending(1)
        elif self._n_pending > self.limit.n_bytes:
            self._flush_pending(0)
            self._line_is_open = True

    def _flush_pending(self, n_rows: int) -> None:
        self._pending.seek(0)
        while piece := self._pending.read(_READ_BYTES):
            self._write(piece, 0)
        self._pending.seek(0)
        self._pending.truncate()
        self._n_pending = 0
        self._count(0, n_rows)

    def _count_row(self) -> None:
        self._count(0, 1)
        self._line_is_open = False

    def _write(self, data: bytes, n_rows: int) -> None:
        from tamis.formats.compression.streams import StreamWriter

        if self._out is None:
            self._out = StreamWriter(self.chunks.next_path(), self.codec)
        self._out.write(data)
        self._count(len(data), n_rows)

    def _sync(self) -> None:
        self._out.finish()
        os.fsync(self._out.fileno())
        self._out.close()


@contextmanager
def _os_errors(source: Path, target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        where = exc.filename or target
        raise TamisError(
            f"{where}: {exc.strerror or exc}; nothing was left in {target}, fix this and run it again"
        ) from exc

"""The protocols that the module of a format implements, and the types that they exchange.

There are three kinds. A format of rows (`TableFormat`) has files that hold tables and are read by ranges of rows:
Parquet, Arrow, one text per file. A format of lines (`LineFormat`) has files of records, each followed by a line feed,
which can be entered and cut anywhere: JSONL. A format of records (`RecordFormat`) has files that can only be read from
their beginning, as each record says where the next one is: WARC. registry.py lists the formats.

See also: table_files.py (parts of several formats of rows), jsonl/ranges.py and compression/ (lines and decompression,
the same for all formats of lines).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol

import numpy as np

from tamis._dataclasses import dataclass
from tamis.errors import FormatError
from tamis.tasks import DocumentBatch, Origin

if TYPE_CHECKING:
    import pyarrow as pa

    from tamis.formats.jsonl.file_spans import FileSpans
    from tamis.formats.record_frames import RecordFrame

Array = np.ndarray[Any, Any]

BATCH_BYTES = 8 * 2**20
MAX_BATCH_ROWS = 2**17


class TableFormat(Protocol):
    """The module of a format of rows."""

    TableWriter: Any
    """Called with (path, schema, compression=...); has write(table), close() -> (rows, bytes), abort().

    A context manager. A format that is only read has None.
    """

    def describe(self, path: str) -> TableInfo:
        """Return the rows and row groups of a file without decoding any.

        Raises FormatError if the file is of another format, or cannot be read at all.
        """
        ...

    def read_schema(self, path: str) -> pa.Schema:
        """Return the columns as the file declares them, with metadata.

        Raises as `describe` does, or errors of Arrow.
        """
        ...

    def iter_rows(
        self,
        path: str,
        first_row: int,
        end_row: int,
        columns: Sequence[str] | None = None,
        batch_bytes: int = BATCH_BYTES,
        max_rows: int = MAX_BATCH_ROWS,
    ) -> Iterator[tuple[int, pa.Table]]:
        """Yield (number of the first row, table) for exactly these rows, with plain types.

        Tables have about `batch_bytes`; see `table_files.plain_types`. Raises RowsFault where rows cannot be decoded,
        MemoryError where there is no memory.
        """
        ...


class RowsFault(FormatError):
    """Decoding stopped at absolute row `row`; every row before it was delivered.

    `next_row` is where reading may resume: the beginning of the next row group (or the end of the file).
    """

    def __init__(self, row: int, reason: str, next_row: int) -> None:
        super().__init__(f"decoding stopped at row {row}: {reason}; rows {row} to {next_row - 1} cannot be read")
        self.row, self.reason, self.next_row = row, reason, next_row

    def __reduce__(self) -> tuple[type[RowsFault], tuple[int, str, int]]:
        return type(self), (self.row, self.reason, self.next_row)


class RowGroup(NamedTuple):
    """Neighbouring rows that a file stores together, which is where reading can start."""

    first_row: int
    n_rows: int
    estimated_bytes: int
    """Size of the rows as the file declares it: decompressed, but still encoded.

    Decoded, columns of dictionaries may take many times it.
    """


class TableInfo(NamedTuple):
    n_rows: int
    row_groups: list[RowGroup]
    columns: list[tuple[str, str]]
    """(name, Arrow type) as the file declares them."""
    file_bytes: int

    @property
    def estimated_bytes(self) -> int:
        return sum(group.estimated_bytes for group in self.row_groups)

    def cut_into_groups(self, first_row: int, end_row: int, ratio: float = 1.0) -> list[tuple[int, int, int]]:
        """Cut a range of rows between row groups: (first row, number of rows, bytes) of each part.

        `ratio`: decoded bytes for an estimated one.
        """
        parts = []
        for group in self.row_groups:
            first, end = max(group.first_row, first_row), min(group.first_row + group.n_rows, end_row)
            if first < end:
                parts.append((first, end - first, int(group.estimated_bytes * ratio) * (end - first) // group.n_rows))
        return parts

    def to_dict(self) -> dict[str, Any]:
        """Return a plain structure for JSON; `from_dict` is the inverse."""
        return {**self._asdict(), "row_groups": [group._asdict() for group in self.row_groups]}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> TableInfo:
        return cls(
            n_rows=plain["n_rows"],
            row_groups=[RowGroup(**group) for group in plain["row_groups"]],
            columns=[(name, kind) for name, kind in plain["columns"]],
            file_bytes=plain["file_bytes"],
        )


class LineBlock(Origin, Protocol):
    """The valid records of some bytes: an origin whose records are lines.

    `bad`: the others, as (start, end, reason) in these bytes.
    """

    start: Array
    end: Array
    n_blank: int
    bad: list[tuple[int, int, str]]
    is_open: bool
    """True if the bytes are in the input as they are, not compressed."""


class RecordScan(Protocol):
    """The frames of a file of records, in order."""

    file_bytes: int
    stored_offset: int
    """Bytes of the file, as stored, before the last frame."""
    can_begin_here: bool
    """True if a scan that begins at the last frame gives the same frames from there on."""

    def __iter__(self) -> Iterator[RecordFrame]: ...


@dataclass
class DecodedRecords:
    """Documents of frames: their columns, and of each its position and where its record is stored.

    `bad`: frames without a document that go to quarantine, with their positions; `skipped`: positions of the other
    records that are no documents, by reason.
    """

    table: pa.Table | None = None
    positions: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    bad: list[tuple[int, RecordFrame]] = field(default_factory=list)
    skipped: dict[str, list[int]] = field(default_factory=dict)


class RecordFormat(Protocol):
    """The module of a format of records."""

    def scan(self, raw: BinaryIO, path: str, max_record_bytes: int, offset: int = 0) -> RecordScan:
        """Return the frames of a file from byte `offset` on, which is 0 or where an earlier scan could begin again.

        `raw` must be able to seek. Larger records are refused without being held.
        """
        ...

    def decode(self, frames: Iterable[tuple[int, RecordFrame]], path: str, max_record_bytes: int) -> DecodedRecords:
        """Return the documents of frames, each with its position. `path`: the file, for columns that name it."""
        ...

    def first_documents(
        self, raw: BinaryIO, path: str, n_bytes: int, max_record_bytes: int
    ) -> tuple[DecodedRecords, RecordScan]:
        """Return the documents of about the first `n_bytes`, and the scan as far as it went."""
        ...

    def read_schema(self, path: str) -> pa.Schema:
        """Return the columns of the documents."""
        ...


@dataclass
class WrittenLines:
    """Lines as pieces to be written one after the other; of every line its hash and its bytes without the line feed."""

    pieces: Iterable[Array | memoryview]
    hashes: tuple[Array, Array]
    lengths: Array


class LineFormat(Protocol):
    """The module of a format of lines."""

    def parse(self, buf: Array, keys: Sequence[str] = (), max_record_bytes: int = 1 << 62) -> LineBlock:
        """Parse the records in a buffer.

        `keys`: fields that will be requested.
        """
        ...

    def parse_valid(self, buf: Array, max_record_bytes: int = 1 << 62) -> LineBlock:
        """Parse a buffer in which an earlier pass saw only valid records.

        Like `parse`, but the contents of records are parsed only on request.
        """
        ...

    def from_index(self, stored: FileSpans, start: Array, end: Array, identity: tuple[Array, Array]) -> LineBlock:
        """Return the block of records that an earlier pass located and hashed, each followed by a line feed.

        Their bytes are read when a field is requested.
        """
        ...

    def written_lines(self, batch: DocumentBatch) -> WrittenLines:
        """Return the documents of a batch as lines; unmodified records are written byte for byte."""
        ...

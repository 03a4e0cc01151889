"""Pieces of files and units of work: plain data that travels between supervisor, workers and commit log.

A piece is a range of one file in that file's own coordinate: bytes of a plain file, decoded bytes of a compressed stream,
rows of a Parquet file. A unit is what one worker does at a time: some pieces, taken through one segment of stages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

TO_END = 1 << 62
"""`end` of a piece that goes to the end of its file, wherever that is."""
MIN_ROWS_BYTES = 1 << 20
"""Rows of a Parquet file are not cut into partitions smaller than this, however small blocks are: opening the file costs more."""


class Kind(StrEnum):
    BYTES = "bytes"  # a range of a plain JSONL file
    STREAM = "stream"  # a compressed JSONL file, decoded from its start by the worker itself
    ROWS = "rows"  # a range of rows of a Parquet file
    BLOCK = "block"  # decoded bytes of a stream, in a scratch file that a feeder wrote
    ROW_BLOCK = "row_block"  # rows of a Parquet file, in a scratch file that a feeder wrote
    FILES = "files"  # whole files, for a reader that a user wrote
    START = "start"  # nothing: for a source stage that a user wrote


class Mode(StrEnum):
    RUN = "run"  # read, run the segment's stages, write
    FEED = "feed"  # decode a file that cannot be entered in the middle, hand out blocks
    QUARANTINE = "quarantine"  # set the records aside with a reason, without running any stage
    RECAST = "recast"  # rewrite a committed Parquet file with the schema of the whole run


@dataclass(frozen=True)
class Piece:
    """A range of one file: from `start` up to `end`, in the coordinate that `kind` says."""

    file: int
    kind: Kind
    path: str
    start: int
    end: int = TO_END
    base: int = 0  # place (in the file's coordinate) of the first byte or row of a block file
    source: str = ""  # the input that a block file was made from
    check: str = ""  # checksum of a block file

    @property
    def input_path(self) -> str:
        """The user's file, which is what messages and quarantine entries name (a block file is gone by then)."""
        return self.source or self.path


@dataclass(frozen=True)
class Recast:
    """The schemas of files to `join` into one; or one file to write again: its `path`, the `schema` for it, its `old` name."""

    join: list[str] = field(default_factory=list)
    schema: str = ""
    path: str = ""
    old: str = ""


@dataclass
class Unit:
    """What one worker is given at a time. Made by the supervisor, sent with Assign (messages.py), tried again or cut by recovery.py."""

    id: int
    pieces: list[Piece]
    segment: int = 0
    mode: Mode = Mode.RUN
    partition: int = -1  # the unit of segment 0 that it comes from: all units of a partition are committed together
    step: int = 0  # which sampling step
    alone: bool = False
    n_failures: int = 0
    last_error: str = ""
    reason: str = ""  # for Mode.QUARANTINE
    stage: str = ""  # for Mode.QUARANTINE: where it failed
    block_bytes: int = 0  # largest decoded size: a unit that turns out larger reports that instead of running
    handover: str = ""  # scratch file with the batch, for segments after the first
    handover_check: str = ""  # its checksum
    handover_rows: tuple[int, int] = (0, TO_END)
    recast: Recast | None = None  # for Mode.RECAST
    describe: bool = False  # tell the row groups of its file instead of reading it
    probe: bool = False  # measure what each stage keeps: its worker is under suspicion
    max_rows: int = 0  # that a feeder of rows reads at once; 0: as many as usual
    # what the worker told about the records it read, and where to cut them in two
    n_records: int = -1
    cut: int = -1
    decoded_bytes: int = -1
    largest_record: int = 0
    # what has been tried and learned, which the supervisor alone needs
    n_kills: int = 0  # for others' sake
    n_own_failures: int = 0  # n_failures counts those of the whole that it was cut from, too
    is_patient: bool = False  # a feeder that waits for an empty queue: it must decode its file again up to here
    need_bytes: int = 0  # the cap that a feeder needs, as far as one knows
    compressed_bytes: int = 0  # of its file that a feeder has read
    input_bytes: int = 0  # of the input that it comes from, for segments after the first

    def __post_init__(self) -> None:
        if self.partition < 0:
            self.partition = self.id

    @property
    def known_bytes(self) -> int:
        return sum(p.end - p.start for p in self.pieces if p.end != TO_END and p.kind in (Kind.BYTES, Kind.BLOCK))

    @property
    def size_bytes(self) -> int:
        """Decoded bytes, as far as anybody knows."""
        return self.decoded_bytes if self.decoded_bytes >= 0 else self.known_bytes or self.block_bytes

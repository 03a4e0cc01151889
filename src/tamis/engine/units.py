"""Pieces of files and units of work, and how they are cut: plain data, shared by supervisor, workers and commit log.

A piece is a range of one file in that file's own coordinate: bytes of a plain file, decoded bytes of a compressed
stream, rows of a file (Parquet, Arrow). A unit is what one worker does at a time: some pieces, taken through one
segment of stages.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import NamedTuple

from tamis._dataclasses import dataclass

TO_END = 1 << 62
"""`end` of a piece that goes to the end of its file, wherever that is."""
MIN_ROWS_BYTES = 1 << 20
"""A file of rows is not cut into partitions smaller than this, however small blocks are: opening the file
costs more.
"""


class PieceKind(StrEnum):
    BYTES = "bytes"  # a range of a plain JSONL file
    STREAM = "stream"  # a compressed JSONL file, decoded from its start by the worker itself
    ROWS = "rows"  # a range of rows of a file
    BLOCK = "block"  # decoded bytes of a stream, in a scratch file that a feeder wrote
    ROW_BLOCK = "row_block"  # rows of a file, in a scratch file that a feeder wrote
    KEPT = "kept"  # records of a file that an earlier pass kept
    FILES = "files"  # whole files, for a reader that a user wrote
    START = "start"  # nothing: for a source stage that a user wrote


class Mode(StrEnum):
    RUN = "run"  # read, run the segment's stages, write
    FEED = "feed"  # decode a file that cannot be entered in the middle, hand out blocks
    QUARANTINE = "quarantine"  # set the records aside with a reason, without running any stage
    REWRITE = "rewrite"  # write committed output files again: with the schema of the whole run, or of another size


class Piece(NamedTuple):
    """A range of one file: from `start` up to `end`, in the coordinate that `kind` says."""

    file: int
    kind: PieceKind
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
class Regroup:
    """Other files of the same records, which are in the next `n_old` files of a `Rewrite`.

    `cuts`: where another file begins, in bytes of the records before compression. `names`: of the new files.
    `partition_by`: write a file for each value of these fields instead; `partition`: the values that all documents
    have. The others are of the old files together.
    """

    n_old: int
    cuts: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    n_rows: int = 0
    content: str = ""
    data_bytes: int = 0
    schema: str | None = None
    observed: list[str] = field(default_factory=list)
    partition_by: list[str] = field(default_factory=list)
    partition: str | None = None


@dataclass(frozen=True)
class Rewrite:
    """Work on what a run has committed.

    `schemas`: of files, to be joined into one. `samples`: a file of samples to be described. Else output files to write
    again, one after the other: their `paths` and `old` names;
    `union`: the schema and facts of the run, if they are to have these.
    """

    schemas: list[str] = field(default_factory=list)
    union: str = ""
    paths: list[str] = field(default_factory=list)
    old: list[str] = field(default_factory=list)
    regroups: list[Regroup] = field(default_factory=list)
    samples: str = ""

    @property
    def renames(self) -> bool:
        """True if files only get other names: nothing is cut or joined."""
        return bool(self.regroups) and all(
            r.n_old == len(r.names) == 1 and not r.cuts and not r.partition_by for r in self.regroups
        )

    @property
    def names(self) -> list[str]:
        """The names of the new files, as far as they are decided."""
        return [name for regroup in self.regroups for name in regroup.names]


@dataclass
class Unit:
    """The work that one worker is given at a time.

    Made by the supervisor, sent with Assign (messages.py), retried or cut as retry_policy.py decides.
    """

    id: int
    pieces: list[Piece]
    segment: int = 0
    mode: Mode = Mode.RUN
    partition: int = -1  # the unit of segment 0 that it comes from: all units of a partition are committed together
    sampling_step: int = 0
    alone: bool = False
    n_failures: int = 0
    last_error: str = ""
    reason: str = ""  # for Mode.QUARANTINE
    stage: str = ""  # for Mode.QUARANTINE: where it failed
    max_bytes: int = 0  # decoded (a feed: of each block); a unit that turns out larger reports that instead of running
    handover: str = ""  # scratch file with the batch, for segments after the first
    handover_check: str = ""  # its checksum
    handover_rows: tuple[int, int] = (0, TO_END)
    rewrite: Rewrite | None = None  # for Mode.REWRITE
    describe: bool = False  # report the row groups of its file instead of reading it
    probe: bool = False  # measure what each stage keeps: its worker is under suspicion
    trial: str = ""  # try this stage on documents one by one first: it has failed on everything so far
    max_rows: int = 0  # that a feeder of rows reads at once; 0: as many as usual
    # what the worker reported about the records it read, and where to cut them in two
    n_records: int = -1
    cut: int = -1
    decoded_bytes: int = -1
    largest_record: int = 0
    # what has been tried and learned, which the supervisor alone needs
    n_kills: int = 0  # for others' sake
    n_own_failures: int = 0  # n_failures counts those of the whole that it was cut from, too
    has_failed_clean: bool = False  # in a worker in which no stage had raised before
    is_patient: bool = False  # a feeder that waits for an empty queue: it must decode its file again up to here
    need_bytes: int = 0  # the cap that a feeder needs, as far as is known
    compressed_bytes: int = 0  # of its file that a feeder has read
    input_bytes: int = 0  # of the input that it comes from, for segments after the first

    def __post_init__(self) -> None:
        if self.partition < 0:
            self.partition = self.id

    @property
    def scratch_paths(self) -> list[str]:
        """The scratch files that it reads."""
        if self.segment > 0:
            return [self.handover]
        return [p.path for p in self.pieces if p.kind in (PieceKind.BLOCK, PieceKind.ROW_BLOCK)]

    @property
    def known_bytes(self) -> int:
        return sum(
            p.end - p.start for p in self.pieces if p.end != TO_END and p.kind in (PieceKind.BYTES, PieceKind.BLOCK)
        )

    @property
    def size_bytes(self) -> int:
        """Decoded bytes, or an upper bound where they are unknown."""
        return self.decoded_bytes if self.decoded_bytes >= 0 else self.known_bytes or self.max_bytes


class Half(NamedTuple):
    """One of the two parts that a unit is cut into."""

    pieces: list[Piece]
    rows: tuple[int, int]


def split_pieces(unit: Unit) -> tuple[list[Piece], list[Piece]] | None:
    """Split the unit's pieces in two halves.

    Returns None if the unit cannot be cut (one record, or nothing known to cut by).
    """
    pieces = unit.pieces
    if len(pieces) > 1:
        half = len(pieces) // 2
        return pieces[:half], pieces[half:]
    piece = pieces[0]
    if unit.n_records == 1 or piece.kind in (PieceKind.FILES, PieceKind.START, PieceKind.STREAM):
        return None  # a stream cannot be entered in the middle: it is fed instead (retry_policy.py)
    cut = unit.cut
    if not piece.start < cut < piece.end:
        if piece.end == TO_END or piece.end - piece.start < 2 or unit.n_records >= 0:
            return None
        cut = (piece.start + piece.end) // 2
    return [piece._replace(end=cut)], [piece._replace(start=cut)]


def can_split(unit: Unit) -> bool:
    """Return True if the unit can be cut in two."""
    if unit.segment > 0:
        start, end = unit.handover_rows
        return end - start > 1
    return split_pieces(unit) is not None


def halves(unit: Unit) -> list[Half]:
    """Split the unit in two, by rows of its handover file or by its pieces."""
    if unit.segment > 0:
        start, end = unit.handover_rows
        middle = unit.cut if start < unit.cut < end else (start + end) // 2
        return [Half(unit.pieces, (middle, end)), Half(unit.pieces, (start, middle))]
    cut = split_pieces(unit)
    assert cut is not None
    return [Half(cut[1], unit.handover_rows), Half(cut[0], unit.handover_rows)]


def remaining_pieces(pieces: list[Piece], done: Piece) -> list[Piece]:
    """Return what a feeder still has to hand out after the block `done`."""
    rest = []
    for piece in pieces:
        if done.start > piece.start:
            rest.append(piece._replace(end=min(piece.end, done.start)))
        if done.end < piece.end:
            rest.append(piece._replace(start=max(piece.start, done.end)))
    return [p for p in rest if p.start < p.end]


def part_suffix(index: int) -> str:
    """Return what follows the stem of a name in further files of the same partition; they sort after the first.

    >>> sorted(f"part-7{part_suffix(index)}.jsonl" for index in (10, 2, 0))
    ['part-7.jsonl', 'part-7_000002.jsonl', 'part-7_000010.jsonl']
    """
    return f"_{index:06d}" if index else ""

"""Messages between supervisor and workers, typed; wire.py encodes and decodes them.

To a worker (`Order`): Assign a unit, More (to a feeder: the next block), Trim, Exit.
From a worker (`WorkerMessage`): Ready; about its unit SetUp, Read, Block; and at its end one of Done, StreamTooLarge,
RowsTooLarge, Failure.

Messages about a unit carry its number and its fence. The code that makes them in the worker leaves these out; the loop
fills them in (`about`). A message whose fence is not the one of the worker's unit comes too late, and is ignored.
"""

from __future__ import annotations

from dataclasses import field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from tamis._dataclasses import dataclass
from tamis.engine.ledger import Ledger
from tamis.engine.samples import SampleLimits
from tamis.engine.schema import CommittedFile, CoveredRange, FileKind
from tamis.engine.units import Piece, Unit
from tamis.engine.wire import kinds


# -- to a worker ------------------------------------------------------------------------------------------------------
class Assign(NamedTuple):
    """Work on this unit.

    `fence` is new with every assignment: a report that carries another one is of an earlier attempt.
    """

    unit: Unit
    fence: int
    samples: SampleLimits | None = None  # of those chosen so far; None: no samples are taken


class More(NamedTuple):
    """A feeder may make its next block, of this size (0: as before)."""

    block_bytes: int


@dataclass(frozen=True)
class Trim:
    """Give back what is only kept to be used again."""


@dataclass(frozen=True)
class Exit:
    """Tear down the stages and end."""


Order = Assign | More | Trim | Exit
ORDERS = kinds(Assign, More, Trim, Exit)


# -- parts of what a worker says --------------------------------------------------------------------------------------
class Vitals(NamedTuple):
    """Memory that a worker holds between two units, and figures of its allocators (memory/attribution.py)."""

    floor_bytes: int = 0
    shared_bytes: int = 0
    file_bytes: int = 0
    data_bytes: int = 0
    python_blocks: int = 0
    arrow_bytes: int = 0
    malloc_bytes: int | None = None  # None where the C library does not report it
    n_descriptors: int = 0  # open files, sockets, ...
    max_descriptors: int = 0  # that the process may have
    n_threads: int = 0

    @property
    def level_bytes(self) -> int:
        """Private memory, and shared memory, which no limit of a process counts."""
        return self.floor_bytes + self.shared_bytes


@dataclass(frozen=True)
class StagedFile:
    """A file that a unit wrote and that is to be committed. What is None is unknown for files of its kind."""

    path: str
    kind: FileKind
    rows: int = 0
    n_bytes: int | None = None
    extension: str = "jsonl"
    content: str | None = None  # sum of the content hashes of its records
    schema: str | None = None
    observed: str | None = None  # facts about values that a schema does not hold
    check: str | None = None
    joins: bool = False  # can be followed by the bytes of another one
    belongs: bool = False  # to the output before it, whose name it shares
    at: int | None = None  # where in its input file the first record of it was, if not where the unit begins
    place: tuple[int, int, int] | None = None  # of its first document: file, start, row of the handover
    name: str = ""  # of an output that was sent to a bucket already
    upload: tuple[str, str, list[str]] | None = None  # ... and what completes it (stores/uploads.py)
    data_bytes: int | None = None  # of its records before compression
    is_sized: bool = False
    partition: str | None = None  # values of `partition_by` that all of its documents have, as JSON

    def committed(self, name: str) -> CommittedFile:
        """Return the entry of the commit log for the file under its final name."""
        return CommittedFile(
            name,
            self.kind,
            self.rows,
            self.n_bytes,
            self.content,
            self.schema,
            self.observed,
            self.check,
            self.upload,
            self.data_bytes,
            self.is_sized,
            self.partition,
        )


class Handover(NamedTuple):
    """Batches for the next segment, in a scratch file."""

    path: str
    rows: int
    n_bytes: int
    check: str = ""


class StageUse(NamedTuple):
    """Resources that one stage took; counts are in the books. `in_bytes`: of the records that came in."""

    label: str
    in_bytes: int
    cpu_s: float
    peak_bytes: int
    n_descriptors: int = 0  # more open after it than before
    n_threads: int = 0


@dataclass(frozen=True)
class RetainedMemory:
    """Memory that a worker suspected of a leak keeps after a unit.

    By stage (label and counters), and in Python objects if they were measured.
    """

    stages: list[tuple[str, dict[str, int]]] = field(default_factory=list)
    python_bytes: int | None = None
    python_type: str = ""
    arrow_bytes: int = 0  # buffers that these objects pin
    arrow_type: str = ""
    variable: str = ""  # that gained most of both
    variable_bytes: int = 0


# -- from a worker ----------------------------------------------------------------------------------------------------
class Ready(NamedTuple):
    pid: int
    vitals: Vitals


@dataclass(frozen=True, kw_only=True)
class AboutUnit:
    """The unit and the attempt that a message is about."""

    unit: int = -1
    fence: int = -1


@dataclass(frozen=True)
class SetUp(AboutUnit):
    """The stages are set up: what they keep, and what that took at most."""

    retained_bytes: int
    peak_bytes: int


@dataclass(frozen=True)
class Read(AboutUnit):
    """Contents of a unit before stages run, and where to cut it if it fails."""

    n_records: int
    cut: int
    decoded_bytes: int = -1
    largest_record: int = 0


@dataclass(frozen=True)
class Block(AboutUnit):
    """A feeder has written a block of so many bytes, having read `compressed` bytes of its file so far."""

    piece: Piece
    n_bytes: int
    compressed: int


@dataclass(frozen=True)
class StreamTooLarge(AboutUnit):
    """A stream decodes to more than was thought: so many bytes after so many of the file."""

    file: int
    decoded_bytes: int
    compressed_bytes: int


@dataclass(frozen=True)
class RowsTooLarge(AboutUnit):
    """Rows decode to more than expected, or were to be described.

    `groups`: (first row, rows, decoded bytes) of each row group.
    """

    file: int
    groups: list[tuple[int, int, int]]
    n_rows: int
    whole: bool = True  # n_rows is where the file ends
    measured: bool = False  # the sizes are of rows that were read, not what the file declares


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Resources that an attempt at a unit took.

    `vitals`: after it, where the worker continues; `outside_bytes`: of its children and mappings.
    """

    peak_bytes: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    vitals: Vitals | None = None
    outside_bytes: int = 0
    setup_s: float = 0.0  # of these seconds

    @property
    def worked_s(self) -> float:
        """Without what setting up took, which the next unit does not."""
        return self.seconds - self.setup_s


@dataclass(frozen=True)
class Done(AboutUnit, Cost):
    """A unit is done: what it read, the books, and the files to commit."""

    n_records: int = 0
    decoded_bytes: int = 0
    largest_record: int = 0
    covered: list[CoveredRange] = field(default_factory=list)
    files: list[StagedFile] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    handover: Handover | None = None  # what the next segment gets
    schema: str = ""  # of a unit that joins schemas
    stages: list[StageUse] = field(default_factory=list)
    retained: RetainedMemory | None = None
    first_bad: str = ""  # the first record that was quarantined: location and reason
    reading_s: float = 0.0  # of the seconds, until its documents were read

    def facts(self) -> dict[str, Any]:
        """Return what the event log records of the unit."""
        floor_bytes = self.vitals.floor_bytes if self.vitals is not None else None
        names = ("unit", "n_records", "decoded_bytes", "largest_record", "peak_bytes", "seconds", "cpu_s")
        return {"floor_bytes": floor_bytes, **{name: getattr(self, name) for name in names}}

    @property
    def staged_paths(self) -> list[str]:
        """The files that were written for it, to be removed when it is discarded."""
        paths = [f.path for f in self.files if f.kind is not FileKind.LISTED]
        return [*paths, self.handover.path] if self.handover is not None else paths


class FailureKind(StrEnum):
    """Why a unit failed: decides what is done with it (supervisor/retry_policy.py)."""

    MEMORY = "memory"
    ERROR = "error"  # a stage raised
    SETUP = "setup"  # its setup() did
    DEVICE = "device"  # a GPU has no room for the stages
    DISK = "disk"
    INPUT = "input"  # not the records that an earlier pass read
    DESCRIPTORS = "descriptors"  # one more could not be had
    THREADS = "threads"
    # Of units whose worker died:
    TIMEOUT = "timeout"
    KILLED = "killed"
    REPLACED = "replaced"
    CRASH = "crash"


@dataclass(frozen=True)
class Failure(AboutUnit, Cost):
    """A unit failed: by an exception in the worker, or (supervisor/retry_policy.py) with the worker."""

    kind: FailureKind
    error: str = ""
    stage: str = ""
    trace: str = ""
    at: str = ""  # the line of the user's code that raised it
    requested_bytes: int = 0  # by the allocation that failed; 0: not known
    is_usage: bool = False  # a mistake in the call, not in a stage
    in_setup: bool = False
    n_failed_alone: int = 0  # documents that the stage also failed on one by one, where it failed on all that it got

    def facts(self) -> dict[str, Any]:
        """Return what the event log records of the failure."""
        names = ("unit", "kind", "stage", "error", "trace", "at", "peak_bytes")
        return {**{name: getattr(self, name) for name in names}, "requested_bytes": self.requested_bytes or None}


Report = Done | StreamTooLarge | RowsTooLarge | Failure
UnitMessage = SetUp | Read | Block | Report
WorkerMessage = Ready | UnitMessage
WORKER_MESSAGES = kinds(Ready, SetUp, Read, Block, Done, StreamTooLarge, RowsTooLarge, Failure)


def about(message: UnitMessage, unit: int, fence: int) -> UnitMessage:
    """Return the same message, labelled with its unit and attempt."""
    return replace(message, unit=unit, fence=fence)

"""Typed state of the supervisor: its configuration, workers, partitions under way, and the status of the run. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, field, replace
from enum import StrEnum, auto
from typing import NamedTuple

from tamis._dataclasses import dataclass
from tamis.engine.ledger import Ledger
from tamis.engine.messages import StagedFile, Vitals
from tamis.engine.schema import CoveredRange
from tamis.engine.units import Piece, Unit
from tamis.memory.leaks import N_IGNORED

FEEDER = -1
"""The segment of workers that run no stages but decode files into blocks."""
MIN_CAP_BYTES = 20_000_000


class KillReason(StrEnum):
    """Why the supervisor ends a worker; the text is part of the event log."""

    TIMEOUT = "timeout"
    OVER_CAP = "over its cap"
    PRESSURE = "memory pressure"
    REPLACED = "replaced"  # it makes room, or a fresh process takes its place
    STOPPING = "stopping"
    NODE_LOST = "its node is gone"


class FatalKind(StrEnum):
    """The cause that ended a run early; decides which error the caller raises."""

    BUDGET = "budget"
    STAGE = "stage"
    DISK = "disk"
    INPUT = "input"
    USAGE = "usage"
    WORKER = "worker"


class WorkerState(StrEnum):
    """State of a worker as far as it decides how an event about that worker is handled (`TRANSITIONS`)."""

    UNKNOWN = auto()  # not in the pool, or no longer
    STARTING = auto()  # its process has not reported that it is ready
    IDLE = auto()
    BUSY = auto()
    STALE = auto()  # the event is about an earlier attempt, not about what the worker is doing


class NodeSpec(NamedTuple):
    """A machine with its own budget: what `Config` says of one machine, where there are several."""

    id: int
    name: str
    budget_bytes: int
    pool_bytes: int
    worker_bytes: int
    n_slots: int
    shared_bytes: int = 8_000_000
    devices: tuple[str, ...] = ()
    fixed_workers: tuple[int | None, ...] = (None,)


@dataclass
class Config:
    """Resources and limits of the run. `pool_bytes` is the budget without everything that is not a worker."""

    budget_bytes: int
    pool_bytes: int
    worker_bytes: int  # what a worker holds before it does anything
    n_slots: int
    fixed_workers: list[int | None] = field(default_factory=lambda: [None])
    cpus: list[float] | None = None  # what one worker of each segment asks for
    gpus: list[float] | None = None  # ... of GPUs
    devices: list[str] = field(default_factory=list)  # GPUs that there are
    gpu_bytes: int = 0  # memory that the run may take of each of them; 0: all
    gpu_overflow: str = "quarantine"  # of a document that does not fit a device: "quarantine" it, or "cut" it
    mode: str = "streaming"
    max_partition_bytes: int = 32 << 20
    whole_file_bytes: int = 0  # larger files are cut where files are partitions of their own; 0: nowhere are they
    bounded_in_time: bool = True  # partitions of slow stages are smaller than that; not where the user chose a size
    expected_s: float = 0.0  # that a worker takes for a byte of the input, by earlier runs; 0: not known
    queue_bytes: int = 256 << 20
    patient_queue_bytes: int = 0  # what a feeder may fill that would have to start over; 0: as others
    timeout_s: float = 1800.0
    quarantine_share: float = 0.001
    quarantine_floor: int = 100
    fail_fast: bool | None = None  # the setting
    proven: set[str] = field(default_factory=set)  # labels of stages that have passed a document
    unsynced_bytes: int = 512 << 20
    usable: float = 1.0  # share of the budget that caps are granted up to
    has_setup: list[bool] | None = None  # by segment: whether a stage sets something up, which may take memory
    # Pages that a worker shares with others, of which its use counts a part: no fault of its own.
    shared_bytes: int = 8_000_000
    in_all: list[bool] | None = None  # by segment: `fixed_workers` are those of all nodes together, not of each
    nodes: list[NodeSpec] | None = None  # those that are there; None: this machine alone, with the figures above

    @property
    def largest_unit_bytes(self) -> int:
        return max(self.max_partition_bytes, self.whole_file_bytes)

    def ceiling(self, cap_bytes: int) -> int:
        """Return the use at which a worker with this cap is over it for certain, whatever the measuring error."""
        return int(cap_bytes * 1.02) + self.worker_bytes + self.shared_bytes


@dataclass
class Worker:
    """A worker process: what it is doing, what it was granted, and what it was last measured to hold."""

    id: int
    segment: int
    ready: bool = False
    unit: Unit | None = None
    fence: int = 0
    cap_bytes: int = 0
    since_s: float = 0.0
    used_bytes: int = 0
    kill_reason: KillReason | None = None
    is_blocked: bool = False  # a feeder that waits for room in the queue
    n_units: int = 0
    base_bytes: int = 0  # when it was ready: what it holds before it does anything
    base_data_bytes: int = 0  # ... in private mappings, touched or not: its limit is that plus its cap
    file_bytes: int = 0  # pages of files that it has mapped: of libraries, mostly
    retained_bytes: int = 0  # what it holds beyond that between units: models, libraries that a stage imported
    has_failed: bool = False  # a stage raised in it, and it went on
    was_alone: bool = False  # when it was killed: no other worker was busy
    first_floor: int = 0
    base_floor: int = 0  # when the first partitions, which warm it up, were over
    node: int = 0  # the machine that it is on
    vitals: Vitals | None = None  # after its last unit

    @property
    def is_idle(self) -> bool:
        """True if it is ready and has no unit."""
        return self.ready and self.unit is None

    @property
    def progressing(self) -> bool:
        """True if it works and will report; a feeder that waits for room in the queue will not."""
        return self.unit is not None and not self.is_blocked

    @property
    def dying(self) -> bool:
        return self.kill_reason is not None

    def note_floor(self, floor_bytes: int) -> int:
        """Note what is left after a unit's release; returns how far that has risen since the worker was warm."""
        self.first_floor = self.first_floor or floor_bytes
        if self.n_units <= N_IGNORED + 1:
            self.base_floor = floor_bytes
        return floor_bytes - self.base_floor

    def is_full(self, floor_bytes: int) -> bool:
        """Return True if the floor has risen by a quarter of the cap since the first unit."""
        return floor_bytes - self.first_floor > max(self.cap_bytes // 4, 16_000_000)

    def is_sparse(self, floor_bytes: int, data_bytes: int) -> bool:
        """Return True if the address space has grown far beyond what is used: its limit would be met for nothing."""
        return data_bytes - floor_bytes > self.cap_bytes // 2 + 200_000_000


@dataclass
class Partition:
    """Everything that comes from one unit of the first segment; committed as one."""

    first: Piece
    sampling_step: int
    open_units: int = 1
    n_done: int = 0
    covered: list[CoveredRange] = field(default_factory=list)
    files: list[StagedFile] = field(default_factory=list)
    parts: list[tuple[int, Ledger]] = field(default_factory=list)  # (segment, books)
    scratch: list[str] = field(default_factory=list)

    def add(self, unit: Unit, files: list[StagedFile]) -> None:
        """Add the files that a unit wrote.

        Each file gets the position of its first document, by which those of one partition are ordered.
        """
        first = unit.pieces[0] if unit.pieces else self.first  # a feeder has handed out all of its own
        if unit.segment == 0 and (not self.n_done or (first.file, first.start) < (self.first.file, self.first.start)):
            self.first = first
        position = (first.file, first.start, unit.handover_rows[0])
        self.files += [replace(f, place=position) for f in files]

    def counted(self) -> Counter[str]:
        """Return what its finished units have read and dropped so far."""
        return sum((counts_of(ledger) for _, ledger in self.parts), Counter())


def counts_of(ledger: Ledger) -> Counter[str]:
    """Return the counts of a ledger that are shown before they are committed."""
    return Counter(
        records=ledger.n_read,
        quarantined=ledger.quarantined.n,
        not_sampled=ledger.not_sampled.n,
        added=ledger.n_added,
        read_bytes=ledger.read_bytes,
        dropped=ledger.n_dropped,
    )


@dataclass
class Counters:
    """Events of one supervisor, counted for the run database and the report."""

    splits: int = 0
    retries: int = 0
    kills: int = 0
    crashes: int = 0
    memory_failures: int = 0
    recycled: int = 0
    committed: int = 0
    late: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


@dataclass
class RunState:
    """The state of the run: whether and why it ends early, and the documents that stages failed on."""

    stopping: str = ""
    fatal: str = ""
    fatal_kind: FatalKind | None = None
    infeasible: list[str] = field(default_factory=list)  # records and files that cannot be done in this run
    n_stage_failures: int = 0
    last_failure: str = "a stage"  # that a document was quarantined for
    first_failure: str = ""  # of a document: stage, error, location, line of code
    n_seen: int = 0  # records of units that are done, committed or not
    counters: Counters = field(default_factory=Counters)

    @property
    def is_ending(self) -> bool:
        return bool(self.stopping or self.fatal)

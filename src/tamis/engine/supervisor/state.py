"""What the supervisor keeps in mind: its configuration, its workers, and the partitions of work under way."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from tamis.engine.ledger import Ledger
from tamis.engine.messages import StagedFile, Vitals
from tamis.engine.supervisor.units import Piece, Unit
from tamis.memory.leaks import N_IGNORED

FEEDER = -1
MIN_CAP_BYTES = 20_000_000


@dataclass(frozen=True)
class NodeSpec:
    """A machine with a budget of its own: what `Config` says of one machine, where there are several."""

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
    """What the supervisor may use. `pool_bytes` is the budget without everything that is not a worker."""

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
    max_block_bytes: int = 32 << 20
    bounded_in_time: bool = True  # partitions of slow stages are smaller than that; not where the user chose a size
    expected_s: float = 0.0  # that a worker takes for a byte of the input, by earlier runs; 0: not known
    queue_bytes: int = 256 << 20
    patient_queue_bytes: int = 0  # what a feeder may fill that would have to start over; 0: as others
    timeout_s: float = 1800.0
    rate_limit: float = 0.001
    rate_floor: int = 100
    unsynced_bytes: int = 512 << 20
    usable: float = 1.0  # share of the budget that caps are granted up to
    has_setup: list[bool] | None = None  # by segment: whether a stage sets something up, which may take memory
    # Pages that a worker shares with others, of which its use counts a part: no fault of its own.
    shared_bytes: int = 8_000_000
    in_all: list[bool] | None = None  # by segment: `fixed_workers` are those of all nodes together, not of each
    nodes: list[NodeSpec] | None = None  # those that are there; None: this machine alone, with the figures above

    def ceiling(self, cap_bytes: int) -> int:
        """Return the use at which a worker with this cap is over it for certain, whatever the measuring error."""
        return int(cap_bytes * 1.02) + self.worker_bytes + self.shared_bytes


@dataclass
class Worker:
    id: int
    segment: int
    ready: bool = False
    unit: Unit | None = None
    fence: int = 0
    cap_bytes: int = 0
    since_s: float = 0.0
    used_bytes: int = 0
    why_killed: str = ""
    held: bool = False  # a feeder that waits for room in the queue
    n_units: int = 0
    base_bytes: int = 0  # when it was ready: what it holds before it does anything
    base_data_bytes: int = 0  # ... in private mappings, touched or not: its limit is that plus its cap
    file_bytes: int = 0  # pages of files that it has mapped: of libraries, mostly
    kept_bytes: int = 0  # what it holds beyond that between units: models, libraries that a stage imported
    was_alone: bool = False  # when it was killed: nobody else used memory
    first_floor: int = 0
    base_floor: int = 0  # when the first partitions, which warm it up, were over
    node: int = 0  # the machine that it is on
    vitals: Vitals | None = None  # after its last unit

    @property
    def dying(self) -> bool:
        return bool(self.why_killed)

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
    step: int
    open_units: int = 1
    n_done: int = 0
    covered: list[tuple[int, int, int, bool]] = field(default_factory=list)
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
        place = (first.file, first.start, unit.handover_rows[0])
        self.files += [replace(f, place=place) for f in files]

    def counted(self) -> Counter[str]:
        """Return what its finished units have read and dropped so far."""
        return sum((counts_of(ledger) for _, ledger in self.parts), Counter())


def counts_of(ledger: Ledger) -> Counter[str]:
    """Return the counts of a ledger that a progress line shows before they are committed."""
    made = Counter({"records": ledger.records.n, "quarantined": ledger.quarantined.n})
    made["read_bytes"], made["dropped"] = ledger.read_bytes, ledger.n_dropped
    return made

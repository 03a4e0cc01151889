"""Simulated input: files that are lists of record sizes, what is wrong with them, and what has been committed."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from tamis.engine.ledger import Ledger
from tamis.engine.messages import StagedFile
from tamis.engine.supervisor.actions import CommitPartition
from tamis.engine.units import PieceKind

BASE_PEAK = 1_000_000
Record = tuple[int, int]  # file, start (bytes or row number)


@dataclass(frozen=True)
class SimulatedFile(StagedFile):
    """A staged file that knows which records it holds."""

    records: list[Record] = field(default_factory=list)


@dataclass
class File:
    """Record i starts at starts[i], in the file's own coordinate; rows count as one each."""

    kind: PieceKind
    sizes: list[int]
    groups: list[tuple[int, int, int]] = field(default_factory=list)  # ROWS: first row, rows, decoded bytes

    def __post_init__(self) -> None:
        at, self.starts = 0, []
        for size in self.sizes:
            self.starts.append(at)
            at += 1 if self.kind is PieceKind.ROWS else size
        self.end = at

    def within(self, start: int, end: int) -> range:
        return range(bisect_left(self.starts, start), bisect_left(self.starts, end))


@dataclass
class World:
    """The input, what is wrong with it, and what has been committed: all that survives a run."""

    files: list[File]
    poison: dict[Record, tuple[int, str]]  # -> segment, how it fails
    dropped: set[Record]
    factor: float  # peak bytes per decoded byte
    n_segments: int
    fixed_bytes: int = BASE_PEAK  # what a call of a stage takes, whatever the data
    kept_bytes: int = 0  # what stages set up and keep
    setup_bytes: int = 0  # ... and what that takes at most
    feed_bytes: int = 0  # what decoding a stream takes
    written: set[Record] = field(default_factory=set)
    quarantined: set[Record] = field(default_factory=set)
    gone: set[Record] = field(default_factory=set)
    ledger: Ledger = field(default_factory=Ledger)
    covered: list[tuple[int, int, int, bool]] = field(default_factory=list)  # what the log says

    def size(self, record: Record) -> int:
        file = self.files[record[0]]
        return file.sizes[bisect_left(file.starts, record[1])]

    def peak(self, records: list[Record]) -> int:
        return self.fixed_bytes + int(self.factor * sum(map(self.size, records)))

    def everything(self) -> set[Record]:
        return {(i, s) for i, f in enumerate(self.files) for s in f.starts}

    def commit(self, action: CommitPartition) -> None:
        for file in action.files:
            assert isinstance(file, SimulatedFile)
            for record in file.records:
                assert record not in self.written | self.quarantined | self.gone, f"{record} is committed twice"
                {"output": self.written, "quarantine": self.quarantined, "listed": self.gone}[file.kind].add(record)
        self.ledger.merge(Ledger.from_dict(action.ledger))
        self.covered += action.covered

    def check_log(self) -> None:
        """Check that the log covers exactly what was committed, which a resumed run depends on."""
        covered = {(i, self.files[i].starts[r]) for i, a, b, _ in self.covered for r in self.files[i].within(a, b)}
        assert covered == self.written | self.quarantined | self.gone


def identity(record: Record) -> int:
    return hash((record[0] + 1, record[1] + 7)) % (1 << 128)

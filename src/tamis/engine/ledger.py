"""Counting every document at every stage, by number and by 128-bit identity.

A document's identity is the content hash of its record at the source; identities are summed modulo 2**128, so sums do
not depend on order. At each stage: in = out (same documents) + dropped + quarantined + consumed (replaced by derived
documents). Derived documents get identities made from their parents'. The books of all partitions are added up and must
balance at the end.

A stage that opens files itself (downloads) books the records of these in numbers only: records = new documents +
skipped. A sink of the user's, which writes files itself, passes on what it wrote: it counts as written.

Dropped documents are also counted in bytes, with a few examples per reason: see engine/worker/dropped.py for what these
mean. Histograms of document lengths and of scores are added up with them (engine/histograms.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from tamis._dataclasses import dataclass
from tamis.engine.activity import WRITING
from tamis.engine.histograms import Histogram, from_texts, merge_all, to_texts

MODULUS = 1 << 128
# Metric of a stage: documents it returned without a record of its input.
UNTRACED = "documents_without_record"
# Metrics of a stage: the tokens of the documents that it dropped, by reason, where an earlier stage counted them.
DROPPED_TOKENS = "dropped_tokens: "
MAX_EXAMPLES = 3
# Positions are summed up per file; of more files than this, those with the same number modulo this are summed up
# together.
N_POSITION_GROUPS = 1024
Example = tuple[int, int, str | None]
"""A document: number of its input file, offset (or row number) in it, both -1 where unknown, and its id if it has one.
"""


@dataclass
class Tally:
    """A number of documents and the sum of their identities."""

    n: int = 0
    identity: int = 0

    def add(self, n: int, identity: int) -> None:
        self.n += n
        self.identity = (self.identity + identity) % MODULUS

    def merge(self, other: Tally) -> None:
        self.add(other.n, other.identity)

    def to_list(self) -> list[Any]:
        return [self.n, f"{self.identity:032x}"]

    @classmethod
    def from_list(cls, values: list[Any]) -> Tally:
        return cls(int(values[0]), int(values[1], 16))


@dataclass
class Dropped(Tally):
    """Documents that went for one reason.

    The examples are the first in input order, whatever order books are merged in.
    """

    n_bytes: int = 0
    examples: list[Example] = field(default_factory=list)

    def note(self, n_bytes: int, examples: Iterable[Example]) -> None:
        self.n_bytes += n_bytes
        all_examples = {*self.examples, *examples}
        self.examples = sorted(all_examples, key=lambda e: (e[0], e[1], e[2] or ""))[:MAX_EXAMPLES]

    def merge(self, other: Tally) -> None:
        super().merge(other)
        if isinstance(other, Dropped):
            self.note(other.n_bytes, other.examples)

    def to_list(self) -> list[Any]:
        return [*super().to_list(), self.n_bytes, [list(e) for e in self.examples]]

    @classmethod
    def from_list(cls, values: list[Any]) -> Dropped:
        """Parse an entry of a ledger."""
        dropped = cls(int(values[0]), int(values[1], 16))
        if len(values) > 2:
            examples = [(int(f), int(o), None if i is None else str(i)) for f, o, i in values[3][:MAX_EXAMPLES]]
            dropped.note(int(values[2]), examples)
        return dropped


def _tallies(of: StageBook | Ledger, names: Iterable[str], if_any: str) -> dict[str, Any]:
    """Return the tallies of some ledgers as plain lists; the one that few ledgers have is left out of the others."""
    return {n: getattr(of, n).to_list() for n in (*names, if_any) if n != if_any or getattr(of, n).n}


def _read_tallies(of: StageBook | Ledger, data: Mapping[str, Any], names: Iterable[str], if_any: str) -> None:
    for name in (*names, *({if_any} & data.keys())):
        setattr(of, name, Tally.from_list(data[name]))


_BOOKED = ("into", "out", "consumed", "derived")


@dataclass
class StageBook:
    """The account of one stage: documents in, out, dropped and quarantined."""

    name: str
    into: Tally = field(default_factory=Tally)
    out: Tally = field(default_factory=Tally)  # same documents, perhaps with changed fields
    quarantined: Tally = field(default_factory=Tally)  # on which the stage failed; counted in the ledger's too
    dropped: dict[str, Dropped] = field(default_factory=dict)  # by reason
    consumed: Tally = field(default_factory=Tally)  # parents that derived documents replace
    derived: Tally = field(default_factory=Tally)  # new documents
    records: int = 0  # of files that the stage opened itself
    skipped: dict[str, int] = field(default_factory=dict)  # those of them that became no document, by reason
    seconds: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)  # what the stage counted itself, added up
    scores: dict[str, Histogram] = field(default_factory=dict)  # of the documents that each filter saw, by its name

    def drop(self, reason: str, n: int, identity: int, n_bytes: int = 0, examples: Iterable[Example] = ()) -> None:
        if n:
            tally = self.dropped.setdefault(reason, Dropped())
            tally.add(n, identity)
            tally.note(n_bytes, examples)

    def merge(self, other: StageBook) -> None:
        for name in (*_BOOKED, "quarantined"):
            getattr(self, name).merge(getattr(other, name))
        for reason, tally in other.dropped.items():
            self.dropped.setdefault(reason, Dropped()).merge(tally)
        self.read_records(other.records, other.skipped)
        self.seconds += other.seconds
        self.count(other.metrics)
        merge_all(self.scores, other.scores)

    def read_records(self, n: int, skipped: Mapping[str, int]) -> None:
        """Count records of files that the stage opened itself, and those of them that became no document."""
        self.records += n
        for reason, n_skipped in skipped.items():
            self.skipped[reason] = self.skipped.get(reason, 0) + n_skipped

    @property
    def n_in(self) -> int:
        """Documents that came in, and records that the stage read itself."""
        return self.into.n + self.records

    @property
    def n_out(self) -> int:
        return self.out.n + self.derived.n

    @property
    def losses(self) -> dict[str, int]:
        """Dropped documents and skipped records, by reason."""
        return {**{reason: tally.n for reason, tally in self.dropped.items()}, **self.skipped}

    def count(self, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self.metrics[name] = self.metrics.get(name, 0.0) + value

    def imbalance(self) -> str | None:
        """Return what is wrong, or None if every document that came in is accounted for."""
        dropped = Tally()
        for tally in (self.out, self.quarantined, self.consumed, *self.dropped.values()):
            dropped.merge(tally)
        if dropped.n != self.into.n:
            return f"stage {self.name!r}: {self.into.n} documents came in, {dropped.n} are accounted for"
        if dropped.identity != self.into.identity:
            return f"stage {self.name!r}: the counts agree, but they are not the same documents"
        return None

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            **_tallies(self, _BOOKED, "quarantined"),
            "dropped": {k: v.to_list() for k, v in self.dropped.items()},
            **({"records": self.records, "skipped": self.skipped} if self.records else {}),
            "seconds": round(self.seconds, 6),
            **({"metrics": self.metrics} if self.metrics else {}),
            **({"scores": to_texts(self.scores)} if self.scores else {}),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], histograms: bool = True) -> StageBook:
        book = cls(str(data["name"]))
        _read_tallies(book, data, _BOOKED, "quarantined")
        book.dropped = {str(k): Dropped.from_list(v) for k, v in data["dropped"].items()}
        book.read_records(int(data.get("records", 0)), {str(k): int(n) for k, n in data.get("skipped", {}).items()})
        book.seconds = float(data["seconds"])
        book.metrics = {str(k): float(v) for k, v in data.get("metrics", {}).items()}
        book.scores = from_texts(data.get("scores", {})) if histograms else {}
        return book


_COUNTED = ("records", "quarantined", "not_sampled", "written", "content")
_COUNTS = (
    "n_blank_lines",
    "n_bad_ranges",
    "lost_bytes",
    "n_lost_files",
    "stage_records",
    "stage_bytes",
    "read_bytes",
    "written_bytes",
)


@dataclass
class Ledger:
    """The books of a partition, or of a whole run: source, stages in order, sink."""

    records: Tally = field(default_factory=Tally)  # every record of the input, also the bad ones
    quarantined: Tally = field(default_factory=Tally)  # while reading, in stages and while writing
    unwritten: Tally = field(default_factory=Tally)  # those of them that could not be written
    not_sampled: Tally = field(default_factory=Tally)
    n_blank_lines: int = 0
    skipped: dict[str, int] = field(default_factory=dict)  # records that are no documents, by reason; not in `records`
    n_bad_ranges: int = 0  # stretches of input that hold no countable records (a corrupt tail, an unreadable file)
    lost_bytes: int = 0  # of the input as it is stored, that could not be read (a cut-off stream: the whole file)
    n_lost_files: int = 0  # files (or ranges of them) that could not be opened, or changed during the run
    stage_records: int = 0  # readable records of files that stages opened themselves (downloads); not in `records`
    stage_bytes: int = 0  # of these files, as stored
    read_bytes: int = 0
    stages: list[StageBook] = field(default_factory=list)
    written: Tally = field(default_factory=Tally)  # identities of the documents written
    content: Tally = field(default_factory=Tally)  # content hashes of the records as written
    written_bytes: int = 0
    lengths: dict[str, Histogram] = field(default_factory=dict)  # "in": documents that stages got; "out": as written
    # By group of input files: the sum of hashes of (file, offset, content) of every record that could be read. Other
    # than the sum of identities it shows whether a later pass finds the same records at the same positions.
    positions: dict[int, int] = field(default_factory=dict)

    def add_positions(self, file: int, total: int) -> None:
        """Add the sum of the position hashes of some records of an input file."""
        group = file % N_POSITION_GROUPS
        self.positions[group] = (self.positions.get(group, 0) + total) % MODULUS

    def skip_records(self, skipped: Mapping[str, int]) -> None:
        """Count records of the input that are no documents."""
        for reason, n in skipped.items():
            self.skipped[reason] = self.skipped.get(reason, 0) + n

    def merge(self, other: Ledger) -> None:
        for name in (*_COUNTED, "unwritten"):
            getattr(self, name).merge(getattr(other, name))
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.skip_records(other.skipped)
        merge_all(self.lengths, other.lengths)
        for group, total in other.positions.items():
            self.add_positions(group, total)
        for book in other.stages:
            target = next((b for b in self.stages if b.name == book.name), None)
            if target is None:
                target = StageBook(book.name)
                self.stages.append(target)
            target.merge(book)

    def quarantine(self, stage: str, n: int, identity: int, stages: Sequence[str]) -> None:
        """Count documents that go to quarantine because `stage` failed on them.

        `stages`: those in which that may be, in order (one of the books here each, or WRITING); they are booked as
        having come that far. Anything else counts as reading.
        """
        self.quarantined.add(n, identity)
        if stage == WRITING and WRITING not in stages and stages:
            stage = stages[-1]  # the next segment never gets them
        if stage not in stages:
            return
        books = {book.name: book for book in self.stages}
        for name in stages[: stages.index(stage)]:
            books[name].into.add(n, identity)
            books[name].out.add(n, identity)
        if stage == WRITING:
            self.unwritten.add(n, identity)
        else:
            books[stage].into.add(n, identity)
            books[stage].quarantined.add(n, identity)

    @property
    def unread(self) -> Tally:
        """Records quarantined before any stage: bad ones, and those that could not be read."""
        remaining = Tally(self.quarantined.n, self.quarantined.identity)
        for tally in (self.unwritten, *(book.quarantined for book in self.stages)):
            remaining.add(-tally.n, -tally.identity)
        return remaining

    def problems(self) -> list[str]:
        """Return everything that does not balance; empty for a consistent run."""
        unbalanced = [p for p in (book.imbalance() for book in self.stages) if p]
        flow = Tally(self.records.n, self.records.identity)
        for tally in (self.unread, self.not_sampled):
            flow.add(-tally.n, -tally.identity)
        for book in self.stages:
            if flow != book.into:
                unbalanced.append(f"stage {book.name!r} received {book.into.n} documents where {flow.n} were handed on")
            flow = Tally(book.out.n, book.out.identity)
            flow.merge(book.derived)
        flow.add(-self.unwritten.n, -self.unwritten.identity)
        if flow != self.written:
            unbalanced.append(f"{self.written.n} documents were written where {flow.n} left the last stage")
        return unbalanced

    @property
    def n_read(self) -> int:
        """Records of the input, and of files that stages opened themselves."""
        return self.records.n + self.stage_records

    @property
    def n_added(self) -> int:
        """Documents that stages made of others, less those that they replace; negative where several become one.

        n_read + n_added = written + dropped + quarantined + not_sampled, once all documents are through.
        """
        return sum(book.derived.n - book.consumed.n for book in self.stages) - self.stage_records

    @property
    def n_dropped(self) -> int:
        """Documents that stages dropped, and records that became no document."""
        return sum(n for book in self.stages for n in book.losses.values())

    def to_dict(self) -> dict[str, Any]:
        return {
            **_tallies(self, _COUNTED, "unwritten"),
            **{name: getattr(self, name) for name in _COUNTS},
            "stages": [b.to_dict() for b in self.stages],
            **({"skipped": self.skipped} if self.skipped else {}),
            **({"lengths": to_texts(self.lengths)} if self.lengths else {}),
            **({"positions": positions_to_dict(self.positions)} if self.positions else {}),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], histograms: bool = True) -> Ledger:
        ledger = cls()
        _read_tallies(ledger, data, _COUNTED, "unwritten")
        for name in _COUNTS:
            setattr(ledger, name, int(data.get(name, 0)))
        ledger.skip_records({str(reason): int(n) for reason, n in data.get("skipped", {}).items()})
        ledger.stages = [StageBook.from_dict(b, histograms) for b in data["stages"]]
        ledger.lengths = from_texts(data.get("lengths", {})) if histograms else {}
        ledger.positions = positions_from_dict(data.get("positions", {}))
        return ledger


def positions_to_dict(positions: Mapping[int, int]) -> dict[str, str]:
    """Return `Ledger.positions` as JSON stores it."""
    return {str(group): f"{total:032x}" for group, total in positions.items()}


def positions_from_dict(data: Mapping[str, str]) -> dict[int, int]:
    """Parse what `positions_to_dict` made; raise ValueError for anything else."""
    positions = {int(group): int(total, 16) for group, total in data.items()}
    if any(not 0 <= group < N_POSITION_GROUPS for group in positions):
        raise ValueError("positions: no such group of files")
    return positions

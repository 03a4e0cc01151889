"""The record of a whole run, over all its passes and sessions: `run.json` in the run directory of its output.

A run is what one command delivers: one pass over the input, or all passes of a deduplication or a curation and the
decisions between them. A session is one call of the command; a run that was killed and resumed has several. Everything
that shows figures of a whole run takes them from here: the terminal, report.html, report.json, the dashboard, `tamis
top`, the metrics, `tamis diff`.

seconds      the time that sessions worked, added up; of one that was killed, up to its last heartbeat (one a second)
peak_bytes   the most memory in use at any instant of any session
read_bytes   the input, decoded, each byte once, however many passes read it; of all sessions
mb_per_s     read_bytes by seconds
counts       the books of the last pass, which cover every step of the run; None until the run has ended

Covers: the schema, its one writer (`RunRecorder`) and its one reader (`parse_run_record`), the time left. Does not
cover: how a single pass ended (schema.py, `Manifest`), and series of measurements (monitor/database.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from typing import Any, NamedTuple, Self, TypedDict

from tamis import files
from tamis._dataclasses import dataclass
from tamis.engine import wire
from tamis.engine.ledger import Ledger
from tamis.engine.progress import ProgressState
from tamis.errors import TamisError
from tamis.memory.sampler import Mark

FILE = "run.json"
VERSION = 1
STALE_S = 10.0  # a heartbeat every second; after this long without one no process works on the run
MAX_PASSES = 1000
MAX_MOMENTS = 60  # of the memory of one pass
_MAX_SESSIONS = 10_000
_MAX_STAGES = 1000
_HEARTBEAT_S = 1.0
_MIN_SHARE = 0.02  # of the work, before a pace is known


class RunStatus(StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    SAMPLED = "sampled"  # a share was delivered
    STOPPED = "stopped"  # by an error or an interrupt; the same command resumes


class PassStatus(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True)
class MemoryMoment:
    """The most memory in use since the moment before. `at_s`: seconds since the run began, all sessions added up."""

    at_s: float
    peak_bytes: int


class StageTime(NamedTuple):
    """Time that the workers of a pass were in one stage, in which `cpu_s` they computed."""

    stage: str = ""
    seconds: float = 0.0
    cpu_s: float = 0.0
    documents: int = 0


@dataclass
class PassWork:
    """The time that the workers of one pass spent on each kind of work, and what happened to them.

    `seconds`: from the first to the last look at them; `unit_s`: in which they had a partition, all workers added up,
    of which `reading_s` until it was read; `cpu_s`: of all processes. `n_looks`: of the monitor, `n_pressed` of them
    while memory was so short that input waited. `gpu_busy`: share of the time, None without a GPU.
    """

    workers: int = 0
    seconds: float = 0.0
    unit_s: float = 0.0
    reading_s: float = 0.0
    cpu_s: float = 0.0
    stages: list[StageTime] = field(default_factory=list)
    n_looks: int = 0
    n_pressed: int = 0
    n_units: int = 0
    n_failed: int = 0  # attempts
    n_short_of_memory: int = 0  # of these
    n_recycled: int = 0  # workers that were replaced
    gpu_busy: float | None = None

    def after(self, earlier: PassWork) -> PassWork:
        """Return the work of all sessions. The stages are those of the books, which have all of it."""
        sums = {name: getattr(self, name) + getattr(earlier, name) for name in _ADDED}
        return replace(self, **sums)


_ADDED = (
    "seconds",
    "unit_s",
    "reading_s",
    "cpu_s",
    "n_looks",
    "n_pressed",
    "n_units",
    "n_failed",
    "n_short_of_memory",
    "n_recycled",
)


@dataclass
class PassRecord:
    """One pass over documents, or one decision between passes.

    `label`: unique in its run (keys-0, decision-0, write); `title`: in words. `weight`: how much work it is expected to
    be, in units of one plain pass over the input. `share`: how much of it is done. `seconds`: of all sessions.
    `read_bytes` and `written_bytes` are decoded bytes, 0 for decisions, as `documents`. `memory`: over time, of runs of
    several passes, whose databases are gone when the run has ended; the highest moment of all passes is the run's peak.
    """

    label: str
    title: str = ""
    weight: float = 1.0
    status: PassStatus = PassStatus.WAITING
    share: float = 0.0
    seconds: float = 0.0
    peak_bytes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    documents: int = 0
    memory: list[MemoryMoment] = field(default_factory=list)
    work: PassWork | None = None  # of its workers, once it has ended; decisions have none

    @property
    def text(self) -> str:
        """The name for people."""
        return self.title or self.label


@dataclass
class SessionRecord:
    """One call of the command. `began_at` is Unix time."""

    began_at: float = 0.0
    seconds: float = 0.0
    peak_bytes: int = 0
    host: str = ""


class RunCounts(NamedTuple):
    """The documents of a whole run: records + added = written + dropped + quarantined + not_sampled + in_flight.

    `duplicates`: of those dropped; None where no step removes duplicates. `added`: documents that stages made, less
    those that they replace.
    """

    records: int = 0
    written: int = 0
    dropped: int = 0
    duplicates: int | None = None
    quarantined: int = 0
    not_sampled: int = 0
    added: int = 0
    read_bytes: int = 0
    written_bytes: int = 0

    @property
    def in_flight(self) -> int:
        """Documents that were read, and are neither written nor dropped so far; 0 once a run has finished."""
        return self.records + self.added - self.written - self.dropped - self.quarantined - self.not_sampled

    @classmethod
    def of_ledger(cls, ledger: Ledger, duplicate_stages: Iterable[str] = ()) -> RunCounts:
        """Return the counts of the books of a last pass. `duplicate_stages`: labels of those that remove duplicates."""
        removing = set(duplicate_stages)
        dropped = [t.n for book in ledger.stages if book.name in removing for t in book.dropped.values()]
        return cls(
            records=ledger.n_read,
            written=ledger.written.n,
            dropped=ledger.n_dropped,
            duplicates=sum(dropped) if removing else None,
            quarantined=ledger.quarantined.n,
            not_sampled=ledger.not_sampled.n,
            added=ledger.n_added,
            read_bytes=ledger.read_bytes,
            written_bytes=ledger.written_bytes,
        )


class RunCost(TypedDict):
    """The cost of a whole run, as summaries and reports show it."""

    seconds: float
    peak_bytes: int
    read_bytes: int
    mb_per_s: float
    n_sessions: int


@dataclass
class RunRecord:
    """A whole run. See the module for the definitions of its figures.

    `duplicate_stages`: labels of the stages that remove duplicates.
    """

    run_id: str = ""
    name: str = ""
    status: RunStatus = RunStatus.RUNNING
    exit_code: int | None = None
    message: str = ""
    updated_at: float = 0.0
    budget_bytes: int = 0
    input_bytes: int = 0  # of the files as stored
    counts: RunCounts | None = None
    duplicate_stages: list[str] = field(default_factory=list)
    passes: list[PassRecord] = field(default_factory=list)
    sessions: list[SessionRecord] = field(default_factory=list)
    version: int = VERSION

    # -- figures of the whole run -------------------------------------------------------------------------------------
    @property
    def seconds(self) -> float:
        return round(sum(s.seconds for s in self.sessions), 3)

    @property
    def peak_bytes(self) -> int:
        return max((s.peak_bytes for s in self.sessions), default=0)

    @property
    def read_bytes(self) -> int:
        """The decoded input read so far: of the last pass, or while there is none of the pass that has read most."""
        if self.counts is not None:
            return self.counts.read_bytes
        return max((p.read_bytes for p in self.passes), default=0)

    @property
    def mb_per_s(self) -> float:
        speed = self.read_bytes / 1e6 / self.seconds if self.seconds else 0.0
        return round(speed, 1) if speed >= 1 else round(speed, 6)

    def cost(self) -> RunCost:
        """Return what the run took, under the same names everywhere."""
        return {
            "seconds": self.seconds,
            "peak_bytes": self.peak_bytes,
            "read_bytes": self.read_bytes,
            "mb_per_s": self.mb_per_s,
            "n_sessions": len(self.sessions),
        }

    # -- progress -----------------------------------------------------------------------------------------------------
    def is_live(self, now: float) -> bool:
        """Return True if a process works on the run at this time."""
        return self.status is RunStatus.RUNNING and now - self.updated_at < STALE_S

    @property
    def current(self) -> PassRecord | None:
        """The pass that is being done; None before the first one and after the last one."""
        return next((p for p in reversed(self.passes) if p.status is PassStatus.RUNNING), None)

    @property
    def share(self) -> float:
        """Share of all passes that is done, 0 to 1, by their weights."""
        whole = sum(p.weight for p in self.passes)
        return min(sum(p.weight * p.share for p in self.passes) / whole, 1.0) if whole > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        """Seconds until the last pass ends: the current one at its own pace, the others at that of all work so far.

        None while too little is done for an estimate, and when nothing is left.
        """
        if self.status is not RunStatus.RUNNING or self.share < _MIN_SHARE or self.share >= 1.0:
            return None
        pace = sum(p.seconds for p in self.passes) / sum(p.weight * p.share for p in self.passes)
        left_s = 0.0
        for p in self.passes:
            own = p.status is PassStatus.RUNNING and p.share >= _MIN_SHARE
            left_s += (1 - p.share) * (p.seconds / p.share if own else pace * p.weight)
        return left_s


def parse_run_record(data: Mapping[str, Any], problems: list[str]) -> RunRecord | None:
    """Build a record from the JSON values of its file; None, with a problem noted, where they are none.

    Values of a hostile file are brought into their ranges: texts are cut, numbers are not negative.
    """
    if not data:
        return None
    try:
        record = wire.from_json(RunRecord, dict(data))
    except wire.Garbled as exc:
        problems.append(f"{FILE} is damaged ({str(exc)[:200]})")
        return None
    if record.version != VERSION:
        problems.append(f"{FILE} was written by another version of Tamis")
        return None
    record.run_id, record.name, record.message = record.run_id[:200], record.name[:200], record.message[:2000]
    record.passes, record.sessions = record.passes[:MAX_PASSES], record.sessions[:_MAX_SESSIONS]
    record.duplicate_stages = record.duplicate_stages[:MAX_PASSES]
    for p in record.passes:
        p.label, p.title = p.label[:200], p.title[:200]
        p.weight, p.share = min(max(p.weight, 0.0), 1e6), min(max(p.share, 0.0), 1.0)
        if p.work is not None:
            _bound(p.work)
        p.memory = [m for m in p.memory[:MAX_MOMENTS] if 0 <= m.at_s < 1e12 and 0 <= m.peak_bytes < 1 << 62]
    for part in (*record.passes, *record.sessions):
        for name, value in vars(part).items():
            if name in ("seconds", "peak_bytes", "read_bytes", "written_bytes", "documents"):
                setattr(part, name, min(max(value, 0), 1 << 62))
    return record


def _bound(work: PassWork) -> None:
    """Bring the figures of a hostile file into their ranges."""
    for name in ("workers", *_ADDED):
        setattr(work, name, min(max(getattr(work, name), 0), 1 << 62))
    work.stages = [s._replace(stage=s.stage[:200]) for s in work.stages[:_MAX_STAGES] if min(s.seconds, s.cpu_s) >= 0]
    if work.gpu_busy is not None:
        work.gpu_busy = min(max(work.gpu_busy, 0.0), 1.0)


def load_run_record(run_dir: str | os.PathLike[str]) -> RunRecord | None:
    """Return the record in a run directory; None if there is none, or it cannot be read."""
    try:
        with open(os.path.join(run_dir, FILE), "rb") as file:
            data = json.load(file)
    except (OSError, ValueError):
        return None
    return parse_run_record(data, []) if isinstance(data, dict) else None


class RunRecorder:
    """Writes the record of one run while a session works. A context manager: its block is the session.

    `mark`: of the memory of the session; `began_s`: when the session began (time.monotonic()); `resumes`: whether a
    record that is there already is of the same run; `keeps_memory`: whether the memory of each pass is recorded over
    time, which consumes the recent peaks of the mark: no other reader may take them.

    The file is written when a pass begins or ends and once a second by a thread, whole or not at all; a disk that is
    full or hangs never disturbs the run.
    """

    def __init__(
        self,
        run_dir: str,
        name: str,
        mark: Mark,
        began_s: float,
        *,
        run_id: str = "",
        resumes: bool = False,
        budget_bytes: int = 0,
        input_bytes: int = 0,
        keeps_memory: bool = False,
    ) -> None:
        self._path = os.path.join(run_dir, FILE)
        self._mark, self._began_s = mark, began_s
        self._pass_began_s = 0.0
        self._earlier_s = 0.0  # of the current pass, in earlier sessions or calls
        self._lock = threading.RLock()
        self._writing = threading.Lock()
        self._ended = threading.Event()
        self._keeps_memory = keeps_memory
        self._thread = threading.Thread(target=self._beat, name="tamis-record", daemon=True)
        earlier = load_run_record(run_dir) if resumes else None
        if earlier is not None and run_id and earlier.run_id != run_id:
            earlier = None
        began_at = time.time() - (time.monotonic() - began_s)
        self._session = SessionRecord(began_at, host=os.uname().nodename)
        self.record = RunRecord(
            run_id=run_id or (earlier.run_id if earlier is not None else _new_id()),
            name=name,
            budget_bytes=budget_bytes,
            input_bytes=input_bytes,
            passes=earlier.passes if earlier is not None else [],
            sessions=[*(earlier.sessions if earlier is not None else ()), self._session],
        )
        for p in self.record.passes:
            if p.status is PassStatus.RUNNING:
                p.status = PassStatus.WAITING

    def __enter__(self) -> Self:
        self._write()
        self._thread.start()
        return self

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        with self._lock:
            if problem is not None and not self._ended.is_set():
                self._measure()
                self.record.status = RunStatus.STOPPED
                self.record.exit_code = 130 if isinstance(problem, KeyboardInterrupt) else _exit_code(problem)
                self.record.message = str(problem)[:2000] or type(problem).__name__
            self._ended.set()
        self._thread.join()
        self._write()

    # -- passes -------------------------------------------------------------------------------------------------------
    def plan(self, passes: Sequence[PassRecord]) -> None:
        """Set passes that are known to come, in order; those that are recorded already keep what was done.

        They take the position of the first of them that is known, or come last.
        """
        with self._lock:
            records = {p.label: p for p in self.record.passes}
            planned = [replace(records.get(p.label, p), title=p.title, weight=p.weight) for p in passes]
            labels = {p.label for p in planned}
            position = next((i for i, p in enumerate(self.record.passes) if p.label in labels), len(self.record.passes))
            others = [p for p in self.record.passes if p.label not in labels]
            self.record.passes = [*others[:position], *planned, *others[position:]]
        self._write()

    @contextlib.contextmanager
    def doing(self, label: str, title: str = "", weight: float = 1.0) -> Iterator[PassRecord]:
        """Record a pass while the block runs; one that was not planned comes after those that have begun."""
        mine = self._begin(label, title, weight)
        try:
            yield mine
        except BaseException:
            self._leave(mine, PassStatus.WAITING)
            raise
        self._leave(mine, PassStatus.FINISHED)

    def _begin(self, label: str, title: str, weight: float) -> PassRecord:
        with self._lock:
            passes = self.record.passes
            mine = next((p for p in passes if p.label == label), None)
            if mine is None:
                begun = [i for i, p in enumerate(passes) if p.status is not PassStatus.WAITING]
                mine = PassRecord(label, title, weight)
                passes.insert(begun[-1] + 1 if begun else 0, mine)
            _mark_finished(passes[: passes.index(mine)])  # a session that was killed could not record it
            if mine.status is not PassStatus.FINISHED:  # one that has finished reports that at once
                mine.share = 0.0
            mine.status = PassStatus.RUNNING
            self._pass_began_s, self._earlier_s = time.monotonic(), mine.seconds
        self._write()
        return mine

    def _leave(self, mine: PassRecord, status: PassStatus) -> None:
        with self._lock:
            self._measure()
            mine.status = status
            if status is PassStatus.FINISHED:
                mine.share = 1.0
        self._write()

    def note_books(self, ledger: Ledger, peak_bytes: int = 0) -> None:
        """Record what the current pass read and wrote, earlier sessions included, from its books."""
        with self._lock:
            if (mine := self.record.current) is not None:
                mine.read_bytes, mine.written_bytes = ledger.read_bytes, ledger.written_bytes
                mine.documents = ledger.records.n
                mine.peak_bytes = max(mine.peak_bytes, peak_bytes)

    def note_work(self, work: PassWork) -> None:
        """Record where the time of the workers of the current pass went, or of the last one that ended."""
        with self._lock:
            ended = (p for p in reversed(self.record.passes) if p.status is PassStatus.FINISHED)
            mine = self.record.current or next(ended, None)
            if mine is not None:
                mine.work = work if mine.work is None else work.after(mine.work)

    def advance(self, state: ProgressState) -> None:
        """Take over the progress of the current pass, as it is shown (run/observation.py, dedup/task_process.py)."""
        with self._lock:
            mine = self.record.current
            if mine is None:
                return
            if "total_bytes" in state and "left_bytes" in state:
                total = max(int(state["total_bytes"]), 1)
                mine.share = min(max(1 - int(state["left_bytes"]) / total, mine.share), 1.0)
                mine.read_bytes = max(mine.read_bytes, int(state.get("all_read_bytes", 0)))
                mine.documents = max(mine.documents, int(state.get("documents", 0)))
                mine.peak_bytes = max(mine.peak_bytes, int(state.get("peak_bytes", 0)))
                self.record.input_bytes = max(self.record.input_bytes, int(state["total_bytes"]))
            elif "share" in state:
                mine.share = min(max(float(state["share"]), mine.share), 1.0)

    def finish(
        self,
        counts: RunCounts | None,
        *,
        status: RunStatus = RunStatus.FINISHED,
        exit_code: int = 0,
        message: str = "",
        duplicate_stages: Iterable[str] = (),
    ) -> RunRecord:
        """Record how the run ended, and return the record: its figures do not change any more."""
        with self._lock:
            record = self.record
            self._measure()
            record.counts, record.status = counts, status
            if status is RunStatus.FINISHED:  # what was planned and not needed is no pass
                record.passes = [p for p in record.passes if p.seconds or p.documents]
                _mark_finished(record.passes)
            record.exit_code, record.message = exit_code, message[:2000]
            record.duplicate_stages = list(duplicate_stages)
            self._ended.set()
        self._write()
        return record

    # -- writing ------------------------------------------------------------------------------------------------------
    def _measure(self) -> None:
        """Bring the figures up to date, unless the run has ended."""
        if self._ended.is_set():
            return
        now_s, record = time.monotonic(), self.record
        record.updated_at = time.time()
        self._session.seconds = round(now_s - self._began_s, 3)
        self._session.peak_bytes = max(self._session.peak_bytes, self._mark.peak_bytes)
        if (mine := record.current) is not None:
            mine.seconds = round(self._earlier_s + now_s - self._pass_began_s, 3)
            if self._keeps_memory:
                self._note_memory(mine)

    def _note_memory(self, mine: PassRecord) -> None:
        """Add what was in use since the last moment to the current pass; many moments become half as many."""
        mine.memory.append(MemoryMoment(self.record.seconds, self._mark.pop_recent()))
        if len(mine.memory) > MAX_MOMENTS:
            pairs = (mine.memory[i : i + 2] for i in range(0, len(mine.memory), 2))
            mine.memory = [MemoryMoment(pair[-1].at_s, max(m.peak_bytes for m in pair)) for pair in pairs]

    def _write(self) -> None:
        with self._writing:
            with self._lock:
                self._measure()
                text = files.json_lines(wire.to_json(self.record))
            with contextlib.suppress(OSError):
                files.write_text(self._path, text, files.OWN, sync=False)

    def _beat(self) -> None:
        while not self._ended.wait(_HEARTBEAT_S):
            self._write()


def _mark_finished(passes: Iterable[PassRecord]) -> None:
    for p in passes:
        p.status, p.share = PassStatus.FINISHED, 1.0


def _exit_code(problem: BaseException) -> int:
    return problem.exit_code if isinstance(problem, TamisError) else 1


def _new_id() -> str:
    return time.strftime("%Y%m%d-%H%M%S-") + os.urandom(3).hex()

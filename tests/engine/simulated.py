"""A simulated world for the supervisor: files as lists of record sizes, and workers with every known fault."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tamis.engine import messages
from tamis.engine.ledger import Ledger, StageBook
from tamis.engine.messages import (
    ORDERS,
    CoveredRange,
    Done,
    Failure,
    FailureKind,
    Handover,
    RowsTooLarge,
    StreamTooLarge,
    Vitals,
)
from tamis.engine.schema import FileKind
from tamis.engine.supervisor.actions import (
    Action,
    AssignUnit,
    CommitPartition,
    DiscardFiles,
    KillWorker,
    Note,
    RequestBlock,
    StartWorker,
    StopWorker,
)
from tamis.engine.supervisor.coverage import Coverage
from tamis.engine.supervisor.cursor import Cursor
from tamis.engine.supervisor.state import Config, NodeSpec
from tamis.engine.supervisor.supervisor import Supervisor
from tamis.engine.supervisor.worker_pool import PoolNode
from tamis.engine.units import TO_END, Mode, Piece, PieceKind, Unit
from tamis.engine.wire import decode, encode
from tamis.formats.input_files.listing import FileList
from tamis.memory.predictor import Predictor
from tests.engine import supervise
from tests.engine.worlds import Record, SimulatedFile, World, identity

MB = 1_000_000
WORKER_BYTES = 20 * MB
FLOOR_BYTES = 10 * MB
TIMEOUT_S = 8.0
MAX_EVENTS = 30_000


@dataclass
class Process:
    """A fake worker process."""

    id: int
    node: int = 0
    alive: bool = True
    is_ready: bool = False
    kill_asked: bool = False
    holds: int = 0
    kept: int = 0  # since its stages were set up
    is_set_up: bool = False
    feed: Any = None  # the generator of a feeder


class Simulation:
    """One run: a supervisor, workers that misbehave, a committer that takes its time."""

    def __init__(
        self, world: World, config: Config, rng: random.Random, faults: dict[str, float], fired: Counter[str]
    ) -> None:
        files = FileList()
        for i, f in enumerate(world.files):
            files.append(
                f"in{i}", sum(f.sizes) if f.kind is PieceKind.BYTES else max(1, sum(f.sizes) // 4) if f.sizes else 0, 0
            )
        done = Coverage(lambda i: world.files[i].end if world.files[i].kind is PieceKind.BYTES else -1)
        for covered in world.covered:
            done.add(*covered)
        cursor = Cursor(files, [f.kind for f in world.files], done)
        predictors = [Predictor(config.max_partition_bytes) for _ in range(world.n_segments)]
        self.world, self.config, self.rng, self.faults, self.fired = world, config, rng, faults, fired
        self.supervisor = Supervisor(config, cursor, predictors)
        self.now = 0.0
        self.heap: list[tuple[float, int, Callable[[], list[Action]]]] = []
        self.seq = 0
        self.processes: dict[int, Process] = {}
        self.scratch: dict[str, list[Record]] = {}  # files between processes
        self.known: set[str] = set()  # scratch files that the supervisor was told of
        self.staged: set[str] = set()
        self.n_attempts: Counter[tuple[Any, ...]] = Counter()
        self.n_innocent: Counter[int] = Counter()
        self.n_spikes = self.n_server_deaths = self.n_feeder_deaths = self.n_node_deaths = 0
        self.alike = len({n.pool_bytes for n in config.nodes or ()}) == 1
        self.steady = rng.choice([0.0, 0.0, 0.0, 0.72, 0.82])  # share of the budget that is in use all the time

    # -- the loop -----------------------------------------------------------------------------------------------------
    def run(self, stop_at: float = -1.0, abandon_at: float = -1.0) -> None:
        self.act(supervise.tick(self.supervisor, self.now))
        self.later(0.5, self.measure)
        n_events = n_idle = 0
        while not self.supervisor.finished:
            n_events += 1
            assert n_events < MAX_EVENTS, f"no end after {n_events} events: {self.state()}"
            at, _, event = heapq.heappop(self.heap)
            self.now = max(self.now, at)
            n_idle = n_idle + 1 if event == self.measure else 0
            assert n_idle < 100, f"nothing happens any more: {self.state()}"
            if 0 <= abandon_at < self.now:
                self.fired["supervisor killed"] += 1
                return  # kill -9: what is committed stands
            if 0 <= stop_at < self.now:
                stop_at = -1.0
                self.fired["stopped"] += 1
                self.act(supervise.stop(self.supervisor, "interrupted"))
            self.act(event())
            self.act(supervise.tick(self.supervisor, self.now))
            self.check()
        self.drain()

    def drain(self) -> None:
        """Late reports after the end change nothing."""
        if not self.supervisor.status.stopping and not self.supervisor.status.infeasible:
            left = {p for p in self.known if p in self.scratch}
            assert not left, f"scratch files left behind: {sorted(left)}"
            assert not self.supervisor.queue.scratch.total_bytes

    def check(self) -> None:
        s = self.supervisor
        busy = [w for w in s.pool.workers.values() if w.unit is not None]
        for node in s.pool.nodes.values():
            total = sum(w.cap_bytes for w in busy if w.node == node.id)
            total += sum(w.node == node.id for w in s.pool.workers.values()) * self.config.worker_bytes
            assert total <= node.config.pool_bytes, (
                f"caps and workers take {total} of {node.config.pool_bytes} on node {node.id}: {self.state()}"
            )
        queued = sum(s.queue.scratch.bytes_of(p) for p in {u.pieces[0].path for u in s.queue.segments[0]})
        room = max(self.config.queue_bytes, self.config.patient_queue_bytes)
        if self.config.mode == "streaming" and queued > room:
            largest = max(sum(self.world.size(r) for r in rs) for rs in self.scratch.values())
            n_feeders = max(1, len(self.config.nodes or ()) + self.n_node_deaths)  # one on each node
            assert queued <= room + n_feeders * largest, "more waits than the queue may hold"

    def state(self) -> str:
        s = self.supervisor
        workers = [
            (
                w.id,
                w.segment,
                w.ready,
                w.unit and (w.unit.id, str(w.unit.mode), w.unit.alone),
                w.cap_bytes,
                w.is_blocked,
                w.kill_reason,
            )
            for w in s.pool.workers.values()
        ]
        return (
            f"t={self.now:.1f} workers={workers} queues={[[(u.id, u.alone) for u in q] for q in s.queue.segments]} "
            f"feeds={[u.id for u in s.queue.feeds]} cursor={s.queue.cursor.exhausted} "
            f"committing={s.queue.n_committing} stopping={s.status.stopping!r} pool={self.config.pool_bytes} "
            f"{self.config.mode}"
        )

    def later(self, delay_s: float, event: Callable[[], list[Action]]) -> None:
        self.seq += 1
        heapq.heappush(self.heap, (self.now + delay_s, self.seq, event))

    def soon(self, event: Callable[[], list[Action]]) -> None:
        self.later(self.rng.uniform(0.001, 0.3), event)

    def chance(self, fault: str) -> bool:
        hit = self.rng.random() < self.faults.get(fault, 0.0)
        self.fired[fault] += hit
        return hit

    # -- carrying out actions -----------------------------------------------------------------------------------------
    def act(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case StartWorker(worker, _, _, node):
                    assert node in self.supervisor.pool.nodes, (
                        f"worker {worker} is to start on node {node}, which is gone"
                    )
                    self.processes[worker] = Process(worker, node)
                    self.soon(lambda w=worker: self.started(w))
                case AssignUnit(worker, unit, fence, cap_bytes):
                    self.assign(worker, unit, fence, cap_bytes)
                case RequestBlock(worker):
                    self.soon(lambda w=worker: self.feed_on(w))
                case StopWorker(worker):
                    self.soon(lambda w=worker: self.exits(w, "exit status 0", 0))
                case KillWorker(worker, _):
                    process = self.processes.get(worker)
                    if process is not None and process.is_ready:
                        self.soon(lambda w=worker: self.exits(w, "signal SIGKILL", 9))
                    else:
                        self.fired["kill before ready"] += 1  # no pid yet: nobody can kill it
                case CommitPartition():
                    self.fired["slow commit"] += (slow := self.rng.random() < 0.2)
                    self.later(self.rng.uniform(1.0, 20.0) if slow else 0.01, lambda a=action: self.commit(a))
                case DiscardFiles(paths):
                    for path in paths:
                        self.scratch.pop(path, None)
                        self.staged.discard(path)
                case Note(_, text, _):
                    assert text

    def commit(self, action: CommitPartition) -> list[Action]:
        if self.chance("disk full at commit"):
            return supervise.commit_failed(self.supervisor, "cannot commit: no space left")
        for file in action.files:
            assert file.kind is FileKind.LISTED or file.path in self.staged, (
                f"{file.path} was discarded before its commit"
            )
            self.staged.discard(file.path)
        self.world.commit(action)
        return supervise.committed(
            self.supervisor, action.partition, action.covered, sum(f.n_bytes or 0 for f in action.files), self.now
        )

    def measure(self) -> list[Action]:
        self.later(1.0, self.measure)
        return [action for node in list(self.supervisor.pool.nodes.values()) for action in self.measure_node(node)]

    def measure_node(self, node: PoolNode) -> list[Action]:
        here = [w for w in self.processes.values() if w.is_ready and w.node == node.id]
        uses = {w.id: WORKER_BYTES * 19 // 20 + w.kept + w.holds for w in here}
        budget = node.config.budget_bytes
        used = budget - node.config.pool_bytes + sum(uses.values())
        used = max(used, int(budget * self.steady))
        self.fired["steady pressure"] += self.steady > 0
        if self.n_spikes < 3 and self.chance("pressure"):
            self.n_spikes += 1
            used = int(budget * self.rng.choice([0.75, 0.85, 0.92, 0.98]))
        return supervise.measured(self.supervisor, used, uses, self.now, node.id)

    # -- nodes --------------------------------------------------------------------------------------------------------
    def node_goes(self, spec: NodeSpec) -> list[Action]:
        """Make a machine vanish with its processes; it, or another one, joins later."""
        for worker, process in list(self.processes.items()):
            if process.node != spec.id:
                continue
            unit = self.supervisor.pool.workers[worker].unit if worker in self.supervisor.pool.workers else None
            if unit is not None:
                self.n_innocent[unit.id] += 1
            del self.processes[worker]
        self.fired["node back"] += 1
        again = spec._replace(id=spec.id + self.rng.choice([0, 100]))
        self.later(self.rng.uniform(0.0, 5.0), lambda: supervise.node_up(self.supervisor, again, self.now))
        return supervise.node_down(self.supervisor, spec.id, self.now)

    # -- processes ----------------------------------------------------------------------------------------------------
    def started(self, worker: int) -> list[Action]:
        process = self.processes.get(worker)
        if process is None:
            return []
        if self.chance("died at start"):
            return self.exits(worker, "exit status 1", 0)
        process.is_ready = True
        return supervise.ready(self.supervisor, worker, self.now, Vitals(floor_bytes=FLOOR_BYTES))

    def exits(self, worker: int, how: str, signal: int) -> list[Action]:
        if self.processes.pop(worker, None) is None:
            return []
        return supervise.died(self.supervisor, worker, how, signal, self.now, "s")

    def server_dies(self) -> list[Action]:
        """All workers at once."""
        actions: list[Action] = []
        for worker in list(self.processes):
            unit = self.supervisor.pool.workers[worker].unit if worker in self.supervisor.pool.workers else None
            if unit is not None:
                self.n_innocent[unit.id] += 1
            actions += self.exits(worker, "signal SIGKILL", 9)
        return actions

    def send(self, worker: int, event: Callable[[], list[Action]]) -> None:
        """Deliver a message, lost if its sender is gone by then."""
        self.soon(lambda: event() if worker in self.processes else [])

    def assign(self, worker: int, unit: Unit, fence: int, cap: int) -> None:
        process = self.processes.get(worker)
        if process is None:
            return
        assert cap > 0, f"unit {unit.id} got a cap of {cap}: {self.state()}"
        unit = decode(encode(messages.Assign(unit, fence)), ORDERS).unit
        key = (unit.id, unit.mode, unit.alone, str(unit.pieces), unit.describe)
        self.n_attempts[key] += 1
        assert self.n_attempts[key] <= (8 if unit.mode is Mode.RUN else 12), f"{key} is tried again and again"
        if self.n_server_deaths < 1 and self.chance("server died"):
            self.n_server_deaths += 1
            self.soon(self.server_dies)
        most = max((n.pool_bytes for n in self.config.nodes or ()), default=0)
        # where some are smaller than others, one of the largest has to stay: some records need it
        losable = [n for n in self.config.nodes or () if self.alike or n.pool_bytes < most]
        if losable and self.n_node_deaths < 2 and self.chance("node lost"):
            self.n_node_deaths += 1
            self.soon(lambda: self.node_goes(self.rng.choice(losable)))
        if unit.mode is Mode.FEED and cap < self.world.feed_bytes:
            self.fired["no room to decode"] += 1
            asked = self.rng.choice([0, self.world.feed_bytes])
            report = Failure(FailureKind.MEMORY, "MemoryError", requested_bytes=asked, peak_bytes=MB)
            self.send(worker, lambda: supervise.failed(self.supervisor, worker, fence, report, self.now))
            self.later(0.5, lambda: self.exits(worker, "exit status 77", 0))
        elif unit.mode is Mode.FEED:
            process.feed = self.feeder(worker, unit, fence)
            self.soon(lambda: self.feed_on(worker))
        else:
            self.process(process, unit, fence, cap)

    def process(self, process: Process, unit: Unit, fence: int, cap: int) -> None:
        worker, s = process.id, self.supervisor
        records, covered, info = self.read(unit)
        if info is not None:
            self.fired["too large"] += 1
            self.send(worker, lambda: supervise.too_large(s, worker, fence, info, self.now))
            return
        if self.n_innocent[unit.id] < 2 and self.chance("killed from outside"):
            self.n_innocent[unit.id] += 1
            zombie = self.chance("zombie report")
            self.soon(lambda: self.exits(worker, "signal SIGKILL", 9))
            if zombie:  # its report was under way, and comes when the worker is long forgotten
                report = self.report(unit, fence, records, covered)
                self.later(3.0, lambda: self.late(worker, fence, report))
            return
        if unit.mode is Mode.RUN and not self.set_up(process, fence, cap):
            return
        early = self.rng.random() < 0.3
        if not early:
            self.tell(process, unit, fence, records)
        need = self.world.peak(records)
        if process.kept + need > cap and unit.mode is Mode.RUN:
            self.out_of_memory(process, fence, cap, process.kept + need)
            return
        process.holds = min(need, cap)
        poison = [self.world.poison[r] for r in records if self.world.poison.get(r, (-1, ""))[0] == unit.segment]
        if poison and unit.mode is Mode.RUN:
            self.poisoned(process, fence, poison[0][1])
            return
        is_used = "descriptors" in self.faults and s.pool.workers[worker].n_units > 0
        if is_used and self.n_innocent[unit.id] < 2 and self.chance("descriptors"):
            self.n_innocent[unit.id] += 1
            used_up = Failure(self.rng.choice([FailureKind.DESCRIPTORS, FailureKind.THREADS]), "no more", "s")
            self.send(worker, lambda: supervise.failed(s, worker, fence, used_up, self.now))
            return
        if self.chance("disk full"):
            self.send(
                worker, lambda: supervise.failed(s, worker, fence, Failure(FailureKind.DISK, "no space left"), self.now)
            )
            return
        report = self.report(unit, fence, records, covered, process.kept)
        first = sum(n for key, n in self.n_attempts.items() if key[0] == unit.id) == 1
        delay = (
            2 * TIMEOUT_S if first and len(records) > 1 and self.chance("slow once") else self.rng.uniform(0.01, 2.0)
        )
        self.later(delay, lambda: self.finish(process, fence, report) if worker in self.processes else [])

    def set_up(self, process: Process, fence: int, cap: int) -> bool:
        if process.is_set_up or not self.world.setup_bytes:
            return True
        self.fired["setup"] += 1
        if self.world.setup_bytes > cap:
            self.fired["no room for setup"] += 1
            self.out_of_memory(process, fence, cap, self.world.setup_bytes, "s (its setup)")
            return False
        process.is_set_up, process.kept = True, self.world.kept_bytes
        worker, kept, peak = process.id, self.world.kept_bytes, self.world.setup_bytes
        self.send(worker, lambda: supervise.set_up(self.supervisor, worker, fence, kept, peak, self.now))
        return True

    def tell(self, process: Process, unit: Unit, fence: int, records: list[Record]) -> None:
        cut = records[len(records) // 2][1] if len(records) > 1 and len(unit.pieces) == 1 else -1
        if unit.segment > 0:
            cut = unit.handover_rows[0] + len(records) // 2 if len(records) > 1 else -1
        sizes = [self.world.size(r) for r in records]
        supervise.read(self.supervisor, process.id, fence, len(records), cut, sum(sizes), max(sizes, default=0))

    def out_of_memory(self, process: Process, fence: int, cap: int, need: int, setup: str = "") -> None:
        worker, s = process.id, self.supervisor
        how = self.rng.choice(
            ["memory error", "memory error", "crash near the cap", "crash on allocation", "over the cap"]
        )
        if setup or (how == "crash on allocation" and not self.faults.get(how)):
            how = "memory error"
        self.fired[how] += 1
        if how == "memory error":
            failed = Failure(FailureKind.MEMORY, "MemoryError", setup or "s", in_setup=bool(setup))
            if self.rng.random() < 0.5:  # some say what they asked for
                self.fired["asked"] += 1
                failed = replace(failed, requested_bytes=need - process.kept)
            self.send(worker, lambda: supervise.failed(s, worker, fence, failed, self.now))
            self.later(0.31, lambda: self.exits(worker, "exit status 77", 0))
        elif how == "over the cap":
            process.holds = cap + cap // 10 + 30 * MB  # the meter sees it, the supervisor kills
        else:
            process.holds = cap if how == "crash near the cap" else cap // 4
            self.later(1.1, lambda: self.exits(worker, "signal SIGSEGV", 11))

    def poisoned(self, process: Process, fence: int, how: str) -> None:
        worker, s = process.id, self.supervisor
        self.fired["poison " + how] += 1
        if how == "error":
            self.send(
                worker,
                lambda: supervise.failed(
                    s, worker, fence, Failure(FailureKind.ERROR, "ValueError: bad", "s"), self.now
                ),
            )
        elif how != "hang":
            self.send(
                worker,
                lambda: self.exits(
                    worker, "signal SIGSEGV" if how == "crash" else "exit status 1", 11 if how == "crash" else 0
                ),
            )

    def finish(self, process: Process, fence: int, report: Done) -> list[Action]:
        process.holds = 0
        if report.handover is not None:
            self.known.add(report.handover.path)
        return supervise.done(self.supervisor, process.id, fence, report, self.now)

    def late(self, worker: int, fence: int, report: Done) -> list[Action]:
        if report.handover is not None:
            self.known.add(report.handover.path)
        actions = supervise.done(self.supervisor, worker, fence, report, self.now)
        assert not [a for a in actions if isinstance(a, CommitPartition)], "a report with an old fence was committed"
        return actions

    # -- what a worker does with a unit -------------------------------------------------------------------------------
    def read(self, unit: Unit) -> tuple[list[Record], list[CoveredRange], StreamTooLarge | RowsTooLarge | None]:
        if unit.segment > 0:
            assert unit.handover in self.scratch, f"{unit.handover} is used after it was discarded"
            return self.scratch[unit.handover][unit.handover_rows[0] : unit.handover_rows[1]], [], None
        records: list[Record] = []
        covered = []
        for piece in unit.pieces:
            file, whole = self.world.files[piece.file], piece.end == TO_END
            decoded = sum(file.sizes)
            assert piece.kind is not PieceKind.STREAM or (piece.start == 0 and whole), (
                "a stream cannot be entered in the middle"
            )
            if piece.kind is PieceKind.STREAM and unit.mode is Mode.RUN and decoded > 2 * unit.max_bytes:
                return [], [], StreamTooLarge(piece.file, decoded, max(1, decoded // 4))
            if (
                piece.kind is PieceKind.ROWS
                and whole
                and (unit.describe or (decoded > 2 * unit.max_bytes and len(file.sizes) > 1))
            ):
                return [], [], RowsTooLarge(piece.file, file.groups, file.end)
            if piece.kind in (PieceKind.BLOCK, PieceKind.ROW_BLOCK):
                assert piece.path in self.scratch, f"{piece.path} is used after it was discarded"
            end = file.end if whole else piece.end
            records += [(piece.file, file.starts[i]) for i in file.within(piece.start, end)]
            covered.append((piece.file, piece.start, end, whole))
        return records, covered, None

    def report(
        self,
        unit: Unit,
        fence: int,
        records: list[Record],
        covered: list[tuple[int, int, int, bool]],
        kept_bytes: int = 0,
    ) -> Done:
        last = unit.segment == self.world.n_segments - 1
        path, ids = f"u{unit.id}.{fence}", [identity(r) for r in records]
        ledger = Ledger(stages=[StageBook(f"s{unit.segment}")])
        files: list[SimulatedFile] = []
        handover = None
        if unit.segment == 0:
            ledger.records.add(len(records), sum(ids))
        if unit.mode is Mode.QUARANTINE:
            ledger.quarantine(f"s{unit.segment}", len(records), sum(ids), [f"s{unit.segment}"])
            files.append(SimulatedFile(path + ".q", FileKind.QUARANTINE, n_bytes=10, records=records))
        else:
            gone = [r for r in records if r in self.world.dropped and unit.segment == 0]
            kept = [r for r in records if r not in gone]
            book = ledger.stages[0]
            book.into.add(len(records), sum(ids))
            book.drop("rule", len(gone), sum(map(identity, gone)))
            book.out.add(len(kept), sum(map(identity, kept)))
            files.append(SimulatedFile("", FileKind.LISTED, n_bytes=0, records=gone))
            if last:
                ledger.written.add(len(kept), sum(map(identity, kept)))
                n_bytes = sum(map(self.world.size, kept))
                files.append(SimulatedFile(path + ".out", FileKind.OUTPUT, n_bytes=n_bytes, records=kept))
            else:
                self.scratch[path + ".arrow"] = kept
                handover = Handover(path + ".arrow", len(kept), sum(map(self.world.size, kept)))
        self.staged |= {f.path for f in files if f.kind is not FileKind.LISTED}
        sizes = [self.world.size(r) for r in records]
        floor = FLOOR_BYTES + kept_bytes + (40 * MB if self.chance("leak") else 0)
        return Done(
            len(records),
            sum(sizes),
            max(sizes, default=0),
            covered,
            list(files),
            ledger,
            handover,
            peak_bytes=self.world.peak(records),
            seconds=0.1,
            vitals=Vitals(floor_bytes=floor, data_bytes=2 * floor),
        )

    # -- feeding ------------------------------------------------------------------------------------------------------
    def feeder(self, worker: int, unit: Unit, fence: int) -> Any:
        """One block after the other, as engine/worker/feed.py: whole records, then what was passed over."""
        first = unit.pieces[0]
        file, n, covered, at = self.world.files[first.file], 0, [], 0
        kind = PieceKind.ROW_BLOCK if file.kind is PieceKind.ROWS else PieceKind.BLOCK
        for wanted in unit.pieces:
            left = list(file.within(max(wanted.start, at), wanted.end))
            if file.kind is not PieceKind.ROWS:
                covered.append(
                    (first.file, wanted.start, file.starts[left[0]] if left else min(wanted.end, file.end), False)
                )
            while left:
                took = [left.pop(0)]
                while left and sum(file.sizes[i] for i in [*took, left[0]]) <= unit.max_bytes:
                    took.append(left.pop(0))
                start = file.starts[took[0]]
                at = start + (len(took) if file.kind is PieceKind.ROWS else sum(file.sizes[i] for i in took))
                path, n = f"f{unit.id}.{fence}.{n}", n + 1
                self.scratch[path] = [(first.file, file.starts[i]) for i in took]
                yield Piece(first.file, kind, path, start, at, start), sum(file.sizes[i] for i in took)
        if file.kind is not PieceKind.ROWS:
            covered.append((first.file, file.end, file.end, True))
        yield Done(covered=covered)

    def feed_on(self, worker: int) -> list[Action]:
        process, s = self.processes.get(worker), self.supervisor
        if process is None or process.feed is None or worker not in s.pool.workers:  # its node is gone
            return []
        fence = s.pool.workers[worker].fence
        made = next(process.feed)
        if self.n_feeder_deaths < 4 and self.chance("feeder died"):
            self.n_feeder_deaths += 1
            how = self.rng.choice([("signal SIGKILL", 9), ("signal SIGSEGV", 11), ("exit status 1", 0)])
            if isinstance(made, Done) or self.rng.random() < 0.5:
                return self.exits(worker, *how)
            self.soon(lambda: self.exits(worker, *how))
        if isinstance(made, Done):
            process.feed = None
            return supervise.done(s, worker, fence, made, self.now)
        self.known.add(made[0].path)
        return supervise.block(s, worker, fence, made[0], made[1], 0, self.now)

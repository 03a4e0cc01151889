"""The monitor of a run: what its processes, stages, GPUs and the machine do, into the run database and to the watch.

It is called by the supervisor's loop. Totals, stages and processes are written once a second, as one moment; everything
else every two. It must never hurt: an error inside it is noted once and the run continues; its own CPU time is counted.
"""

from __future__ import annotations

import functools
import json
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, cast

from tamis._dataclasses import dataclass
from tamis.engine.ledger import Ledger
from tamis.engine.messages import Done
from tamis.engine.monitor.database import RunDatabase
from tamis.engine.monitor.gpu_use import GpuUse
from tamis.engine.monitor.partition_map import Cells, expected_partitions
from tamis.engine.monitor.processes import ProcessTree
from tamis.engine.monitor.stage_costs import StageCost, StageCosts
from tamis.engine.progress import GpuFacts, ProgressState, RunSample
from tamis.engine.run_record import PassWork, StageTime
from tamis.engine.schema import EventKind, RunFacts
from tamis.engine.supervisor.actions import Action, CommitPartition, Committed
from tamis.engine.supervisor.events import AlertFired
from tamis.engine.supervisor.supervisor import Supervisor
from tamis.engine.units import Mode, PieceKind, Unit
from tamis.engine.workers_interface import Workers
from tamis.memory.gpu import GpuSample, GpuSource, find_gpus
from tamis.memory.machine import MachineReader, folder_bytes, free_bytes
from tamis.memory.pressure import PressureLevel
from tamis.memory.sampler import Mark

SAMPLE_S = 1.0
DETAIL_S = 2.0
_MAX_RULES = 500  # whose counts are shown live; reasons of a stage may be as many as documents
_MAX_DROPPED = 20  # documents that are named, of those dropped since the last sample
Remedy = str
Watch = Callable[[RunSample], Sequence[Remedy]]
"""Called about once a second; answers with remedies (supervisor/alert_orders.py). It must not block; what it raises is
noted and ignored.
"""

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _harmless(method: Callable[Concatenate[Monitor, _P], _R]) -> Callable[Concatenate[Monitor, _P], _R | None]:
    """Wrap a monitor method so that its errors never end a run, and count the CPU time it takes."""

    @functools.wraps(method)
    def guarded(self: Monitor, /, *args: _P.args, **kwargs: _P.kwargs) -> _R | None:
        began = time.thread_time()
        try:
            return method(self, *args, **kwargs)
        except Exception as exc:
            self._complain(f"{method.__name__}: {type(exc).__name__}: {exc}")
            return None
        finally:
            self.cpu_s += time.thread_time() - began

    return guarded


@dataclass
class MonitoredRun:
    """Facts of the run that the monitor needs before it begins."""

    labels: Sequence[str]
    sizes: Sequence[int]
    kinds: Sequence[PieceKind]
    output: str
    folders: Sequence[str] = ()  # scratch and staged files
    count_caller: bool = False
    mark: Mark = field(default_factory=Mark)  # the peaks of this run
    facts: RunFacts = field(default_factory=RunFacts)
    started_s: float = field(default_factory=time.monotonic)  # of the run
    duplicate_labels: Sequence[str] = ()  # of the stages that remove duplicates


class Monitor:
    """Records a run. `past`: the books of its earlier attempts."""

    def __init__(
        self,
        db: RunDatabase,
        run: MonitoredRun,
        past: Ledger,
        watch: Watch | None = None,
        machine: MachineReader | None = None,
        gpus: GpuSource | None = None,
    ) -> None:
        self.cpu_s = 0.0  # spent in here
        self._db, self._run, self._watch = db, run, watch
        self._complaints: set[str] = set()
        self._machine = machine or MachineReader()
        self._gpus = gpus or find_gpus()
        self._tree = ProcessTree(run.count_caller)
        self._costs = StageCosts(run.labels, db.last_stages() if past.stages else None)
        self._nodes = NodeRows()
        self._cells: Cells | None = None
        self._bad_shares: dict[int, float] = {}  # by partition, until it is committed
        self._sampled_s = self._detailed_s = float("-inf")
        self._progress_s = time.monotonic()
        self._scratch_bytes = 0
        self._seen_gpus: list[GpuSample] = []
        self._use = GpuUse(past)
        self._rules: dict[tuple[str, str], list[int]] = {}  # documents and bytes that each dropped, as written
        self._dropped: deque[tuple[str, str, str, int, str]] = deque(maxlen=_MAX_DROPPED)  # since the last sample
        self._has_output = False
        self._work = PassWork(workers=run.facts.workers)
        self._looks_from: tuple[float, float] | None = None  # time and processors' seconds at the first look
        stages, duplicate_stages = list(run.labels), list(run.duplicate_labels)
        self._facts = replace(run.facts, began_at=time.time(), stages=stages, duplicate_stages=duplicate_stages)
        db.about(self._facts)
        db.clear("nodes")  # those of an earlier attempt are of the past
        attach = getattr(watch, "attach", None)
        if callable(attach):
            attach(db.alert)

    # -- what the loop reports ----------------------------------------------------------------------------------------
    @_harmless
    def begin(self, supervisor: Supervisor) -> None:
        """Begin a sampling step, or the work after the last one, which has no input."""
        self._progress_s = time.monotonic()
        if len(supervisor.queue.cursor.files):
            kinds = self._run.kinds
            n_cells = expected_partitions(self._run.sizes, kinds, supervisor.config.max_partition_bytes)
            is_plain = [kind is PieceKind.BYTES for kind in kinds]
            self._cells = Cells(self._run.sizes, is_plain.__getitem__, supervisor.queue.cursor.done, n_cells)
            self._db.clear("cells")
            self._bad_shares = {}

    @_harmless
    def done(self, report: Done, paths: Sequence[str] = ()) -> None:
        """Count a finished unit. `paths`: of the input files by number, to name dropped documents."""
        self._costs.add(report)
        self._work.unit_s += report.seconds
        self._work.reading_s += report.reading_s
        for book in report.ledger.stages:
            for reason, tally in book.dropped.items():
                for file, offset, document in tally.examples:
                    if 0 <= file < len(paths):
                        self._dropped.append((book.name, reason, paths[file], offset, document or ""))

    @_harmless
    def committing(self, action: CommitPartition) -> None:
        n, n_bad = action.ledger["records"][0] - action.ledger["not_sampled"][0], action.ledger["quarantined"][0]
        if n_bad or action.ledger["n_bad_ranges"]:
            self._bad_shares[action.partition] = min(1.0, n_bad / n) if n else 1.0

    @_harmless
    def committed(self, result: Committed) -> None:
        self._progress_s = time.monotonic()
        if not self._has_output:
            self._has_output = True
            self._record(first_output_s=round(self._progress_s - self._run.started_s, 3))
        if self._cells is not None:
            self._cells.commit(result.covered, self._bad_shares.pop(result.partition, 0.0))

    @_harmless
    def split(self, unit: Unit) -> None:
        if self._cells is not None:
            self._cells.split(unit)

    # -- looking ------------------------------------------------------------------------------------------------------
    @_harmless
    def tick(
        self,
        state: ProgressState,
        s: Supervisor,
        workers: Workers,
        before: Ledger | None = None,
        final: bool = False,
    ) -> list[Action]:
        """Write what is due. What the watch wants done comes back as actions of the supervisor.

        `before`: the books of earlier attempts and of finished sampling steps. Totals, stages and processes of one
        moment have the same time and are written together: totals are sums over the stages, and the workers of the
        totals are those of the processes.
        """
        now = time.monotonic()
        if not final and now - self._sampled_s < SAMPLE_S:
            return []
        at = time.time()
        self._sampled_s = now
        books = [*([before] if before is not None else ()), *s.queue.books()]
        stages = self._costs.stages(books)
        with self._db.together():
            if final or now - self._detailed_s >= DETAIL_S:
                self._detailed_s = now
                self._detail(at, s)
            used = self._sample_processes(at, s, workers)
            for stage in stages:
                self._db.put("stages", at=at, **vars(stage))
            self._count_rules(books)
            if self._dropped:
                self._db.dropped(at, self._dropped)
                self._dropped.clear()
            totals = self._totals(state, stages, s)
            self._db.sample(totals, used, at)
        self._note_work(now, stages, state)
        if final:
            self._record(monitor_cpu_s=round(self.cpu_s, 3))
        return self._ask(totals, stages, used, s, now) if self._watch is not None and not final else []

    def _note_work(self, now_s: float, stages: Sequence[StageCost], state: ProgressState) -> None:
        work, cpu_s = self._work, self._tree.cpu_s
        began_s, before_s = self._looks_from = self._looks_from or (now_s, cpu_s)
        work.seconds, work.cpu_s = round(now_s - began_s, 3), round(cpu_s - before_s, 3)
        work.stages = [StageTime(c.stage, round(c.seconds, 3), round(c.cpu_s, 3), c.n_in) for c in stages]
        work.n_looks += 1
        work.n_pressed += int(state.get("level", 0)) >= PressureLevel.ORANGE

    def work(self, counters: Mapping[str, int]) -> PassWork:
        """Return where the time of the workers went so far. `counters`: of the supervisors."""
        shares = list(self._use.busy_shares.values())
        return replace(
            self._work,
            unit_s=round(self._work.unit_s, 3),
            reading_s=round(self._work.reading_s, 3),
            n_units=counters.get("committed", 0),
            n_failed=counters.get("retries", 0) + counters.get("crashes", 0),
            n_short_of_memory=counters.get("memory_failures", 0),
            n_recycled=counters.get("recycled", 0),
            gpu_busy=round(sum(shares) / len(shares), 4) if shares else None,
        )

    def _sample_processes(self, at: float, s: Supervisor, workers: Workers) -> dict[int, int]:
        """Write a row for each process; return the memory of the workers among them."""
        by_id = {w.id: (w.segment, w.used_bytes) for w in s.pool.workers.values()}
        rows = self._tree.sample(workers.pids(), by_id)
        for row in rows:
            self._db.put("processes", at=at, **row)
        if workers.is_remote:
            return {worker: used_bytes for worker, (_, used_bytes) in by_id.items()}
        return {row["worker"]: row["pss_bytes"] for row in rows if row["role"] == "worker"}

    def _count_rules(self, books: Sequence[Ledger]) -> None:
        """Write what each rule has dropped so far, where that has changed; nothing where reasons are too many."""
        counts: dict[tuple[str, str], list[int]] = {}
        for stage in (stage for ledger in books for stage in ledger.stages):
            for reason, tally in stage.dropped.items():
                count = counts.setdefault((stage.name, reason), [0, 0])
                count[0] += tally.n
                count[1] += tally.n_bytes
        if len(counts) > _MAX_RULES:
            self._db.clear("drops")
            return
        changed = {key: count for key, count in counts.items() if self._rules.get(key) != count}
        self._rules |= changed
        rows = [(stage, reason, n, n_bytes) for (stage, reason), (n, n_bytes) in changed.items()]
        self._db.rule_counts(rows)

    def _detail(self, at: float, s: Supervisor) -> None:
        self._scratch_bytes = max(
            folder_bytes(self._run.folders),
            s.queue.scratch.total_bytes + s.queue.unsynced_bytes if self._run.folders else 0,
        )
        self._look_at_gpus(at, s)
        self._db.replace("nodes", self._nodes.sample(at, s))
        self._draw_cells(s)

    def _record(self, **facts: Any) -> None:
        self._facts = replace(self._facts, **facts)
        self._db.about(self._facts)

    def _look_at_gpus(self, at: float, s: Supervisor) -> None:
        self._use.count(s)
        if self._gpus is not None:
            self._seen_gpus = self._gpus.sample()
            self._use.sample(self._seen_gpus, s)
        if (figures := self._use.changed()) is not None:
            self._record(gpu=figures)
        for gpu in self._seen_gpus:
            self._db.put("gpus", at=at, **self._about_gpu(gpu), processes=json.dumps(dict(gpu.processes)))

    def _about_gpu(self, gpu: GpuSample) -> GpuFacts:
        return {
            "gpu": gpu.gpu,
            "name": gpu.name,
            "used_bytes": gpu.used_bytes,
            "total_bytes": gpu.total_bytes,
            "busy": gpu.busy,
            "temperature_c": gpu.temperature_c,
            "free_bytes": gpu.free_bytes,
            "ours_bytes": gpu.ours_bytes(self._tree.pids),
        }

    def _draw_cells(self, s: Supervisor) -> None:
        if self._cells is None:
            return
        under_way = [w.unit for w in s.pool.workers.values() if w.unit is not None]
        for unit in under_way:
            if unit.mode is Mode.FEED and unit.pieces:
                on_disk = unit.compressed_bytes
                self._cells.estimate(unit.pieces[0].file, unit.pieces[0].start, on_disk)
        self._db.replace("cells", self._cells.changed(under_way))

    def _totals(self, state: ProgressState, stages: Sequence[StageCost], s: Supervisor) -> RunSample:
        removing = set(self._run.duplicate_labels)
        figures = {name: value for name, value in state.items() if name != "workers"}  # only their number
        totals: dict[str, Any] = {
            **figures,
            **self._machine.sample()._asdict(),
            "peak_bytes": max(self._run.mark.pop_recent(), int(state["used_bytes"])),
            "queue_bytes": s.queue.scratch.total_bytes,
            "scratch_bytes": self._scratch_bytes,
            "disk_free_bytes": free_bytes([self._run.output, *self._run.folders]),
            "cpu_s": self._tree.cpu_s,
            "n_processes": self._tree.n_processes,
            "server_bytes": self._tree.server_bytes,
            "supervisor_bytes": self._tree.supervisor_bytes,
            "duplicates": sum(stage.n_dropped for stage in stages if stage.stage in removing),
        }
        return cast("RunSample", totals)

    def _ask(
        self, totals: RunSample, stages: Sequence[StageCost], workers: dict[int, int], s: Supervisor, now: float
    ) -> list[Action]:
        assert self._watch is not None
        facts: RunSample = {
            **totals,
            "workers": workers,
            "stages": {stage.stage: vars(stage) for stage in stages},
            "gpus": [self._about_gpu(gpu) for gpu in self._seen_gpus],
            "leaks": list(s.health.leaks),
            "progress_s": now - self._progress_s,
        }
        try:
            remedies = list(self._watch(facts))
        except Exception as exc:
            self._complain(f"the watch: {type(exc).__name__}: {exc}")
            return []
        return [action for remedy in remedies for action in s.handle(AlertFired(str(remedy)), now)]

    def _complain(self, text: str) -> None:
        """Log a problem once per kind."""
        kind = text.partition(":")[0]
        if kind not in self._complaints:
            self._complaints.add(kind)
            self._db.event(EventKind.MONITOR, {"text": f"monitoring: {text}"[:500]})

    def close(self) -> None:
        if self._gpus is not None:
            self._gpus.close()


class NodeRow(NamedTuple):
    """A row of the table `nodes`."""

    node: int
    name: str
    at: float
    is_up: int
    n_workers: int
    busy: int
    n_units: int
    used_bytes: int
    peak_bytes: int
    budget_bytes: int
    level: int


class NodeRows:
    """Keeps what a node that is gone was; a run on one machine has none."""

    def __init__(self) -> None:
        self._last: dict[int, NodeRow] = {}
        self._earlier: Counter[int] = Counter()  # units that nodes did under supervisors before this one
        self._seen: dict[int, int] = {}

    def sample(self, at: float, s: Supervisor) -> list[NodeRow]:
        """Return the rows of the table `nodes` that have changed or may have."""
        rows: list[NodeRow] = []
        for node in s.pool.nodes.values():
            if not node.name:
                continue
            if node.n_units < self._seen.get(node.id, 0):  # another supervisor counts from 0
                self._earlier[node.id] += self._seen[node.id]
            self._seen[node.id] = node.n_units
            before = self._last.get(node.id)
            peak = max(node.used_bytes, before.peak_bytes if before is not None else 0)
            rows.append(
                NodeRow(
                    node.id,
                    node.name,
                    at,
                    1,
                    len(node.workers),
                    node.n_busy,
                    self._earlier[node.id] + node.n_units,
                    node.used_bytes,
                    peak,
                    node.config.budget_bytes,
                    int(node.pressure.level),
                )
            )
        for number, row in self._last.items():
            if number not in s.pool.nodes and row.is_up:
                rows.append(row._replace(is_up=0, n_workers=0, busy=0, used_bytes=0))
        self._last.update({row.node: row for row in rows})
        return rows
